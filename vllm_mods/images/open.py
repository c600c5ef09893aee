"""From what the user typed to an image."""

import os
from collections.abc import Callable, Iterable
from functools import partial

from vllm_mods.base.cache import Cache, cache_folder
from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.images import engine_command, layout, oci, storage
from vllm_mods.images.model import Base

FORMS = (
    "docker:NAME, podman:NAME, container:NAME, oci:FOLDER[:TAG], registry:HOST/NAME:TAG, "
    "or a bare NAME of an image that an engine here has"
)
_KINDS = ("docker", "podman", "container", "oci", "registry")


def open_base(
    reference: str,
    *,
    offline: bool = False,
    progress: Callable[[str, int, int | None], None] | None = None,
    note: Callable[[str], None] | None = None,
    cache_dir: str | None = None,
    platform: str | None = None,
    known: Callable[[oci.Index], object] | None = None,
) -> Base:
    """Open the image that ``reference`` names; the caller closes it.

    The parameters are those of ``open_tree``; ``platform`` chooses from an index, of which ``known`` is told.
    Raises ``UsageError`` for a reference that names nothing, ``TreeError`` for what can't be read.
    """
    kind, colon, name = reference.partition(":")
    cache = Cache(cache_dir or cache_folder(os.environ), note=note)
    if not colon or kind not in _KINDS:
        if not reference:
            raise UsageError("no image given", hint=FORMS)
        return _open_local(reference, cache)
    if not name:
        raise UsageError(f"{reference} needs a name after the colon", hint=FORMS)
    if kind in {"docker", "container"}:
        from vllm_mods.images import docker  # noqa: PLC0415  (docker's library: 160 ms)

        return docker.open_image(name, cache, reference=reference, container=kind == "container")
    if kind == "podman":
        return storage.StoredImage(name, reference=reference)
    how = oci.Opening(reference, cache, progress, oci.Choice(platform, note, known))
    if kind == "registry":
        from vllm_mods.images.registry import open_registry  # noqa: PLC0415

        return open_registry(name, how, offline=offline)
    return layout.open_layout(name, how)


def indexes_of(reference: str, *, offline: bool = False) -> tuple[oci.Index, ...]:
    """Return the index that a reference names, and the indexes in it that lead to an image; an engine has none.

    Raises as ``open_base``.
    """
    if in_engine(reference):
        return ()
    indexes: list[oci.Index] = []
    try:
        open_base(reference, offline=offline, known=indexes.append).close()
    except UsageError:  # perhaps none of them is for this machine
        if not indexes:
            raise
    return tuple(indexes)


def entries_of(indexes: Iterable[oci.Index], reference: str) -> tuple[oci.IndexEntry, ...]:
    """Return what all indexes of a reference list, in their order. Raises ``TreeError``."""
    what = f"{reference}: its index"
    return tuple(entry for index in indexes for entry in oci.entries_in(index, what))


def platforms_of(reference: str) -> tuple[str, ...]:
    """Return the platforms of an index, sorted. Raises as ``open_base``."""
    return platforms_in(entries_of(indexes_of(reference), reference))


def platforms_in(entries: Iterable[oci.IndexEntry]) -> tuple[str, ...]:
    """Return the platforms that entries of an index are for, sorted."""
    return tuple(sorted({entry.platform for entry in entries} - {"", oci.UNKNOWN}))


def in_engine(reference: str) -> bool:
    """Tell whether a reference names an image of an engine, which has one platform of it."""
    return reference.partition(":")[0] not in {"oci", "registry"}


def demand_platform(base: Base, platform: str) -> None:
    """Raise ``UsageError`` unless an image is for the platform that the user has named."""
    actual = oci.platform_of(base.config)
    if not oci.is_for(actual, platform):
        pull = engine_command.STORES.get(base.where, engine_command.DOCKER)
        again = f"{pull} pull --platform {platform} IMAGE, or leave --platform out"
        other = "leave --platform out, or name the image for that platform"
        hint = other if base.where in {"oci-layout", "registry"} else again
        raise UsageError(f"{base.reference}: the image is for {actual}, not {platform}", hint=hint)


def _open_local(name: str, cache: Cache) -> Base:
    from vllm_mods.images import docker  # noqa: PLC0415

    if os.path.exists(name):
        raise UsageError(f"{name} is a file or a folder, not an image name", hint=f"oci:{name}")
    open_image = partial(docker.open_image, cache=cache)
    openers: tuple[Callable[..., Base], ...] = (open_image, storage.StoredImage)
    lines, hints = "", []
    for opened in openers:
        try:
            return opened(name, reference=name)
        except VllmModsError as error:
            lines += f"\n  {error.message}"
            hints.append(error.hint)
    # of the first engine that answered
    pull = next((one for one in hints if one and one.endswith(f" pull {name}")), None)
    why = f"{name}: no engine on this machine has this image{lines}"
    hint = f"{pull or f'docker pull {name}'}  # or write registry:{name}, which reads the image from its registry"
    raise UsageError(why, hint=hint)
