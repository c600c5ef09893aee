"""A file on a server as a seekable one: what is read of it is fetched by byte ranges."""

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.trees.index import ReleaseFile

if TYPE_CHECKING:
    from vllm_mods.trees.http import Http

# The directory of a vLLM wheel takes 230 KB (0.19) to 650 KB (0.33), the RECORD that usually lies
# just before it 90 KB more: the first is read in one go with its RECORD, the others in two.
_TAIL = 320 << 10
OFFLINE = "run once without --offline"


class NoRangesError(Exception):
    """The server sends whole files only, or none may be asked and no part of the wheel is kept."""


class Spans(io.RawIOBase):
    """The remote file as a seekable one. What is not there yet is fetched as it is read."""

    def __init__(
        self,
        file: ReleaseFile,
        http: "Http | None",
        progress: Callable[[str, int, int | None], None] | None,
    ) -> None:
        super().__init__()
        self.total = file.size or 0
        self.etag = ""
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
            raise NoRangesError
        if not self.total:
            # A range counted from the end would save this, but large servers answer it with 501.
            first = self._http.span(self._file.url, 0, 1)
            if first is None:
                raise NoRangesError
            self.total, self.etag = first.total, first.etag
        start = max(0, self.total - _TAIL)
        self._tail_start, self._tail = start, self._fetch(start, self.total)

    def load(self, start: int, end: int) -> None:
        """Fetch what is missing of a span. Raises ``NoRangesError``, ``TreeError``."""
        if self.has(start, end):
            return
        if end > self._tail_start:
            self._tail = self._fetch(start, self._tail_start) + self._tail
            self._tail_start = start
        else:
            self._piece_start, self._piece = start, self._fetch(start, end)

    def keep_tail(self, start: int, data: bytes, total: int, etag: str) -> None:
        """Take the end of the file from somebody who has it."""
        self._tail_start, self._tail, self.total, self.etag = start, data, total, etag

    def has(self, start: int, end: int) -> bool:
        """Tell whether a span is here."""
        return start >= self._tail_start or (
            self._piece_start <= start and end <= self._piece_start + len(self._piece)
        )

    def bytes_at(self, start: int, end: int) -> bytes:
        """Return a span, fetched if it is not here."""
        self.load(start, end)
        if start >= self._tail_start:
            return self._tail[start - self._tail_start : end - self._tail_start]
        return self._piece[start - self._piece_start : end - self._piece_start]

    def _fetch(self, start: int, end: int) -> bytes:
        if self._http is None:
            why = f"{self._file.filename}: a part of the file is not in the cache"
            raise Unreachable(why, hint=OFFLINE)
        self._tell(0, end - start)
        span = self._http.span(self._file.url, start, end)
        if span is None and self._tail:
            why = f"{self._file.filename}: the server stopped supporting byte ranges"
            raise TreeError(why, hint="try again")
        if span is None:
            raise NoRangesError
        if span.total != self.total:
            why = f"{self._file.filename}: it should have {self.total} bytes, but the server has {span.total}"
            hint = "the file on the server differs from the index's description: try again"
            raise TreeError(why, hint=hint)
        if span.etag and self.etag and span.etag != self.etag:
            why = f"{self._file.filename}: it was changed on the server during the download"
            raise TreeError(why, hint="run the command again")
        self.etag = self.etag or span.etag
        self._tell(end - start, end - start)
        return span.data

    def seekable(self) -> bool:
        """Say so, as ``zipfile`` asks."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a place of the file; nothing is fetched."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self.total}[whence]
        if base + offset < 0:
            raise OSError(f"seek to {base + offset}")
        self._place = base + offset
        return self._place

    def read(self, size: int | None = -1) -> bytes:
        """Read on from the place, to the end of the file at most."""
        end = self.total if size is None or size < 0 else min(self.total, self._place + size)
        data = self.bytes_at(self._place, end) if end > self._place else b""
        self._place += len(data)
        return data

    def _tell(self, done: int, total: int) -> None:
        if self._progress is not None:
            self._progress(f"reading {self._file.filename}", done, total)
