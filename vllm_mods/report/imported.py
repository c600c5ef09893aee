"""Answers of ``new`` and ``import``."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any

from vllm_mods.api.new import NewMod
from vllm_mods.base.model import Level
from vllm_mods.formats import pairing as pairings
from vllm_mods.library import mod_folder
from vllm_mods.recipes.reader import ImportedRecipe
from vllm_mods.report.reply import Reply, notes


def new(made: NewMod) -> Reply:
    """Return a mod that was made of a diff, of trees, of a command."""
    variant = made.planned.variant if made.planned else None
    answer = {"mod": made.mod.name, "variant": variant and variant.id, **_made(made)}
    del answer["releases"]
    return Reply(answer, "\n".join((*_written(made), *_told(made))))


def mod(made: NewMod, path: str) -> Reply:
    """Return a mod that was made of what lies at a path: written to a library, else its manifest."""
    answer = {"kind": "mod", "path": path, "ok": True, "name": made.mod.name, **_made(made)}
    told = tuple(_told(made))
    if made.folder is None:
        hint = f"vllm-mods import {path} --library DIR  # writes it to DIR/patches/{made.mod.name}"
        manifest = made.files[mod_folder.MANIFEST].decode()
        return Reply(answer, manifest, next_step=hint, told=told, is_file=True)
    library = os.path.dirname(os.path.dirname(made.folder))
    hint = f"vllm-mods check {made.mod.name} --library {library} --target TREE"
    proven = made.planned is not None or made.releases
    words = "\n".join(_written(made))
    return Reply(answer, words, next_step=None if proven else hint, told=told)


def _made(made: NewMod) -> dict[str, Any]:
    return {
        "folder": made.folder,
        "files": sorted(made.files),
        "verdict": made.planned and made.planned.verdict,
        "findings": made.planned.findings if made.planned else (),
        "notes": made.notes,
        "unknown": made.unknown,
        "releases": made.releases,
    }


def _written(made: NewMod) -> Iterator[str]:
    verdict = "" if made.planned is None else f": {made.planned.verdict}"
    yield f"wrote {made.folder}{verdict}"
    yield from (f"  {path}" for path in sorted(made.files))


def _told(made: NewMod) -> Iterator[str]:
    """Yield what one should know of a mod, and what only its author can say."""
    findings = made.planned.findings if made.planned else ()
    yield from notes((*made.notes, *(finding.message for finding in findings)))
    # a line for each stretch of releases with the same variant, or the same reason for none
    for _, group in itertools.groupby(made.releases, key=lambda row: (row.variant, row.why)):
        first, *others = group
        span = f"{first.version} to {others[-1].version}" if others else first.version
        answer = f"variant `{first.variant}`" if first.variant else f"no variant: {first.why}"
        yield f"note: {span}: {answer}"
    yield from (f"to be said by you, in mod.toml: {line}" for line in made.unknown)


def recipe(result: ImportedRecipe, path: str, file: str | None) -> Reply:
    """Return a pairing that was made of a recipe, and written to a ``file`` if one was named."""
    pairing = pairings.dump(result.pairing).decode()
    told = []
    for finding in result.findings:
        line = "" if finding.line is None else f":{finding.line}"
        level = "note" if finding.level is Level.NOTE else "error"
        told.append(f"{path}{line}: {level}: {finding.message} [{finding.code}]")
    answer = {
        "kind": "recipe",
        "path": path,
        "ok": result.ok,
        "name": result.pairing.name,
        "file": file,
        "pairing": pairing,
        "findings": result.findings,
    }
    words = None if file else pairing
    return Reply(answer, words, result.ok, told=tuple(told), is_file=True)
