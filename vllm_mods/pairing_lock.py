"""pairings/NAME.lock: a pairing resolved to hashes. Pure: bytes ↔ ``PairingLock``.

The bytes are canonical JSON and hold no time, no host and no path of the machine that wrote them:
the same pairing on the same base gives the same lock everywhere, and the sha256 of the lock names
the image. What is built follows from the base and the lock alone.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mods.digest import sha256
from vllm_mods.errors import ManifestError
from vllm_mods.receipt import TOOL
from vllm_mods.untrusted import json_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SCHEMA = 1
LAYER_FORMAT = 1
"""Goes up whenever the same input would give other bytes of a layer."""
PLACE = ".vllm-mods/pairing.lock"
"""Where an image keeps the lock that it was built from, in its site root."""
_SHA256 = re.compile(r"(sha256:)?[0-9a-f]{64}\Z")


class LockedBase(NamedTuple):
    """The image that is built on. ``config`` and ``diff_ids`` say which; ``manifest`` where one exists.

    All digests have the form ``sha256:…``; ``platform`` is ``os/architecture`` as OCI writes it.
    """

    ref: str
    config: str
    diff_ids: tuple[str, ...]
    platform: str
    manifest: str | None = None


class LockedVllm(NamedTuple):
    """The vLLM in the base, and where.

    ``record`` is the sha256 of its distribution's RECORD, which has that of every file it shipped;
    None where it has none.
    """

    version: str | None
    site_root: str
    record: str | None


class LockedChange(NamedTuple):
    """A file's sha256 before and after a mod; None stands for "no such file"."""

    path: str
    before: str | None
    after: str | None


class LockedMod(NamedTuple):
    """A mod as it went in, in the order of ``PairingLock.mods``."""

    name: str
    version: str
    digest: str
    variant: str | None
    verdict: str
    files: tuple[LockedChange, ...]


class LockedTemplate(NamedTuple):
    """A chat template: where it lies in the image, and its sha256."""

    path: str
    sha256: str


class LockedWheel(NamedTuple):
    """A Python package that a mod needs; wherever its wheel comes from, it has this sha256."""

    name: str
    version: str
    filename: str
    sha256: str


class PairingLock(NamedTuple):
    """The whole file. ``epoch`` (seconds since 1970) is the time of everything that is written.

    ``pairing_digest`` is that of the pairing it was made from, ``command`` what serves in the image:
    environment and command, defaults filled in, a chat template where it lies.
    """

    pairing: str
    pairing_digest: str
    model: str
    revision: str | None
    base: LockedBase
    vllm: LockedVllm
    mods: tuple[LockedMod, ...]
    templates: tuple[LockedTemplate, ...]
    wheels: tuple[LockedWheel, ...]
    command: str
    epoch: int = 0
    tool: str = TOOL
    layer_format: int = LAYER_FORMAT


class Difference(NamedTuple):
    """One value that two locks do not share; None stands for "not there"."""

    path: str
    before: str | None
    after: str | None


def digest(data: bytes) -> str:
    """Return the sha256 of a lock as it is written."""
    return sha256(data)


def tag(lock: PairingLock, data: bytes) -> str:
    """Return the name of the image, ``<pairing>:<vllm version>-<first 12 of the lock's sha256>``."""
    # A tag takes no "+", which the versions of development builds have.
    version = re.sub(r"[^\w.-]", "_", lock.vllm.version or "unknown", flags=re.ASCII).lstrip(".-")
    return f"{lock.pairing}:{version[:100]}-{digest(data)[:12]}"


def dump(lock: PairingLock) -> bytes:
    """Write a lock, the same bytes for the same content on every machine."""
    raw = {"schema": SCHEMA, **_plain(lock)}
    return (json.dumps(raw, sort_keys=True, indent=1, ensure_ascii=True) + "\n").encode()


def parse(data: bytes, where: str) -> PairingLock:
    """Read a lock. Raises ``ManifestError`` with every problem found: it is never edited by hand."""
    try:
        raw = json_of(data)
    except ValueError as error:
        raise _broken(where, [f"not JSON: {error}"]) from None
    problems: list[str] = []
    top = _Reader(raw, "", problems)
    if top.raw.get("schema") != SCHEMA:
        raise ManifestError(
            where,
            (f"schema: {top.raw.get('schema')!r}, and this version of vllm-mods reads {SCHEMA}",),
            hint=f"use the version that wrote it: {top.raw.get('tool', 'a newer vllm-mods')}",
        )
    lock = _lock(top)
    if problems:
        raise _broken(where, problems)
    return lock


def moved(old: PairingLock, new: PairingLock) -> tuple[Difference, ...]:
    """Return what of ``old`` is no longer so, now that resolving gives ``new``.

    The name of the base is none of it, and its manifest's digest only where both know one: the
    same image has other names and may have no manifest on another machine.
    """
    base = new.base._replace(ref=old.base.ref)
    if old.base.manifest is None or base.manifest is None:
        base = base._replace(manifest=old.base.manifest)
    return differences(old, new._replace(base=base))


def differences(old: PairingLock, new: PairingLock) -> tuple[Difference, ...]:
    """Return every value in which two locks differ, sorted by where it is.

    Mods, files and wheels are compared by name, wherever they stand; the order of mods by itself.
    """
    before = dict(_flat("", _plain(old)))
    after = dict(_flat("", _plain(new)))
    return tuple(
        Difference(path=path, before=before.get(path), after=after.get(path))
        for path in sorted(before.keys() | after.keys())
        if before.get(path) != after.get(path)
    )


def _plain(value: Any) -> Any:  # noqa: ANN401  (any JSON)
    if hasattr(value, "_asdict"):
        return {key: _plain(one) for key, one in value._asdict().items()}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return dict(value) if hasattr(value, "keys") else value


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401  (any JSON)
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(f"{path}.{key}" if path else key, one)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        key = "name" if "name" in value[0] else "path"
        if path == "mods":
            yield path, " ".join(one[key] for one in value)
        for one in value:
            yield from _flat(f"{path}[{one[key]}]", {k: v for k, v in one.items() if k != key})
            yield f"{path}[{one[key]}]", "there"
    elif isinstance(value, list):
        if value:
            yield path, " ".join(str(one) for one in value)
    elif value is not None:
        yield path, str(value)


def _broken(where: str, problems: list[str]) -> ManifestError:
    return ManifestError(
        where, tuple(problems), hint="it is generated: `vllm-mods lock PAIRING` writes it anew"
    )


class _Reader:
    """One JSON object: typed getters that note a problem and go on."""

    def __init__(self, raw: object, where: str, problems: list[str]) -> None:
        self.raw: dict[str, Any] = raw if isinstance(raw, dict) else {}
        self.where = where
        self.problems = problems
        if not isinstance(raw, dict):
            self.problem("", "must be an object")

    def problem(self, name: str, why: str) -> None:
        place = ".".join(part for part in (self.where, name) if part)
        self.problems.append(f"{place or 'the file'}: {why}")

    def text(self, name: str) -> str:
        return self.maybe(name) or self._missing(name)

    def maybe(self, name: str) -> str | None:
        value = self.raw.get(name)
        if value is not None and not isinstance(value, str):
            self.problem(name, "must be text")
            return None
        return value

    def sha256(self, name: str) -> str:
        return self.maybe_sha256(name) or self._missing(name)

    def maybe_sha256(self, name: str) -> str | None:
        value = self.maybe(name)
        if value is not None and not _SHA256.match(value):
            self.problem(name, "must be a sha256")
        return value

    def number(self, name: str) -> int:
        value = self.raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.problem(name, "must be a whole number")
            return 0
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.raw.get(name)
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.problem(name, "must be a list of texts")
            return ()
        return tuple(value)

    def inner(self, name: str) -> _Reader:
        place = f"{self.where}.{name}" if self.where else name
        return _Reader(self.raw.get(name), place, self.problems)

    def each(self, name: str, read: Callable[[_Reader], Any]) -> tuple[Any, ...]:
        value = self.raw.get(name)
        if not isinstance(value, list):
            self.problem(name, "must be a list")
            return ()
        place = f"{self.where}.{name}" if self.where else name
        return tuple(
            read(_Reader(one, f"{place}[{i}]", self.problems)) for i, one in enumerate(value)
        )

    def only(self, fields: Sequence[str]) -> None:
        for name in self.raw.keys() - {*fields, "schema"}:
            self.problem(name, "is not known")

    def _missing(self, name: str) -> str:
        if not isinstance(self.raw.get(name), str) or not self.raw[name]:
            self.problem(name, "is missing")
        return ""


def _lock(top: _Reader) -> PairingLock:
    top.only(PairingLock._fields)
    return PairingLock(
        pairing=top.text("pairing"),
        pairing_digest=top.sha256("pairing_digest"),
        model=top.text("model"),
        revision=top.maybe("revision"),
        base=_base(top.inner("base")),
        vllm=_vllm(top.inner("vllm")),
        mods=top.each("mods", _mod),
        templates=top.each("templates", _template),
        wheels=top.each("wheels", _wheel),
        command=top.text("command"),
        epoch=top.number("epoch"),
        tool=top.text("tool"),
        layer_format=top.number("layer_format"),
    )


def _base(at: _Reader) -> LockedBase:
    at.only(LockedBase._fields)
    return LockedBase(
        ref=at.text("ref"),
        config=at.sha256("config"),
        diff_ids=at.texts("diff_ids"),
        platform=at.text("platform"),
        manifest=at.maybe_sha256("manifest"),
    )


def _vllm(at: _Reader) -> LockedVllm:
    at.only(LockedVllm._fields)
    return LockedVllm(
        version=at.maybe("version"),
        site_root=at.text("site_root"),
        record=at.maybe_sha256("record"),
    )


def _mod(at: _Reader) -> LockedMod:
    at.only(LockedMod._fields)
    return LockedMod(
        name=at.text("name"),
        version=at.text("version"),
        digest=at.sha256("digest"),
        variant=at.maybe("variant"),
        verdict=at.text("verdict"),
        files=at.each("files", _change),
    )


def _change(at: _Reader) -> LockedChange:
    at.only(LockedChange._fields)
    return LockedChange(
        path=at.text("path"),
        before=at.maybe_sha256("before"),
        after=at.maybe_sha256("after"),
    )


def _template(at: _Reader) -> LockedTemplate:
    at.only(LockedTemplate._fields)
    return LockedTemplate(path=at.text("path"), sha256=at.sha256("sha256"))


def _wheel(at: _Reader) -> LockedWheel:
    at.only(LockedWheel._fields)
    return LockedWheel(
        name=at.text("name"),
        version=at.text("version"),
        filename=at.text("filename"),
        sha256=at.sha256("sha256"),
    )
