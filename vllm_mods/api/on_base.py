"""From a pairing's name to the pairing on its base: the part that ``lock`` and ``build`` share."""

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import NamedTuple

from vllm_mods.api import serve_check
from vllm_mods.api.access import Access
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import Mod, Plan
from vllm_mods.building import building, outputs, resolving
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import Output, Written
from vllm_mods.building.tarball import TarEntry
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.formats import pairing, pairing_lock
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import LockedModel, PairingLock
from vllm_mods.images.model import Base
from vllm_mods.images.oci import is_for, platform_of
from vllm_mods.images.open import demand_platform, in_engine, open_base
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.trees import beside as packages_beside
from vllm_mods.trees.image import ImageTree, find_site_root


class ReadLock(NamedTuple):
    """A pairing's ``lock`` as it lies on disk: its ``path``, and the bytes there."""

    path: str
    data: bytes
    lock: PairingLock

    @property
    def sha256(self) -> str:
        """The digest of the bytes, which names the image."""
        return sha256(self.data)

    @property
    def tag(self) -> str:
        """The name that ``build`` gives to the image."""
        return pairing_lock.tag(self.lock, self.data)


class OnBase(NamedTuple):
    """A pairing resolved on the vLLM in an open base, and what its image will hold."""

    drafted: building.Drafted
    tree: ImageTree
    planned: Plan


def lock_path(library: Library, name: str, named: str | None) -> str:
    """Return where a pairing's lock lies: as it is named, else beside the pairing.

    That of a pairing of the installation, where nobody writes, lies in the current folder.
    """
    if named is not None:
        return os.path.abspath(named)
    beside = _beside(library, name)
    is_beside = library.is_writable(beside) or os.path.exists(beside)
    return beside if is_beside else os.path.abspath(os.path.basename(beside))


def find_lock(library: Library, name: str, named: str | None) -> tuple[ReadLock, tuple[str, ...]]:
    """Read a pairing's lock; the second is its path if it is the library's, and trusted as that."""
    path = lock_path(library, name, named)
    is_beside = named is None and path == _beside(library, name)
    return read_lock(library, path, name), (path,) if is_beside else ()


def _beside(library: Library, name: str) -> str:
    return f"{os.path.splitext(library.pairing_file(name))[0]}.lock"


def read_lock(library: Library, path: str, name: str) -> ReadLock:
    """Read a pairing's lock.

    Raises ``UsageError`` if there is none or it is another pairing's, ``Refused`` as ``Library.read``.
    """
    data = library.read(path)
    if data is None:
        is_default = path == lock_path(library, name, None)
        where = "" if is_default else f" --output {shlex.quote(os.path.relpath(path))}"
        why = f"pairing {name} has no lock: {path} does not exist"
        raise UsageError(why, hint=f"vllm-mods lock {name}{where}")
    lock = pairing_lock.parse(data, path)
    if lock.pairing != name.rpartition("/")[2]:
        why = f"{path} is the lock of pairing {lock.pairing}, not of {name}"
        raise UsageError(why, hint=f"vllm-mods lock {name} --output FILE")
    return ReadLock(path=path, data=data, lock=lock)


def parts_of(lock: PairingLock, ref: str, platform: str | None) -> tuple[PairingLock, ...]:
    """Return a lock for each platform to build for: the one that is named, else all that the base has.

    Raises ``UsageError`` for one that the lock is not of.
    """
    every = pairing_lock.by_platform(lock)
    if platform is None and len(every) > 1 and in_engine(ref):
        with closing(open_base(ref)) as base:
            platform = platform_of(base.config)
    parts = tuple(one for name, one in every.items() if platform is None or is_for(name, platform))
    if not parts:
        why = f"the lock of {lock.pairing} is for {', '.join(every)}, not for {platform}"
        hint = f"vllm-mods lock {lock.pairing} --platform {','.join((*every, platform or ''))}"
        raise UsageError(why, hint=hint)
    return parts


@contextmanager
def on_bases(
    library: Library,
    wanted: Pairing,
    ref: str,
    places: Iterable[PairingLock | str | None],
    *,
    epoch: int,
    beside: Sequence[str] = (),
    in_image: str | None = None,
    access: Access,
) -> Iterator[list[OnBase]]:
    """Open a base for each place, and resolve a pairing on it.

    A place is a platform of an index, or None for this machine's; or a lock, which has chosen the platform and which
    vLLM of several, and of which wheels and manifests are taken. ``in_image`` chooses from several vLLMs;
    ``beside`` are files of the pairing's library that have to be trusted as it is.
    """
    trust.demand_pairing(library, wanted.name, *beside)
    mods = library.select(library.mods_of(wanted))
    opened = []
    with ExitStack() as stack:
        for place in places:
            locked = place if isinstance(place, PairingLock) else None
            platform = place.base.platform if isinstance(place, PairingLock) else place
            base = open_base(ref, progress=access.progress, note=access.note, platform=platform)
            stack.enter_context(closing(base))
            if platform is not None and locked is None:
                demand_platform(base, platform)
            named = in_image
            if locked is not None and base.entry(f"{locked.vllm.site_root}/vllm") is not None:
                named = f"/{locked.vllm.site_root}"
            tree = ImageTree(base, find_site_root(base, named), workspace=resolving.workspace(base))
            if text := pairing.advice(wanted, tree.version):
                access.note(text)
            for found, hint in packages_beside.unmet(tree):
                access.note(f"{found.message} ({hint}) [{found.code}]")
            opened.append(_draft(wanted, mods, tree, epoch, locked))
        yield opened


def _draft(
    wanted: Pairing, mods: Sequence[Mod], tree: ImageTree, epoch: int, locked: PairingLock | None
) -> OnBase:
    resolved = resolving.resolve(wanted, mods, tree, epoch=epoch, locked=locked)
    nodes: list[TarEntry] = []
    for wheel in resolved.lock.wheels:
        from vllm_mods.building import wheels  # noqa: PLC0415  (as in `resolve`)

        data = wheels.fetch(wheel, wheels.target(tree.site_root, resolved.lock.base.platform, ()))
        nodes += wheels.unpack(data, wheel, tree.site_root, epoch=epoch)
    return OnBase(building.draft(tree.base, resolved, nodes), tree, resolved.planned)


def demand_locked(locked: ReadLock, parts: Sequence[PairingLock], opened: Sequence[OnBase]) -> None:
    """Raise ``Refused`` where what was drafted on a base is not what the ``parts`` of a lock say."""
    for part, on_platform in zip(parts, opened, strict=True):
        if moved := pairing_lock.moved(part, on_platform.drafted.lock):
            where = on_platform.tree.base.reference
            what = f"the lock {locked.path} no longer matches {where}; nothing was built"
            if all(one.path.startswith(("base.", "image.")) for one in moved):
                what = f"{where} was rebuilt since the lock was made, so the lock is out of date; nothing was built"
            raise Refused(
                "\n  ".join((what, *map(str, moved))),
                hint=f"vllm-mods lock {locked.lock.pairing} --base {where}",
            )


def demand_serving(
    library: Library,
    wanted: Pairing,
    opened: Iterable[OnBase],
    access: Access,
    model: Checkpoint | None = None,
) -> None:
    """Raise ``Refused`` if the vLLM in one of the bases would not take the pairing's command or model."""
    asked = serve_check.of_pairing(library, wanted)._replace(model=model)
    for on_platform in opened:
        serve_check.demand(asked, on_platform.tree, on_platform.planned, note=access.note)


def joined_lock(opened: Iterable[OnBase], model: Checkpoint | None) -> PairingLock:
    """Return one lock of what was drafted for several platforms, and of the model. Raises ``Refused`` for two images of one platform."""
    whole = pairing_lock.joined([one.drafted.lock for one in opened])
    if len(every := pairing_lock.by_platform(whole)) <= len(whole.platforms):
        why = f"{whole.base.ref}: the configurations of {len(whole.platforms) + 1} images name only {' and '.join(every)}; no lock was written"
        raise Refused(why, hint=f"vllm-mods lock {whole.pairing} --platform {whole.base.platform}")
    locked = model and LockedModel(model.commit, model.config_sha256, model.index_sha256)
    return whole._replace(checkpoint=locked)


class BuiltFor(NamedTuple):
    """An image, what it is built on, and the lock as it is for its platform."""

    lock: PairingLock
    built: BuiltImage
    base: Base


def build_all(
    locked: ReadLock, opened: Sequence[OnBase], place: Output, tag: str, platform: str | None
) -> tuple[list[BuiltFor], Written]:
    """Build the image of a lock for each platform whose base is open, and write them under a tag.

    Raises ``UsageError`` where not all that the lock is of would be in one place, and no ``platform`` was named.
    """
    parts, first = pairing_lock.by_platform(locked.lock), opened[0].tree.base
    every = " and ".join(parts)
    if len(opened) > 1 and place.kind not in outputs.SEVERAL:
        why = f"--output {place.kind} holds one image only, but the lock has images for {every}"
        hint = f"--platform {next(iter(parts))}; --output registry:REF or oci:DIR writes an index of all images"
        raise UsageError(why, hint=hint)
    if len(opened) < len(parts) and platform is None and place.kind in outputs.SEVERAL:
        why = f"the lock is for {every}, but {first.where} has {first.reference} for one platform only"
        hint = f"--base registry:{locked.lock.base.ref}, or --platform {platform_of(first.config)}"
        raise UsageError(why, hint=hint)
    images = []
    for drafted, tree, _ in opened:
        part = parts[drafted.lock.base.platform]
        built = building.build(tree.base, drafted._replace(lock=part), locked.data)
        images.append(BuiltFor(part, built, tree.base))
    return images, outputs.write(place, [image[1:] for image in images], tag)
