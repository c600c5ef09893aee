"""pairings/NAME.lock: a pairing resolved to hashes. Pure: bytes ↔ ``PairingLock``.

The bytes are canonical JSON and hold no time, no host and no path of the machine that wrote them:
the same pairing on the same base gives the same lock everywhere, and the sha256 of the lock names
the image. What is built follows from the base and the lock alone.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from vllm_mods.base import secrets
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.formats.receipt import TOOL, FileHash
from vllm_mods.formats.schema import decode, encode, matching, object_of

SCHEMA = 1
LAYER_FORMAT = 4
"""Goes up whenever the same input would give other bytes of a layer; a lock of another one is made anew."""
PLACE = ".vllm-mods/pairing.lock"
"""Where an image keeps the lock that it was built from, in its site root."""

Text = Annotated[str, lambda value: None if value else "is missing"]
Sha256 = Annotated[str, matching(r"(sha256:)?[0-9a-f]{64}\Z", "must be a sha256")]
Number = Annotated[int, lambda value: None if value >= 0 else "must be a whole number"]


class LockedBase(NamedTuple):
    """The image that is built on. ``config`` and ``diff_ids`` say which; ``manifest`` where one exists.

    All digests have the form ``sha256:…``; ``platform`` is ``os/architecture`` as OCI writes it.
    """

    ref: Text
    config: Sha256
    diff_ids: tuple[str, ...]
    platform: Text
    manifest: Sha256 | None = None


class LockedVllm(NamedTuple):
    """The vLLM in the base, and where.

    ``record`` is the sha256 of its distribution's RECORD, which has that of every file it shipped;
    None where it has none.
    """

    version: str | None
    site_root: Text
    record: Sha256 | None


class LockedMod(NamedTuple):
    """A mod as it went in, in the order of ``PairingLock.mods``.

    ``manifest`` is the text of its mod.toml, which an image keeps: whoever changes a word in it later, the
    image comes out as it was.
    """

    name: Text
    version: Text
    digest: Sha256
    variant: str | None
    verdict: Text
    files: tuple[FileHash, ...]
    manifest: str


class LockedTemplate(NamedTuple):
    """A chat template: where it lies in the image, and its sha256."""

    path: Text
    sha256: Sha256


class LockedWheel(NamedTuple):
    """A Python package that a mod needs; wherever its wheel comes from, it has this sha256."""

    name: Text
    version: Text
    filename: Text
    sha256: Sha256


class LockedModel(NamedTuple):
    """The model when it was locked: its commit on the Hub, the sha256 of its config and index."""

    commit: str | None
    config_sha256: Sha256
    index_sha256: Sha256 | None


FOLDER, FILE, LOCK = "folder", "file", "lock"
Kind = Annotated[str, matching(r"(folder|file|lock)\Z", "must be folder, file or lock")]


class LockedEntry(NamedTuple):
    """One entry of the layer's tar, whiteouts included; the lock's own has no hash in itself."""

    path: Text
    kind: Kind
    mode: Number
    uid: Number
    gid: Number
    mtime: int
    sha256: Sha256 | None = None


class LockedImage(NamedTuple):
    """The image, but for what follows from the lock's own bytes.

    ``config`` has platform and settings as OCI's configuration has them, the pairing's over the base's;
    ``layer`` every entry of the one layer that comes on top, in order.
    """

    config: Mapping[str, Any]
    layer: tuple[LockedEntry, ...]


class LockedPlatform(NamedTuple):
    """What a lock has of its own for one more platform of the base; the fields are those of ``PairingLock``."""

    base: LockedBase
    vllm: LockedVllm
    mods: tuple[LockedMod, ...]
    templates: tuple[LockedTemplate, ...]
    wheels: tuple[LockedWheel, ...]
    command: Text
    image: LockedImage


class PairingLock(NamedTuple):
    """The whole file. ``epoch`` (seconds since 1970) is the time of everything that is written.

    ``pairing_digest`` is that of the pairing it was made from, ``command`` what serves in the image:
    environment and command, defaults filled in, a chat template where it lies. ``platforms`` are there
    where the base is an index and more than one image of it is built on.
    """

    pairing: Text
    pairing_digest: Sha256
    model: Text
    revision: str | None
    base: LockedBase
    vllm: LockedVllm
    mods: tuple[LockedMod, ...]
    templates: tuple[LockedTemplate, ...]
    wheels: tuple[LockedWheel, ...]
    command: Text
    image: LockedImage
    epoch: Number = 0
    tool: Text = TOOL
    layer_format: Number = LAYER_FORMAT
    checkpoint: LockedModel | None = None
    platforms: tuple[LockedPlatform, ...] = ()


class LockDifference(NamedTuple):
    """One value that two locks do not share; None stands for "not there"."""

    path: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        before, after = (_short(text) for text in (self.before, self.after))
        return f"{self.path}: {before} → {after}"


def tag(lock: PairingLock, data: bytes) -> str:
    """Return the name of the image, ``<pairing>:<vllm version>-<first 12 of the lock's sha256>``."""
    # A tag takes no "+", which the versions of development builds have.
    version = re.sub(r"[^\w.-]", "_", lock.vllm.version or "unknown", flags=re.ASCII).lstrip(".-")
    return f"{lock.pairing}:{version[:100]}-{sha256(data)[:12]}"


def joined(locks: Sequence[PairingLock]) -> PairingLock:
    """Return one lock of those of several platforms."""
    first, *others = sorted(locks, key=lambda lock: lock.base.platform)
    parts = ({name: getattr(one, name) for name in LockedPlatform._fields} for one in others)
    return first._replace(platforms=tuple(LockedPlatform(**part) for part in parts))


def by_platform(lock: PairingLock) -> dict[str, PairingLock]:
    """Return a lock for each platform, as if it had no other."""
    alone = lock._replace(platforms=())
    every = (alone, *(alone._replace(**one._asdict()) for one in lock.platforms))
    return {one.base.platform: one for one in every}


def dump(lock: PairingLock) -> bytes:
    """Write a lock, the same bytes for the same content on every machine."""
    raw = {"schema": SCHEMA, **_encoded(lock)}
    return (json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=True) + "\n").encode()


def parse(data: bytes, where: str) -> PairingLock:
    """Read a lock. Raises ``ManifestError`` with every problem found: it is never edited by hand."""
    hint = f"the file is generated: `vllm-mods lock PAIRING --output {where}` writes it again"
    raw = object_of(data, where, hint)
    schema = raw.pop("schema", None)
    if schema != SCHEMA:
        why = f"schema: this version of vllm-mods reads schema {SCHEMA}, not {schema!r}"
        hint = f"use the version that wrote it: {raw.get('tool', 'a newer vllm-mods')}"
        raise ManifestError(where, (why,), hint=hint)
    lock = decode(PairingLock, raw, where, hint=hint)
    problems = secrets.problems({"command": lock.command})
    if lock.layer_format != LAYER_FORMAT:
        problems.append(f"layer_format: is {lock.layer_format}, but must be {LAYER_FORMAT}")
    if len(by_platform(lock)) <= len(lock.platforms):
        problems.append("platforms: a platform appears twice")
    if problems:
        raise ManifestError(where, tuple(problems), hint=hint)
    return lock


def moved(old: PairingLock, new: PairingLock) -> tuple[LockDifference, ...]:
    """Return what of ``old`` is no longer so, now that resolving gives ``new``.

    Only what decides the bytes of the image: layers and settings, and neither the tool, the pairing's summary
    nor what another place calls the base.
    """
    known, parts = by_platform(old), by_platform(new)
    return differences(
        old, joined([_as_before(known.get(name, old), part) for name, part in parts.items()])
    )


def _as_before(old: PairingLock, new: PairingLock) -> PairingLock:
    """Return a lock with what decides nothing as another one has it."""
    base = new.base._replace(ref=old.base.ref, manifest=old.base.manifest, config=old.base.config)
    texts = {mod.name: mod.manifest for mod in old.mods}
    return new._replace(
        base=base,
        mods=tuple(mod._replace(manifest=texts.get(mod.name, mod.manifest)) for mod in new.mods),
        pairing_digest=old.pairing_digest,
        tool=old.tool,
        checkpoint=new.checkpoint if old.checkpoint and new.checkpoint else old.checkpoint,
    )


def differences(old: PairingLock, new: PairingLock) -> tuple[LockDifference, ...]:
    """Return every value in which two locks differ, sorted by where it is.

    Mods, files and wheels are compared by name, wherever they stand; the order of mods by itself. Where one
    has several platforms, what is of one has its name in front.
    """
    several = bool(old.platforms or new.platforms)
    before, after = (dict(_values(one, several=several)) for one in (old, new))
    paths = sorted(before.keys() | after.keys())
    values = (LockDifference(path, before.get(path), after.get(path)) for path in paths)
    return tuple(one for one in values if one.before != one.after)


def _encoded(lock: PairingLock) -> dict[str, Any]:
    may_lack = {"checkpoint", "platforms"}
    return {key: value for key, value in encode(lock).items() if value or key not in may_lack}


def _values(lock: PairingLock, *, several: bool) -> Iterator[tuple[str, str]]:
    if not several:
        yield from _flat("", _encoded(lock))
        return
    for platform, part in by_platform(lock).items():
        for key, value in _encoded(part).items():
            where = f"{platform} " if key in LockedPlatform._fields else ""
            yield from ((f"{where}{path}", text) for path, text in _flat(key, value))


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  (any JSON)
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _flat(f"{path}.{key}" if path else key, each)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        key = "name" if "name" in value[0] else "path"
        if path == "mods":
            yield path, " ".join(one[key] for one in value)
        for each in value:
            where = f"{path}[{each[key]}]"
            rest = {k: v for k, v in each.items() if k != key}
            if path == "image.layer":  # one difference for one file
                rest["mode"] = f"{each['mode']:o}"
                yield where, ", ".join(f"{k} {v}" for k, v in rest.items() if v is not None)
            else:
                yield from _flat(where, rest)
                yield where, "there"
    elif value not in (None, []):
        yield path, " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _short(text: str | None) -> str:
    if text is None:
        return "none"
    line = text.replace("\n", "\\n")
    return line if len(line) <= 100 else f"{line[:97]}…"
