"""Answers kept on disk, in the folder that also keeps what was read from the network.

Two ways lead to one. A release, or a commit, that is known by a hash has its answer under that hash:
no byte of it need be looked at. Any other tree is held against what earlier plans of the same mods
asked of other trees (``questions``). Nothing kept is believed unless its own digest agrees, and a
cache that two processes write at once loses an answer at worst.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from vllm_mods import __version__
from vllm_mods.base.cache import Cache
from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Mod
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import json_of
from vllm_mods.matrices import questions
from vllm_mods.matrices.answer import Said, from_data, to_data
from vllm_mods.matrices.questions import Question

_SCHEMA = 1
# Traces kept per mod: those of the trees looked at last.
_TRACES = 32
_KEPT_DAYS = 90
# Folders of the package of which nothing decides a verdict; a test holds that nothing here uses them.
BESIDE = frozenset({"cli", "report", "serving", "_data", "__pycache__"})


class AnswerStore(NamedTuple):
    """Answers in a cache folder; without one, every question finds nothing."""

    cache: Cache | None

    def known(self, key: str, identity: str) -> tuple[str | None, Said] | None:
        """Return the version and the answer of a tree that is known by a hash."""
        entry = self._take("answers", key, identity)
        try:
            return None if entry is None else (entry["version"], from_data(entry["answer"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def alike(self, key: str, tree: Tree, ranges: str) -> Said | None:
        """Return the answer of a tree of which nothing that was asked differs from this one.

        ``ranges`` says which variants are meant for the version; see ``put``.
        """
        accepted = (ranges, f"version {tree.version}")
        for entry in self._traces(key, tree):
            try:
                if entry["version"] in accepted and questions.holds(entry["asked"], tree):
                    return from_data(entry["answer"])
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
        return None

    def put(
        self,
        key: str,
        answer: Said,
        tree: Tree,
        *,
        identity: str | None,
        asked: tuple[Question, ...],
        ranges: str | None,
    ) -> None:
        """Keep an answer. With ``ranges`` it holds for every version that gives the same ranges."""
        self.remember(key, answer, tree.version, identity)
        entry = {
            "version": f"version {tree.version}" if ranges is None else ranges,
            "asked": questions.pack(asked),
            "answer": to_data(answer),
        }
        if self.cache is not None and asked:
            traces = [one for one in self._traces(key, tree) if one != entry]
            self._keep("traces", key, _kind(tree), data={"of": [entry, *traces[: _TRACES - 1]]})

    def remember(self, key: str, answer: Said, version: str | None, identity: str | None) -> None:
        """Keep the answer of a tree under its hash; a tree without one has no such answer."""
        if identity is not None:
            data = {"version": version, "answer": to_data(answer)}
            self._keep("answers", key, identity, data=data)

    def sweep(self) -> None:
        """Drop answers that nobody has written for a long time: their mods have changed since."""
        if self.cache is not None:
            for kind in ("answers", "traces"):
                self.cache.sweep(kind, _KEPT_DAYS)

    def _traces(self, key: str, tree: Tree) -> list[dict[str, Any]]:
        entry = self._take("traces", key, _kind(tree)) or {}
        traces = entry.get("of")
        return traces if isinstance(traces, list) else []

    def _take(self, kind: str, *key: str) -> dict[str, Any] | None:
        data = self.cache.lookup(kind, *key) if self.cache is not None else None
        if data is None:
            return None
        digest, packed = data[:32], data[32:]
        if hashlib.sha256("\0".join(key).encode() + packed).digest() != digest:
            return None  # cut short, or of another place
        try:
            entry = json_of(zlib.decompress(packed))
        except (zlib.error, ValueError):
            return None
        return entry if isinstance(entry, dict) else None

    def _keep(self, kind: str, *key: str, data: dict[str, Any]) -> None:
        if self.cache is not None:
            packed = zlib.compress(json.dumps(data, separators=(",", ":")).encode(), 1)
            digest = hashlib.sha256("\0".join(key).encode() + packed).digest()
            self.cache.record(kind, *key, data=digest + packed)


def key_of(mods: Sequence[Mod]) -> str:
    """Return what an answer is kept under: the mods, their locks, and the code that decides."""
    parts = [f"{mod.name} {mod.digest} {sha256(mod.lock)}" for mod in mods]
    return sha256("\n".join((str(_SCHEMA), _code_digest(), *parts)).encode())


def _kind(tree: Tree) -> str:
    return f"{tree.remote} {tree.pristine}"


@lru_cache(maxsize=1)
def _code_digest() -> str:
    """Return a digest of all that decides a verdict beside mods and trees: this code and what it uses."""
    from importlib.metadata import version  # noqa: PLC0415  (all of email)

    parts = [f"{__version__} {sys.version_info[:3]}"]
    parts += [f"{name} {version(name)}" for name in ("libcst", "unidiff", "packaging")]
    parts += sources(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return sha256("\n".join(parts).encode())


def sources(package: str) -> Iterator[str]:
    """Yield, of each module of a package that may decide a verdict, the digest and the name."""
    for path in sorted(Path(package).rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] not in BESIDE:
            yield f"{sha256(path.read_bytes())} {name}"
