"""Answers kept on disk, in the folder that also keeps what was read from the network.

A release, or a commit, that is known by a hash has its answer under that hash: no byte of it need be
looked at. Any other tree is planned each time. Nothing kept is believed unless its own digest agrees, and a
cache that two processes write at once loses an answer at worst.
"""

import hashlib
import json
import sys
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from vllm_mods import __version__
from vllm_mods.base.cache import Cache
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Mod
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.schema import decode, encode
from vllm_mods.matrices.cell import Cell

_SCHEMA = 2
_KIND = "answers"
_KEPT_DAYS = 90


class AnswerStore(NamedTuple):
    """Answers in a cache folder; without one, every question finds nothing."""

    cache: Cache | None

    def known(self, key: str, identity: str | None) -> Cell | None:
        """Return the answer of a tree that is known by a hash; one without has no answer here."""
        if self.cache is None or identity is None:
            return None
        data = self.cache.lookup(_KIND, key, identity) or b""
        digest, packed = data[:32], data[32:]
        if _digest(key, identity, packed) != digest:
            return None  # cut short, or of another place
        try:
            return decode(Cell, json_of(zlib.decompress(packed)))
        except (zlib.error, ManifestError, ValueError):
            return None

    def remember(self, key: str, answer: Cell, tree: Tree) -> None:
        """Keep the answer of a tree under its hash; that of a tree without one is not kept."""
        if self.cache is not None and tree.identity is not None:
            packed = zlib.compress(json.dumps(encode(answer), separators=(",", ":")).encode(), 1)
            data = _digest(key, tree.identity, packed) + packed
            self.cache.record(_KIND, key, tree.identity, data=data)

    def sweep(self) -> None:
        """Drop answers that nobody has written for a long time: their mods have changed since."""
        if self.cache is not None:
            self.cache.sweep(_KIND, _KEPT_DAYS)


def _digest(key: str, identity: str, packed: bytes) -> bytes:
    return hashlib.sha256(f"{key}\0{identity}".encode() + packed).digest()


def key_of(mods: Sequence[Mod]) -> str:
    """Return what an answer is kept under: the mods, their locks, and the code that decides."""
    parts = [f"{mod.name} {mod.digest} {sha256(mod.lock)}" for mod in mods]
    return sha256("\n".join((str(_SCHEMA), _code_digest(), *parts)).encode())


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Return a digest of all that may decide a verdict beside mods and trees: this code and what it uses."""
    from importlib.metadata import version  # noqa: PLC0415  (all of email)

    parts = [f"{__version__} {sys.version_info[:3]}"]
    parts += [f"{name} {version(name)}" for name in ("libcst", "unidiff", "packaging")]
    package = Path(__file__).parents[1]
    modules = sorted(package.rglob("*.py"))
    parts += (f"{sha256(path.read_bytes())} {path.relative_to(package)}" for path in modules)
    return sha256("\n".join(parts).encode())
