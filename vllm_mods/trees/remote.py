"""A wheel that stays on its server: its directory and single files are read by byte ranges."""

from __future__ import annotations

import hashlib
import io
import json
import zlib
from typing import TYPE_CHECKING, cast

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tree_names
from vllm_mods.trees.archive import ZipArchive

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from vllm_mods.base.cache import Cache
    from vllm_mods.trees.http import Http
    from vllm_mods.trees.index import ReleaseFile

# The directory of a vLLM wheel takes 230 KB (0.19) to 650 KB (0.33), the RECORD that usually lies
# just before it 90 KB more: the first is read in one go with its RECORD, the others in two.
_TAIL = 320 << 10
_OFFLINE_HINT = "run once without --offline"


class NoRangesError(Exception):
    """The server sends whole files only."""


class NotKeptError(NoRangesError):
    """No connection may be opened, and the cache has no part of the wheel."""


class RemoteZip:
    """The archive of a remote wheel.

    ``http`` is ``None`` when no connection may be opened: then only what the cache has is there.
    Construction raises ``NoRangesError`` if the file has to be had whole, and ``TreeError``.
    """

    def __init__(
        self,
        file: ReleaseFile,
        cache: Cache,
        http: Http | None,
        *,
        progress: Callable[[str, int, int | None], None] | None = None,
    ) -> None:
        self._file = file
        self._cache = cache
        # Two indexes may name the same file differently; its hash is the same.
        self._key = file.sha256 or file.url
        self._offline = http is None
        self._read_already: dict[str, bytes] = {}
        self._spans = _Spans(file, http, progress)
        kept = self._kept_directory()
        fresh = kept is None
        if kept is None:
            self._spans.open()
        else:
            self._spans.keep_tail(*kept)
        self._zip = ZipArchive(cast("BinaryIO", self._spans), label=file.filename)
        self.names = self._zip.names
        self._ends = self._file_ends()
        # The RECORD usually comes along with the directory. Else it is not worth a round trip: it
        # comes from the same place as the files, and these have their CRC-32.
        self._record = self._read_free("RECORD") if fresh else None
        if fresh:
            self._check_metadata()
            self._keep_directory()

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes, of the cache or by one range."""
        info = self._zip.infos.get(name)
        if info is None:
            return None
        if name not in self._read_already:
            data = self._from_cache(name, info.CRC)
            if data is None:
                if self._offline:
                    raise Unreachable(
                        f"{self._file.filename}: the cache does not have {name}", hint=_OFFLINE_HINT
                    )
                data = self._fetch(name)
                self._cache.record("files", self._key, name, data=self._cache.put(data).encode())
            self._read_already[name] = data
        return self._read_already[name]

    def digest(self, name: str) -> str | None:
        """Return the sha256 that the wheel's RECORD gives a file, where that is known already."""
        recorded = tree_names.recorded_hash(self._record, name) if self._record else None
        return tree_names.sha256_of(recorded) if recorded else None

    def _fetch(self, name: str) -> bytes:
        start = self._zip.infos[name].header_offset
        try:
            self._spans.load(start, self._ends[start])
            data = self._zip.read(name)
        except NoRangesError as error:
            raise TreeError(
                f"{self._file.filename}: the server did byte ranges, and does not any more",
                hint="try again",
            ) from error
        assert data is not None  # noqa: S101  (the caller has looked it up)
        recorded = tree_names.recorded_hash(self._record, name) if self._record else None
        if recorded and tree_names.hash_agrees(recorded, data) is False:
            raise TreeError(
                f"{self._file.filename}: {name} is not what the wheel's RECORD says",
                hint="the index or a proxy changed the wheel: try another index",
            )
        return data

    def _from_cache(self, name: str, crc: int) -> bytes | None:
        link = self._cache.lookup("files", self._key, name)
        data = self._cache.get(link.decode("ascii", "replace")) if link else None
        return data if data is not None and zlib.crc32(data) == crc else None

    def _file_ends(self) -> dict[int, int]:
        """Return where the data of the file at each offset ends: where the next one starts."""
        starts = sorted(info.header_offset for info in self._zip.infos.values())
        ends = [*starts[1:], self._zip.start_of_directory]
        return dict(zip(starts, ends, strict=False))  # an empty archive has an end and no start

    def _check_metadata(self) -> None:
        expected = self._file.metadata_sha256
        metadata = self._read_free("METADATA") if expected else None
        if metadata is not None and hashlib.sha256(metadata).hexdigest() != expected:
            raise TreeError(
                f"{self._file.filename}: its METADATA is not the one that the index describes",
                hint="the index or a proxy changed the wheel: try another index",
            )

    def _read_free(self, what: str) -> bytes | None:
        for name, info in self._zip.infos.items():
            folder, _, rest = name.partition("/")
            if rest == what and tree_names.dist_info(folder):
                start = info.header_offset
                return self._zip.read(name) if self._spans.has(start, self._ends[start]) else None
        return None

    def _kept_directory(self) -> tuple[int, bytes, int] | None:
        data = self._cache.lookup("directories", self._key)
        try:
            record = json_of(data) if data else {}
            blob = self._cache.get(record["blob"])
            if blob is None or int(record["start"]) + len(blob) != int(record["total"]):
                return None
            return int(record["start"]), blob, int(record["total"])
        except (ValueError, KeyError, TypeError):
            return None

    def _keep_directory(self) -> None:
        start = self._zip.start_of_directory
        blob = self._cache.put(self._spans.bytes_at(start, self._spans.total))
        record = {"total": self._spans.total, "start": start, "blob": blob}
        self._cache.record("directories", self._key, data=json.dumps(record).encode())


class _Spans(io.RawIOBase):
    """The remote file as a seekable one. What is not there yet is fetched as it is read."""

    def __init__(
        self,
        file: ReleaseFile,
        http: Http | None,
        progress: Callable[[str, int, int | None], None] | None,
    ) -> None:
        super().__init__()
        self.total = file.size or 0
        self._file = file
        self._http = http
        self._progress = progress
        # What is here: the end of the file, and the piece that was read last.
        self._tail_start = self.total
        self._tail = b""
        self._piece_start = 0
        self._piece = b""
        self._place = 0

    def open(self) -> None:
        """Learn the length and get the tail."""
        if self._http is None:
            raise NotKeptError
        if not self.total:
            # A range counted from the end would save this, but large servers answer it with 501.
            first = self._http.span(self._file.url, 0, 1)
            if first is None:
                raise NoRangesError
            self.total = first.total
        start = max(0, self.total - _TAIL)
        self.keep_tail(start, self._fetch(start, self.total), self.total)

    def load(self, start: int, end: int) -> None:
        """Fetch what is missing of a span. Raises ``NoRangesError``, ``TreeError``."""
        if self.has(start, end):
            return
        if end > self._tail_start:
            self._tail = self._fetch(start, self._tail_start) + self._tail
            self._tail_start = start
        else:
            self._piece_start, self._piece = start, self._fetch(start, end)

    def keep_tail(self, start: int, data: bytes, total: int) -> None:
        """Take the end of the file from somebody who has it."""
        self._tail_start, self._tail, self.total = start, data, total

    def has(self, start: int, end: int) -> bool:
        return start >= self._tail_start or (
            self._piece_start <= start and end <= self._piece_start + len(self._piece)
        )

    def bytes_at(self, start: int, end: int) -> bytes:
        self.load(start, end)
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._piece[start - self._piece_start : end - self._piece_start]

    def _fetch(self, start: int, end: int) -> bytes:
        if self._http is None:
            raise Unreachable(
                f"{self._file.filename}: the cache does not have this part of it",
                hint=_OFFLINE_HINT,
            )
        self._tell(0, end - start)
        span = self._http.span(self._file.url, start, end)
        if span is None:
            raise NoRangesError
        if span.total != self.total:
            raise TreeError(
                f"{self._file.filename}: it should have {self.total} bytes, and the server has "
                f"{span.total}",
                hint="the file on the server is not the one the index describes: try again",
            )
        self._tell(end - start, end - start)
        return span.data

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.total}[whence]
        if base + offset < 0:
            raise OSError(f"seek to {base + offset}")
        self._place = base + offset
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        end = self.total if size is None or size < 0 else min(self.total, self._place + size)
        data = self.bytes_at(self._place, end) if end > self._place else b""
        self._place += len(data)
        return data

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(f"reading {self._file.filename}", done, total)
