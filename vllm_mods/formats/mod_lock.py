"""mod.lock: what a mod does to each release, by hash. Pure: bytes ↔ ``Lock``.

Written by ``vllm-mods matrix --update-lock`` from a full plan and by nothing else. A tree whose files have the hashes
recorded here needs no parsing: the places of the hunks are known, and so is the hash of the result.
"""

import json
from functools import lru_cache
from typing import Annotated, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Verdict
from vllm_mods.formats.receipt import FileHash
from vllm_mods.formats.schema import decode, encode, object_of

SCHEMA = 1
_VERDICTS = frozenset(Verdict)
_Verdict = Annotated[str, lambda word: None if word in _VERDICTS else "is not a verdict"]


class LockedHunk(NamedTuple):
    """Where a hunk lands (1-based line in its stage of the file) and the scopes around it."""

    patch: str
    path: str
    number: int
    line: int
    scope: str


class LockedTree(NamedTuple):
    """One state of the touched files, and the releases (version labels) that have it.

    ``beside`` are the files that the fit rested on, ``witness`` the digests of their bytes (``vouch.witness``) with
    which it found nothing wrong; ``proof`` is ``types``, ``""`` where no Python changes.
    """

    vllm: tuple[str, ...]
    in_range: bool
    variant: str
    verdict: _Verdict
    files: tuple[FileHash, ...]
    hunks: tuple[LockedHunk, ...]
    beside: tuple[str, ...]
    witness: tuple[str, ...]
    proof: str = ""


class WrittenFile(NamedTuple):
    """One file in the tree that a patch was written for: git's blob ids, in full, before and after the patch."""

    patch: str
    path: str
    before: str
    after: str


class WrittenHunk(NamedTuple):
    """What encloses each change of a hunk in the tree it was written for: ``Loader._load_w2.<if x is None>``, ``""`` for the module."""

    patch: str
    path: str
    number: int
    chains: tuple[str, ...]


class WrittenFor(NamedTuple):
    """The tree that a variant's patches were written for; ``base`` is its version, or the name it was given.

    ``patches`` is the digest of these patches; the record does not hold for others.
    """

    variant: str
    base: str
    patches: str
    files: tuple[WrittenFile, ...]
    hunks: tuple[WrittenHunk, ...]


class Lock(NamedTuple):
    """The whole file. ``digest`` is that of the mod it was made from: any other makes it stale.

    ``others`` are releases that need no change, each with its verdict; ``written`` is what each variant was written for,
    where that is known.
    """

    mod: str
    version: str
    digest: str
    trees: tuple[LockedTree, ...]
    others: tuple[tuple[str, str], ...] = ()
    written: tuple[WrittenFor, ...] = ()


@lru_cache(maxsize=128)
def parse(data: bytes, where: str) -> Lock:
    """Read a lock file, once. Raises ``ManifestError`` if it is not one: it is never edited by hand."""
    hint = "the file is generated: `vllm-mods matrix MOD --update-lock` writes it again"
    raw = object_of(data, where, hint)
    if (schema := raw.get("schema")) != SCHEMA:
        why = f"schema: this version of vllm-mods reads schema {SCHEMA}, not {schema!r}"
        raise ManifestError(where, (why,), hint=hint)
    return decode(Lock, raw, where, hint=hint, more=True)


def dump(lock: Lock) -> bytes:
    """Write a lock file, the same bytes for the same content."""
    raw = {"schema": SCHEMA, **encode(lock)}
    # What most mods have none of is left out where it says nothing.
    for tree in raw["trees"]:
        if not tree["proof"]:
            del tree["proof"]
    for name in ("others", "written"):
        if not raw[name]:
            del raw[name]
    return (json.dumps(raw, indent=1) + "\n").encode()
