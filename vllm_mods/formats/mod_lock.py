"""mod.lock: what a mod does to each release, by hash. Pure: bytes ↔ ``Lock``.

Written by ``vllm-mods matrix --update-lock`` from a full plan and by nothing else. A
tree whose files have the hashes recorded here needs no parsing: the places of the
hunks are known, and so is the hash of the result.
"""

# No `from __future__ import annotations`: see model.py.

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Verdict
from vllm_mods.base.untrusted import json_of

SCHEMA = 1


class LockedFile(NamedTuple):
    """A file's sha256 before and after; None stands for "no such file"."""

    path: str
    before: str | None
    after: str | None


class LockedHunk(NamedTuple):
    """Where a hunk lands (1-based line in its stage of the file) and the scopes around it."""

    patch: str
    path: str
    number: int
    line: int
    scope: str


class LockedTree(NamedTuple):
    """One state of the touched files, and the releases (version labels) that have it.

    ``beside`` are the files that the fit rested on, ``witness`` the digests of their bytes
    (``vouch.witness``) with which it found nothing wrong; ``proof`` is ``types`` where a type
    checker was asked too.
    """

    vllm: tuple[str, ...]
    in_range: bool
    variant: str
    verdict: str
    files: tuple[LockedFile, ...]
    hunks: tuple[LockedHunk, ...]
    beside: tuple[str, ...]
    witness: tuple[str, ...]
    proof: str = "static"


class Lock(NamedTuple):
    """The whole file. ``digest`` is that of the mod it was made from: any other makes it stale.

    ``manifest`` is its mod.toml as parsed: JSON is read in a tenth of the time. ``others`` are
    releases that need no change, each with its verdict.
    """

    mod: str
    version: str
    digest: str
    manifest_sha256: str
    manifest: Mapping[str, Any]
    trees: tuple[LockedTree, ...]
    others: tuple[tuple[str, str], ...] = ()


def parse(data: bytes, where: str) -> Lock:
    """Read a lock file. Raises ``ManifestError`` if it is not one: it is never edited by hand."""
    try:
        raw = _loads(data)
        if raw["schema"] != SCHEMA:
            raise ManifestError(
                where,
                (
                    f"schema: this version of vllm-mods reads schema {SCHEMA}, not {raw['schema']!r}",
                ),
            )
        trees = tuple(tree_of(tree) for tree in raw["trees"])
        return Lock(
            mod=raw["mod"],
            version=raw["version"],
            digest=raw["digest"],
            manifest_sha256=raw["manifest_sha256"],
            manifest=raw["manifest"],
            trees=trees,
            others=tuple((str(label), str(verdict)) for label, verdict in raw.get("others", ())),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ManifestError(
            where,
            (f"not a lock file: {error!r}",),
            hint="it is generated: `vllm-mods matrix --update-lock` writes it anew",
        ) from error


def tree_of(data: Mapping[str, Any]) -> LockedTree:
    """Read one state out of JSON. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    tree = LockedTree(
        vllm=tuple(data["vllm"]),
        in_range=bool(data["in_range"]),
        variant=data["variant"],
        verdict=data["verdict"],
        files=tuple(LockedFile(**file) for file in data["files"]),
        hunks=tuple(LockedHunk(**hunk) for hunk in data["hunks"]),
        beside=tuple(data["beside"]),
        witness=tuple(data["witness"]),
        proof=data.get("proof", "static"),
    )
    texts = [tree.variant, tree.proof, *tree.vllm, *tree.beside, *tree.witness]
    for file in tree.files:
        texts += [file.path, file.before or "", file.after or ""]
    for hunk in tree.hunks:
        texts += [hunk.patch, hunk.path, hunk.scope]
    numbers = [number for hunk in tree.hunks for number in (hunk.number, hunk.line)]
    if {*map(type, texts)} - {str} or {*map(type, numbers)} - {int}:
        raise TypeError("a text or a number is something else")
    Verdict(tree.verdict)
    return tree


def manifest_of(data: bytes, sha256: str) -> Mapping[str, Any] | None:
    """Return the parsed manifest out of a lock file if it is of the mod.toml with this hash.

    None for anything else; what is wrong with a lock file is for ``parse`` to say.
    """
    try:
        raw = _loads(data)
    except ValueError:
        return None
    if not isinstance(raw, dict) or raw.get("manifest_sha256") != sha256:
        return None
    manifest = raw.get("manifest")
    return manifest if isinstance(manifest, dict) else None


@lru_cache(maxsize=1)
def _loads(data: bytes) -> Any:  # noqa: ANN401  (as ``json.loads`` has it)
    """Parse once what is read for its manifest first and for its trees later. Nobody changes it."""
    return json_of(data)


def dump(lock: Lock) -> bytes:
    """Write a lock file, the same bytes for the same content."""
    raw = {
        "schema": SCHEMA,
        "mod": lock.mod,
        "version": lock.version,
        "digest": lock.digest,
        "manifest": lock.manifest,
        "manifest_sha256": lock.manifest_sha256,
        "trees": [tree_data(tree) for tree in lock.trees],
        # left out where there are none: most mods have none, and older versions know none
        **({"others": [list(one) for one in lock.others]} if lock.others else {}),
    }
    return (json.dumps(raw, indent=1) + "\n").encode()


def tree_data(tree: LockedTree) -> dict[str, Any]:
    """Return one state as what JSON can hold."""
    return {
        "vllm": list(tree.vllm),
        "in_range": tree.in_range,
        "variant": tree.variant,
        "verdict": tree.verdict,
        "files": [
            {"path": file.path, "before": file.before, "after": file.after} for file in tree.files
        ],
        "hunks": [
            {
                "patch": hunk.patch,
                "path": hunk.path,
                "number": hunk.number,
                "line": hunk.line,
                "scope": hunk.scope,
            }
            for hunk in tree.hunks
        ],
        "beside": list(tree.beside),
        "witness": list(tree.witness),
        # left out where it is static: older versions know no other
        **({"proof": tree.proof} if tree.proof != "static" else {}),
    }
