"""The layers of an image: what each holds and takes away, learnt by reading its tar once.

A packed layer can't be read from the middle. So that nobody has to read it twice, the list of what
is in it and the contents of its Python files are kept, in a cache, under the layer's own digest.
"""

import contextlib
import hashlib
import io
import json
import posixpath
import tarfile
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, NamedTuple, cast

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tars
from vllm_mods.images import streams
from vllm_mods.images.model import DIR, FILE, Base, Blob, ImageEntry, with_ancestors

Progress = Callable[[str, int, int | None], None]

_FORMAT = "3"
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_LARGEST_KEPT, _MOST_KEPT = 4 << 20, 1 << 30
_KEPT = (".py", ".pyi", ".pth", ".jinja", ".json", ".patch", ".toml", ".lock", ".cfg")
_ROOT = ImageEntry(path="", kind=DIR, mode=0o755, uid=0, gid=0, mtime=0)
_AGAIN = "the copy is damaged: get the image again"


class Layer(NamedTuple):
    """A layer's entries by path; ``gone`` are whiteouts, ``opaque`` folders that start afresh.

    ``names`` are second names of files, with the first; ``kept`` says where in ``pack`` the
    contents of a file are, packed with zlib. ``diff_id`` is the digest of the tar.
    Of a path that comes twice, the last counts, as in an engine.
    """

    entries: dict[str, ImageEntry]
    gone: frozenset[str]
    opaque: frozenset[str]
    names: dict[str, str]
    kept: dict[str, tuple[int, int]]
    pack: bytes
    diff_id: str


def scan(source: io.IOBase, what: str) -> Layer:
    """Read a layer's tar, unpacking it. Raises ``TreeError`` for a broken one."""
    entries: dict[str, ImageEntry] = {}
    gone, opaque = set(), set()
    names: dict[str, str] = {}
    contents: dict[str, tuple[int, int]] = {}
    pack = bytearray()
    hashed = hashlib.sha256()
    with streams.reading(what, _AGAIN):
        file = streams.Forward(streams.unpacked(source), hashed)
        for member, path, archive in _members(file, what):
            folder, name = posixpath.split(path)
            if name == _OPAQUE:
                opaque.add(folder)
            elif name.startswith(_WHITEOUT):
                gone.add(posixpath.join(folder, name.removeprefix(_WHITEOUT)))
            else:
                is_again = path in entries and member.isreg()  # `extract` would give the first
                names.pop(path, None)
                contents.pop(path, None)
                first = _inside(member.linkname, what) if member.islnk() else ""
                entries[path] = streams.entry(member, path, entries.get(first) if first else None)
                if first:
                    names[path] = names.get(first, first)
                    if first in contents:
                        contents[path] = contents[first]
                elif (is_again or _is_kept(path, member)) and len(pack) < _MOST_KEPT:
                    packed = zlib.compress(streams.content(archive, member), 1)
                    contents[path] = len(pack), len(packed)
                    pack += packed
                if len(entries) > limits.LAYER_FILES:
                    why = f"{what}: more than {limits.LAYER_FILES} in one layer"
                    raise TreeError(why, hint=_AGAIN)
        file.finish()
    diff_id = f"sha256:{hashed.hexdigest()}"
    return Layer(entries, frozenset(gone), frozenset(opaque), names, contents, bytes(pack), diff_id)


def extract(source: io.IOBase, path: str, what: str) -> bytes:
    """Return one file of a layer that ``scan`` has found there, reading as far as that file."""
    with streams.reading(what, _AGAIN):
        for member, place, archive in _members(streams.Forward(streams.unpacked(source)), what):
            if place == path and member.isreg():
                return streams.content(archive, member)
    raise TreeError(f"{what}: {path} is no longer in this layer", hint=_AGAIN)


def load(cache: Cache, digest: str) -> Layer | None:
    """Return what is kept of a layer, ``None`` if it is not there whole."""
    try:
        raw = json_of(cache.lookup("layers", _FORMAT, digest) or b"null")
        pack = cache.get(raw["pack"])
        if pack is None:
            return None
        return Layer(
            entries={row[0]: ImageEntry(*row) for row in raw["entries"]},
            gone=frozenset(raw["gone"]),
            opaque=frozenset(raw["opaque"]),
            names=raw["names"],
            kept={path: (start, size) for path, (start, size) in raw["kept"].items()},
            pack=pack,
            diff_id=raw["diff_id"],
        )
    except (ValueError, KeyError, TypeError):
        return None  # Of another version, or cut short.


def keep(cache: Cache, digest: str, layer: Layer) -> None:
    """Keep what was learnt of a layer."""
    entries = list(layer.entries.values())
    lists = {"entries": entries, "gone": sorted(layer.gone), "opaque": sorted(layer.opaque)}
    record = layer._asdict() | lists | {"pack": cache.put(layer.pack)}
    cache.record("layers", _FORMAT, digest, data=json.dumps(record).encode())


def _members(
    file: streams.Forward, what: str
) -> Iterator[tuple[tarfile.TarInfo, str, tarfile.TarFile]]:
    with tarfile.open(fileobj=cast("BinaryIO", file), mode="r|", tarinfo=tars.Info) as archive:
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]  # it would remember them all
            yield member, _inside(member.name, what), archive


def _inside(name: str, what: str) -> str:
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise TreeError(f"{what}: {name!r} points outside the image", hint="do not use this image")
    return "/".join(parts)


def _is_kept(path: str, member: tarfile.TarInfo) -> bool:
    if not member.isreg() or member.size > _LARGEST_KEPT:
        return False
    folders = path.split("/")[:-1]
    inside = any(one.endswith(("-packages", ".dist-info")) for one in folders)
    inside = inside or not {"vllm", ".vllm-mods"}.isdisjoint(folders)
    return inside and (path.endswith(_KEPT) or ".dist-info/" in path or "/.vllm-mods/" in path)


class LayeredImage(Base):
    """An image whose layers can be opened. Each is read when it is needed, from the top down.

    That a path is absent is known only when all of them were read.
    """

    def __init__(
        self, reference: str, blobs: tuple[Blob, ...], cache: Cache, progress: Progress | None
    ) -> None:
        self.reference = reference
        self.blobs = blobs
        self._cache = cache
        self._progress = progress or (lambda _phase, _done, _size: None)
        self._layers: dict[int, Layer] = {}
        self._scanned: set[int] = set()

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path."""
        located = self._find(path)
        if located is None:
            return _ROOT if not path else None  # A layer need not mention the root.
        return located[1]

    def read(self, path: str, below: int | None = None) -> bytes | None:
        """Return the bytes of a file, as it is in the layers ``below`` a number, without one in all."""
        located = self._find(path, below)
        if located is None or located[1].kind != FILE:
            return None
        number, _ = located
        layer = self.layer(number)
        first = layer.names.get(path, path)
        if first not in layer.entries:  # nor in the layers above: they may have changed it since
            return self.read(first, number)
        if path in layer.kept:
            start, size = layer.kept[path]
            return zlib.decompress(layer.pack[start : start + size])
        with self._open(number) as (checked, what):
            return extract(checked, first, what)

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder."""
        seen: set[str] = set()
        covered: set[str] = set()
        top = f"{under}/" if under else ""
        for number in reversed(range(len(self.blobs))):
            layer = self.layer(number)
            covered_here = set(layer.gone) | set(layer.opaque)
            for path, entry in layer.entries.items():
                if entry.kind != DIR:
                    covered_here.add(path)
                if path in seen or not path.startswith(top) or path == under or not path:
                    continue
                if covered.isdisjoint(with_ancestors(path)):
                    seen.add(path)
                    yield entry
            covered |= covered_here
            if not covered.isdisjoint(["", *with_ancestors(under)]):
                return  # Nothing further down can show through.

    def _find(self, path: str, below: int | None = None) -> tuple[int, ImageEntry] | None:
        parents = ["", *with_ancestors(path)[:-1]]  # the root may be opaque, too
        for number in reversed(range(len(self.blobs))[:below]):
            layer = self.layer(number)
            is_below = any(p in layer.entries and layer.entries[p].kind != DIR for p in parents)
            if path in layer.entries:
                return None if is_below else (number, layer.entries[path])
            is_gone = path in layer.gone or not layer.gone.isdisjoint(parents)
            if is_below or is_gone or not layer.opaque.isdisjoint(parents):
                return None
        return None

    def layer(self, number: int, *, anew: bool = False) -> Layer:
        """Return a layer, counted from the lowest; if ``anew``, a file of a layout is read whatever the cache knows of it."""
        if anew and self.where == "oci-layout" and number not in self._scanned:
            with self._open(number) as (checked, _):
                while checked.read(streams.CHUNK):
                    pass
        if number not in self._layers:
            blob = self.blobs[number]
            layer = load(self._cache, blob.digest)
            if layer is None:
                with self._open(number) as (checked, what):
                    layer = scan(checked, what)
                keep(self._cache, blob.digest, layer)
                self._scanned.add(number)
            if layer.diff_id != blob.diff_id:
                why = f"{self._name(blob)}: it unpacks to {layer.diff_id}, but the configuration says {blob.diff_id}: the layer was replaced"
                raise TreeError(why, hint="do not use this image: get it again from its source")
            self._layers[number] = layer
        return self._layers[number]

    @contextlib.contextmanager
    def _open(self, number: int) -> Iterator[tuple[streams.CheckedStream, str]]:
        """Open a layer to be read forwards, and say how messages name it."""
        blob = self.blobs[number]
        what = self._name(blob)

        def tell(done: int) -> None:
            self._progress(f"reading layer {number + 1} of {len(self.blobs)}", done, blob.size)

        with blob.open() as file:
            yield streams.CheckedStream(file, blob.digest, blob.size, what, tell), what

    def _name(self, blob: Blob) -> str:
        return f"{self.reference}: layer {blob.digest[:19]}"
