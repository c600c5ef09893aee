"""What was read out of a base once, kept under its digest: an engine takes 40 ms for each look.

An image is what its configuration's digest says and never changes, so what was found in it holds for
good. Only an engine's images are remembered so; of layers that are read, an index is kept elsewhere.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_mods.base.cache import Cache
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.schema import decode
from vllm_mods.images.model import Base, ImageEntry

_KIND = "image-files"
_FORMAT = 2
_LARGEST_FILE = 4 << 20


class _Memory(NamedTuple):
    """What is known of an image: entries but for their path, contents by their sha256, what a folder has in it."""

    format: int = _FORMAT
    entries: Mapping[str, tuple[str, int, int, int, int, str, int] | None] = {}
    files: Mapping[str, str | None] = {}
    folders: Mapping[str, tuple[str, ...]] = {}


class Remembered(Base):
    """An image in front of another one, which it asks once for everything."""

    def __init__(self, base: Base, cache: Cache) -> None:
        self.reference, self.where = base.reference, base.where
        self.config, self.config_digest = base.config, base.config_digest
        self.manifest, self.manifest_digest = base.manifest, base.manifest_digest
        self.diff_ids, self.layers = base.diff_ids, base.layers
        self._base = base
        self._cache = cache
        self._learnt = False
        kept = self._load()
        self._entries = dict(kept.entries)
        self._files = dict(kept.files)
        self._folders = dict(kept.folders)

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path."""
        if path not in self._entries:
            self._learn(path, self._base.entry(path))
        found = self._entries[path]
        return None if found is None else ImageEntry(path, *found)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        if path in self._files:
            kept = self._files[path]
            data = None if kept is None else self._cache.get(kept)
            if kept is None or data is not None:
                return data
        data = self._base.read(path)
        if data is None or len(data) <= _LARGEST_FILE:
            self._files[path] = None if data is None else self._cache.put(data)
            self._learnt = True
        return data

    def paths(self, under: str) -> Iterable[ImageEntry]:
        """Return everything below a folder."""
        if under not in self._folders:
            found = tuple(self._base.paths(under))
            for entry in found:
                self._learn(entry.path, entry)
            self._folders[under] = tuple(entry.path for entry in found)
        entries = (self.entry(path) for path in self._folders[under])
        return tuple(entry for entry in entries if entry is not None)

    def close(self) -> None:
        """Keep what was learnt, and close the image behind it."""
        self._base.close()
        if self._learnt:
            kept = _Memory(_FORMAT, self._entries, self._files, self._folders)
            data = json.dumps(kept._asdict(), sort_keys=True).encode()
            digest = self._cache.put(zlib.compress(data, 1))
            self._cache.record(_KIND, self.config_digest, data=digest.encode())
            self._learnt = False

    def _learn(self, path: str, entry: ImageEntry | None) -> None:
        self._entries[path] = None if entry is None else entry[1:]
        self._learnt = True

    def _load(self) -> _Memory:
        link = self._cache.lookup(_KIND, self.config_digest)
        packed = self._cache.get(link.decode("ascii", "replace")) if link is not None else None
        if packed is not None:
            try:
                kept = decode(_Memory, json_of(zlib.decompress(packed)), whole=True)
            except (zlib.error, ValueError):
                return _Memory()  # of another version, or not what this wrote
            if kept.format == _FORMAT:
                return kept
        return _Memory()
