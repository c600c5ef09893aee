"""From a resolved pairing to an image: base, lock and the locked wheels in, bytes out."""

import json
import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import ImageFile, ModPlan, Verdict
from vllm_mods.building import layer, oci, tarball
from vllm_mods.building.content import content
from vllm_mods.building.resolving import Resolved
from vllm_mods.formats import image_paths, pairing_lock
from vllm_mods.formats.toml_writer import value
from vllm_mods.images.model import DIR, FILE, Base, environment, resolve, settings
from vllm_mods.site import transitions

_NAME = "org.opencontainers.image"
_FROM_BASE = (f"{_NAME}.source", f"{_NAME}.revision")
_LIBRARIES = ("lib", "lib64", "usr/lib", "usr/lib64", "usr/local/lib", "usr/local/lib64")
_TRIPLETS = ("x86_64-linux-gnu", "aarch64-linux-gnu")


class Drafted(NamedTuple):
    """What an image will hold: the ``entries`` of its layer, the ``lock``'s with no bytes yet."""

    lock: pairing_lock.PairingLock
    entries: tuple[tarball.TarEntry, ...]


def draft(base: Base, resolved: Resolved, wheels: Iterable[tarball.TarEntry] = ()) -> Drafted:
    """Draft the image of what was resolved; ``wheels`` are the unpacked packages.

    Nothing in it depends on this machine, this moment or the place the base was read from. Raises
    ``Refused`` for what ``apply`` refuses.
    """
    lock = resolved.lock
    site_root = lock.vllm.site_root
    nodes = [tarball.TarEntry(path=_place(lock), data=b"", mode=0o644, mtime=lock.epoch), *wheels]
    gone: list[str] = []
    if any(one.verdict.writes for one in resolved.planned.mods):
        applied = resolved.applied
        changes = transitions.forward(resolved.planned, applied)
        written, gone = content(base, site_root, applied, changes, epoch=lock.epoch, tool=lock.tool)
        nodes += written
    nodes += _image_files(base, site_root, resolved.planned.mods, epoch=lock.epoch)
    entries = layer.entries(base, nodes, gone, epoch=lock.epoch)
    listed = tuple(_listed(one, lock) for one in entries)
    image = pairing_lock.LockedImage(_config(base, resolved), listed)
    return Drafted(lock._replace(image=image), entries)


def build(base: Base, drafted: Drafted, data: bytes) -> oci.BuiltImage:
    """Build the image of a lock, whose bytes are ``data``."""
    lock = drafted.lock
    raw = {**lock.image.config, "rootfs": {"diff_ids": lock.base.diff_ids}}
    place = _place(lock)
    entries = (one._replace(data=data) if one.path == place else one for one in drafted.entries)
    written = tarball.write(entries)
    named = labels(lock, data, (raw.get("config") or {}).get("Labels") or {})
    maker = created_by(lock)
    return oci.append(raw, base.layers, written, created_by=maker, labels=named, epoch=lock.epoch)


def created_by(lock: pairing_lock.PairingLock) -> str:
    """Return what the history of an image says of its layer."""
    return f"vllm-mods build {lock.pairing}"


def labels(lock: pairing_lock.PairingLock, data: bytes, below: Mapping[str, str]) -> dict[str, str]:
    """Return what an image says of itself, in its labels and in its manifest's annotations.

    Source and revision are those of the base's labels, ``below``: they say where its vLLM comes from, and that is so.
    """
    stated = {key: below[key] for key in _FROM_BASE if below.get(key)} | {
        f"{_NAME}.title": lock.pairing,
        f"{_NAME}.version": pairing_lock.tag(lock, data).rpartition(":")[2],
        f"{_NAME}.created": oci.timestamp(lock.epoch),
        f"{_NAME}.base.name": lock.base.ref,
        "vllm-mods.pairing": lock.pairing,
        "vllm-mods.model": lock.model,
        "vllm-mods.lock": f"sha256:{sha256(data)}",
        "vllm-mods.mods": " ".join(f"{mod.name}@{mod.version}" for mod in lock.mods),
    }
    if lock.base.manifest is not None:
        stated[f"{_NAME}.base.digest"] = lock.base.manifest
    if lock.revision is not None:
        stated["vllm-mods.revision"] = lock.revision
    return stated


def _config(base: Base, resolved: Resolved) -> dict[str, object]:
    """Return platform and settings: the pairing's over the base's, without what an earlier pairing said."""
    taken = oci.inherited(json.loads(base.config))
    merged = resolved.served.over(taken["config"])
    below = merged.get("Labels") or {}
    earlier = {f"{_NAME}.base.digest", *(key for key in below if key.startswith("vllm-mods."))}
    merged["Labels"] = {key: value for key, value in below.items() if key not in earlier}
    return {**taken, "config": merged}


def _listed(entry: tarball.TarEntry, lock: pairing_lock.PairingLock) -> pairing_lock.LockedEntry:
    is_lock = entry.path == _place(lock)
    kind = pairing_lock.FOLDER if entry.data is None else pairing_lock.FILE
    kind, digest = (pairing_lock.LOCK, None) if is_lock else (kind, sha256(entry.data))
    uid, gid = entry.owner or (0, 0)
    return pairing_lock.LockedEntry(entry.path, kind, entry.mode, uid, gid, entry.mtime, digest)


def _place(lock: pairing_lock.PairingLock) -> str:
    return f"{lock.vllm.site_root}/{pairing_lock.PLACE}"


def _image_files(
    base: Base, site_root: str, mods: Sequence[ModPlan], *, epoch: int
) -> tuple[tarball.TarEntry, ...]:
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
                why = f"`{mod}` and `{planned.mod.name}` have different files for {file.path}; nothing was built"
                raise Refused(why, hint="take one of the two mods out of the pairing")
    files = ((path, file) for path, (_, file) in placed.items())
    return tuple(tarball.TarEntry(path, file.data, file.mode, epoch) for path, file in files)


def _check(base: Base, site_root: str, mod: str, file: ImageFile, path: str) -> None:
    why = image_paths.objection(f"/{path}")
    if why is None and path.startswith(f"{site_root}/"):
        why = "is one of Python's own files: use patches, an overlay or `outside` for packages"
    entry = base.entry(path)
    if why is None and entry is not None and entry.kind != FILE:
        why = f"is a {'folder' if entry.kind == DIR else entry.kind} in this image"
    if why is not None:
        where = file.path if file.path == f"/{path}" else f"{file.path} (in the image: /{path})"
        why = f"{mod}: {where} {why}; nothing was built"
        raise Refused(why, hint=f"name another path in {mod}'s mod.toml")
    for place in (path, *_hidden(base, path)):
        digest = sha256(base.read(place)) if base.entry(place) is not None else None
        if digest not in {None, sha256(file.data), *file.replaces}:
            why = f"{mod}: {file.path} would replace /{place} in the image, but mod.toml does not allow it; nothing was built"
            raise Refused(why, hint=f"to allow it, add to mod.toml: replaces = {value([digest])}")


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
