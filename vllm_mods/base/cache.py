"""What was read from the network, kept on disk: blobs under their sha256, and links to them.

Every file is written beside its place and moved there in one step, so that several processes can fill one cache; a blob
is checked against its name when it is read. A cache that cannot be written is said once and then done without.
"""

import contextlib
import hashlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

_DAY = 86400.0
_DIGEST = re.compile(r"[0-9a-f]{64}\Z", re.ASCII)


def cache_folder(environ: Mapping[str, str]) -> str:
    """Return ``$VLLM_MODS_CACHE``, else the XDG place, else ``~/.cache/vllm-mods``."""
    own = environ.get("VLLM_MODS_CACHE")
    if own:
        return os.path.abspath(own)
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):  # The XDG specification says to ignore a relative one.
        base = os.path.join(environ.get("HOME") or os.path.expanduser("~"), ".cache")
    return os.path.abspath(os.path.join(base, "vllm-mods"))


class Cache:
    """A cache in ``folder``; ``note`` is told once if it cannot be written."""

    def __init__(self, folder: str, *, note: Callable[[str], None] | None = None) -> None:
        self.folder = folder
        self._note = note

    def get(self, digest: str) -> bytes | None:
        """Return the blob with this sha256; one whose bytes do not agree is dropped."""
        file = self.get_file(digest)
        if file is None:
            return None
        with file:
            return file.read()

    def put(self, data: bytes) -> str:
        """Keep a blob and return its sha256."""
        digest = hashlib.sha256(data).hexdigest()
        if self.get(digest) is None:
            self._write(self._blob(digest), data)
        return digest

    def get_file(self, digest: str) -> BinaryIO | None:
        """Open the blob with this sha256 after reading all of it once; as ``get`` otherwise."""
        if not _DIGEST.match(digest):
            return None  # A record with rubbish in it must not lead to any other file.
        path = self._blob(digest)
        with contextlib.suppress(OSError):
            file = open(path, "rb")  # noqa: SIM115  (handed out)
            if file_digest(file) == digest:
                return file
            file.close()
            os.unlink(path)
        return None

    @contextlib.contextmanager
    def scratch(self) -> Iterator[BinaryIO]:
        """Give a temporary file on the cache's own disk, to be passed to ``keep_file``."""
        folder = os.path.join(self.folder, "tmp")
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            _sweep(folder)
            file = tempfile.NamedTemporaryFile(dir=folder, delete=False)  # noqa: SIM115
        except OSError as error:
            self._complain(error)
            file = tempfile.NamedTemporaryFile(delete=False)  # noqa: SIM115
        try:
            yield file  # type: ignore[misc]  # a wrapper with the methods of BinaryIO
        except BaseException:
            file.close()
            raise
        finally:
            # Open descriptors stay good: without a cache this is the only copy.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)

    def keep_file(self, file: BinaryIO, digest: str) -> None:
        """Move a ``scratch`` file, whose sha256 the caller has checked, into the cache."""
        file.flush()
        path = self._blob(digest)
        if not file.name.startswith(os.path.join(self.folder, "tmp") + os.sep):
            return
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            os.replace(file.name, path)
        except OSError as error:
            self._complain(error)

    def lookup(self, kind: str, *key: str) -> bytes | None:
        """Return the small record kept under ``kind`` and ``key``."""
        with contextlib.suppress(OSError), open(self._record(kind, key), "rb") as file:
            return file.read()
        return None  # A cache that cannot be read has nothing.

    def record(self, kind: str, *key: str, data: bytes) -> None:
        """Keep a small record under ``kind`` and ``key``, in place of an older one."""
        self._write(self._record(kind, key), data)

    def sweep(self, kind: str, days: int) -> None:
        """Remove the records under ``kind`` that were written more than ``days`` ago, once a day."""
        folder = os.path.join(self.folder, kind)
        mark = os.path.join(folder, ".swept")
        try:
            if not os.path.isdir(folder) or (
                os.path.exists(mark) and time.time() - os.stat(mark).st_mtime < _DAY
            ):
                return
            with open(mark, "wb"):
                os.utime(mark)
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    _sweep(entry.path, days)
        except OSError as error:
            self._complain(error)

    def _blob(self, digest: str) -> str:
        return os.path.join(self.folder, "blobs", digest[:2], digest)

    def _record(self, kind: str, key: tuple[str, ...]) -> str:
        name = hashlib.sha256("\0".join(key).encode("utf-8", "surrogateescape")).hexdigest()
        return os.path.join(self.folder, kind, name[:2], name)

    def _write(self, path: str, data: bytes) -> None:
        try:
            folder = os.path.dirname(path)
            os.makedirs(folder, mode=0o700, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=folder, prefix=".")
            try:
                with open(descriptor, "wb") as file:
                    file.write(data)
                os.replace(name, path)
            except BaseException:
                os.unlink(name)
                raise
        except OSError as error:
            self._complain(error)

    def _complain(self, error: OSError) -> None:
        if self._note is not None:
            note, self._note = self._note, None
            note(f"working without the cache {self.folder}: {error.strerror}")


def _sweep(folder: str, days: int = 1) -> None:
    """Remove files older than that, such as leftovers of killed downloads."""
    oldest = time.time() - days * _DAY
    for entry in os.scandir(folder):
        with contextlib.suppress(FileNotFoundError):  # Others sweep too.
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)


def file_digest(file: BinaryIO) -> str:
    """Return the sha256 of a file from its start, and leave it at its start."""
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    file.seek(0)
    return digest
