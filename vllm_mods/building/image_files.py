"""The files that mods bring for an image, outside of Python's packages, held against the base."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import ImageFile, ModPlan, Verdict
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats import image_paths
from vllm_mods.formats.toml_writer import value
from vllm_mods.images.model import DIR, FILE, Base, environment, resolve, settings

_LIBRARIES = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64")
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")


def nodes(
    base: Base, site_root: str, mods: Sequence[ModPlan], *, epoch: int
) -> tuple[TarEntry, ...]:
    """Return the files of the mods that are in as a layer has them.

    Raises ``Refused`` for one that takes the place of a file of the base that its mod does not name, at its path or
    before it on the way that programs and libraries are searched; and where two mods differ.
    """
    placed: dict[str, tuple[str, ImageFile]] = {}
    for planned in mods:
        for file in planned.mod.files if planned.verdict is not Verdict.UPSTREAM else ():
            folder, name = posixpath.split(file.path)
            path = f"{resolve(base, folder)}/{name}"
            _check(base, site_root, planned.mod.name, file, path)
            mod, other = placed.setdefault(path, (planned.mod.name, file))
            if (other.data, other.mode) != (file.data, file.mode):
                raise Refused(
                    f"`{mod}` and `{planned.mod.name}` bring different files for {file.path}; nothing was built",
                    hint="take one of the two out of the pairing",
                )
    return tuple(
        TarEntry(path=path, data=file.data, mode=file.mode, mtime=epoch)
        for path, (_, file) in placed.items()
    )


def _check(base: Base, site_root: str, mod: str, file: ImageFile, path: str) -> None:
    why = image_paths.objection(f"/{path}")
    if why is None and path.startswith(f"{site_root}/"):
        why = "is among Python's own: patches, an overlay and `outside` are for its packages"
    entry = base.entry(path)
    if why is None and entry is not None and entry.kind != FILE:
        why = f"is a {'folder' if entry.kind == DIR else entry.kind} in this image"
    if why is not None:
        where = file.path if file.path == f"/{path}" else f"{file.path}, which leads to /{path},"
        raise Refused(
            f"{mod}: {where} {why}; nothing was built", hint=f"another path in {mod}'s mod.toml"
        )
    for place in (path, *_hidden(base, path)):
        digest = sha256(base.read(place)) if base.entry(place) is not None else None
        if digest not in {None, sha256(file.data), *file.replaces}:
            raise Refused(
                f"{mod}: {file.path} would take the place of the image's /{place}, and mod.toml does not say so; "
                "nothing was built",
                hint=f"if it is meant: replaces = {value([digest])}",
            )


def _hidden(base: Base, path: str) -> Iterator[str]:
    """Yield what a file of the same name would be found in place of, or may be."""
    folder, name = posixpath.split(path)
    variables = environment(settings(base))
    programs = variables.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    libraries = [*variables.get("LD_LIBRARY_PATH", "").split(":"), *_LIBRARIES]
    libraries += [f"{one}/{triplet}" for one in _LIBRARIES for triplet in _TRIPLETS]
    for searched in (programs.split(":"), libraries):
        places = dict.fromkeys(resolve(base, one) for one in searched if one)
        if folder in places:
            for place in places:
                other = f"{place}/{name}"
                entry = base.entry(other)
                if other != path and entry is not None:
                    yield resolve(base, other)
