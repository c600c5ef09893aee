"""A wheel that stays on its server: its directory and single files are read by byte ranges."""

import csv
import io
import itertools
import json
import time
import zlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, cast

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, TreeError, Unreachable
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tree_names
from vllm_mods.formats.schema import decode
from vllm_mods.trees.archive import ZipArchive
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.sources import FRESH_SECONDS
from vllm_mods.trees.spans import Spans

if TYPE_CHECKING:
    from vllm_mods.trees.http import Http

_CHANGED = "the index or a proxy changed the wheel: try another index"
# What is fetched for nothing rather than asked for in two, and the most to ask for at once.
_GAP, _PIECE = 256 << 10, 16 << 20


class Seen(NamedTuple):
    """What is known of a wheel's file: its length and state, its directory and its RECORD, by their blobs.

    ``whole`` says that all of the file was had once, and its sha256 was the one that the index states: then
    what is here is what the index means, and RECORD's hashes tell of every part whether it is, from whatever
    server it comes. Else it is what one server said at one URL, and good for what comes from there alone.
    """

    total: int
    etag: str
    start: int
    directory: str
    record: str
    whole: bool = False

    @property
    def key(self) -> str:
        """What parts that go with this are kept under."""
        text = f"{self.total} {self.etag} {self.start} {self.directory} {self.record}"
        return sha256(text.encode("utf-8", "surrogateescape"))


def seen_of(file: ReleaseFile, cache: Cache, http: "Http | None") -> Seen | None:
    """Return what is known of a wheel: of all of it, else what was seen at its URL and still is there.

    Whether it is, the server is asked, for one byte, ten minutes after it was asked last.
    """
    whole = _kept(cache, "whole", file.sha256) if file.sha256 else None
    if whole is not None:
        return whole[0]
    last = _kept(cache, "seen", file.url, file.sha256 or "")
    if last is None:
        return None
    seen, asked = last
    if http is None or 0 <= time.time() - asked < FRESH_SECONDS:
        return seen
    try:
        now = http.span(file.url, 0, 1)
    except Unreachable:
        return seen
    if now is None or not seen.etag or (now.total, now.etag) != (seen.total, seen.etag):
        return None
    _keep(cache, seen, "seen", file.url, file.sha256 or "")
    return seen


def pin(file: ReleaseFile, cache: Cache, opened: BinaryIO) -> None:
    """Keep what a file has, all of which is here and has the hash that the index states.

    Raises ``TreeError`` if its RECORD is not of it, or if what was read of it in parts was another file.
    """
    archive = ZipArchive(opened, label=file.filename)
    record = checked_record(archive, file.filename)
    start = opened.seek(archive.start_of_directory)
    directory = limits.bounded(opened, limits.ZIP_DIRECTORY, "the directory of a zip")
    kept = cache.put(directory), cache.put(record)
    seen = Seen(start + len(directory), "", start, *kept, whole=True)
    _keep(cache, seen, "whole", file.sha256 or "")
    in_parts = _kept(cache, "seen", file.url, file.sha256 or "")
    if in_parts is not None and in_parts[0].key != seen._replace(etag=in_parts[0].etag).key:
        why = f"{file.filename}: earlier, the server sent parts of another file; the complete download has the right sha256"
        hint = "run the command again: it compares each part with the complete file"
        raise TreeError(why, hint=hint)


def checked_record(archive: ZipArchive, label: str) -> bytes:
    """Return a wheel's RECORD if it lists the wheel's files, each with its hash and size. Raises ``TreeError``."""
    folders = [*tree_names.dist_infos({name.partition("/")[0] for name in archive.names})]
    record = f"{folders[0]}/RECORD" if len(folders) == 1 else ""
    data = archive.read(record)
    wrong = "it has no RECORD" if data is None else _fault(archive, record, data)
    if data is None or wrong is not None:
        raise TreeError(f"{label}: {wrong}", hint=_CHANGED)
    return data


def _fault(archive: ZipArchive, record: str, data: bytes) -> str | None:
    sizes = {name: info.file_size for name, info in archive.infos.items()}
    try:
        rows = {row[0]: (row[1], row[2]) for row in csv.reader(io.StringIO(data.decode()))}
    except (ValueError, IndexError, csv.Error) as error:
        return f"its RECORD cannot be read: {error}"
    own = {record, f"{record}.jws", f"{record}.p7s"}
    for name, (digest, size) in rows.items():
        stated = tree_names.sha256_of(digest) is not None and size == str(sizes.get(name))
        if name not in own and not stated:
            return f"its RECORD describes {name} wrongly"
    unstated = (name for name in sizes if name not in own and name not in rows)
    return next((f"its RECORD has no hash of {name}" for name in unstated), None)


def _kept(cache: Cache, kind: str, *key: str) -> tuple[Seen, float] | None:
    data = cache.lookup(kind, *key)
    try:
        record = json_of(data) if data else {}
        return decode(Seen, record, more=True), float(record["asked"])
    except (ManifestError, ValueError, KeyError, TypeError):
        return None  # Written by another version, or cut short.


def _keep(cache: Cache, seen: Seen, kind: str, *key: str) -> None:
    cache.record(kind, *key, data=json.dumps({**seen._asdict(), "asked": time.time()}).encode())


def _pieces(extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges to ask for, of sorted extents: those that lie near to each other are one."""
    pieces: list[tuple[int, int]] = []
    for start, end in extents:
        first, last = pieces[-1] if pieces else (start, start)
        if pieces and start - last <= _GAP and end - first <= _PIECE:
            pieces[-1] = (first, end)
        else:
            pieces.append((start, end))
    return pieces


class RemoteZip:
    """The archive of a remote wheel.

    ``http`` is ``None`` when no connection may be opened: then only what the cache has is there. Construction raises
    ``NoRangesError`` if the file has to be had whole, and ``TreeError``. ``seen`` says what it was taken for.
    """

    def __init__(
        self,
        file: ReleaseFile,
        cache: Cache,
        http: "Http | None",
        *,
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        self._file = file
        self._cache = cache
        self._files: dict[str, bytes] = {}
        self._spans = Spans(file, http, progress)
        known = self._known(seen_of(file, cache, http))
        if known is None:
            self._spans.open()
        self._zip = ZipArchive(cast("BinaryIO", self._spans), label=file.filename)
        self.names = self._zip.names
        starts = [info.header_offset for info in self._zip.infos.values()]
        places = sorted((*starts, self._zip.start_of_directory))
        self._ends = dict(itertools.pairwise(places))  # a file ends where the next one starts
        if known is not None:
            self.seen, self._record = known
        else:
            for name in self.names:  # RECORD usually is the last file: it comes with all behind it
                if name.endswith(".dist-info/RECORD"):
                    self._spans.load(*self._extent(name))
            self._record = checked_record(self._zip, file.filename)
            self._check_metadata()
            start, total = self._zip.start_of_directory, self._spans.total
            kept = cache.put(self._spans.bytes_at(start, total)), cache.put(self._record)
            self.seen = Seen(total, self._spans.etag, start, *kept)
            _keep(cache, self.seen, "seen", file.url, file.sha256 or "")

    def _known(self, seen: Seen | None) -> tuple[Seen, bytes] | None:
        """Take what was seen as the end of the file, if the cache has it all."""
        if seen is None:
            return None
        directory, record = self._cache.get(seen.directory), self._cache.get(seen.record)
        if directory is None or record is None or seen.start + len(directory) != seen.total:
            return None
        self._spans.keep_tail(seen.start, directory, seen.total, seen.etag)
        return seen, record

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, of the cache or by one range."""
        if name in self.names and not self._recall(name):
            self._files[name] = self._fetch(name)
        return self._files.get(name)

    def load(self, names: Collection[str]) -> None:
        """Have some files here: what the cache lacks of them comes by a few ranges, with what lies between."""
        wanted = self.names.intersection(names)
        missing = {self._extent(name): name for name in wanted if not self._recall(name)}
        for start, end in _pieces(sorted(missing)):
            self._spans.load(start, end)
            for extent, name in missing.items():
                if start <= extent[0] < end:
                    self.read(name)

    def _fetch(self, name: str) -> bytes:
        self._spans.load(*self._extent(name))
        data, digest = self._zip.read(name) or b"", self._digest(name)
        if data != self._record if digest is None else sha256(data) != digest:
            raise TreeError(f"{self._file.filename}: {name} does not match RECORD", hint=_CHANGED)
        self._cache.put(data)
        return data

    def _digest(self, name: str) -> str | None:
        """Return the sha256 that the wheel's RECORD gives a file: none to itself."""
        recorded = tree_names.recorded_hash(self._record, name)
        return tree_names.sha256_of(recorded) if recorded else None

    def _recall(self, name: str) -> bool:
        """Have a file that was read before, be it into the cache; tell whether it was."""
        if name not in self._files:
            digest, stated = self._digest(name), self._zip.infos[name]
            data = self._record if digest is None else self._cache.get(digest)
            # of another release perhaps: RECORD has said that it is this one, and the directory has to agree
            if data is not None and (len(data), zlib.crc32(data)) == (stated.file_size, stated.CRC):
                self._files[name] = data
        return name in self._files

    def _extent(self, name: str) -> tuple[int, int]:
        """Return where a file's header starts, and where its data ends."""
        start = self._zip.infos[name].header_offset
        return start, self._ends[start]

    def _check_metadata(self) -> None:
        """Hold the METADATA that RECORD states to the one that the index does, if it does."""
        (folder,) = tree_names.dist_infos({name.partition("/")[0] for name in self.names})
        stated = self._file.metadata_sha256
        if stated and self._digest(f"{folder}/METADATA") != stated:
            why = f"{self._file.filename}: METADATA differs from the index's"
            raise TreeError(why, hint=_CHANGED)
