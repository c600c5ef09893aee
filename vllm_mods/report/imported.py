"""Answers of ``import``, as text and as JSON."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from vllm_mods.api.import_mod import ImportedMod
from vllm_mods.base.model import Level
from vllm_mods.formats import pairing as pairings
from vllm_mods.library import mod_folder
from vllm_mods.recipes.reader import ImportedRecipe


def mod_data(mod: ImportedMod, path: str) -> dict[str, Any]:
    """Return a mod that was made of what lies at a path."""
    return {
        "kind": "mod",
        "path": path,
        "ok": True,
        "name": mod.name,
        "folder": mod.folder,
        "files": sorted(mod.files),
        "verdict": mod.planned and mod.planned.verdict,
        "findings": mod.planned.findings if mod.planned else (),
        "notes": mod.notes,
        "unknown": mod.unknown,
        "releases": mod.releases,
    }


def mod_text(mod: ImportedMod, library: str | None) -> str:
    """Return what was written to a library."""
    verdict = "" if mod.planned is None else f": {mod.planned.verdict}"
    lines = [f"wrote {mod.folder}{verdict}", *(f"  {path}" for path in sorted(mod.files))]
    if mod.planned is None and not mod.releases:
        lines.append(f"hint: vllm-mods check {mod.name} --library {library} --target TREE")
    return "\n".join(lines)


def manifest(mod: ImportedMod) -> str:
    """Return the mod's ``mod.toml``."""
    return mod.files[mod_folder.MANIFEST].decode()


def mod_notes(mod: ImportedMod) -> Iterator[str]:
    """Yield what one should know of a mod."""
    yield from mod.notes
    yield from (one.message for one in (mod.planned.findings if mod.planned else ()))
    # a line for each stretch of releases with the same variant, or the same reason for none
    for _, group in itertools.groupby(mod.releases, key=lambda row: (row.variant, row.why)):
        first, *others = group
        span = f"{first.version} to {others[-1].version}" if others else first.version
        answer = f"variant `{first.variant}`" if first.variant else f"no variant: {first.why}"
        yield f"{span}: {answer}"


def recipe_data(result: ImportedRecipe, path: str, file: str | None) -> dict[str, Any]:
    """Return a pairing that was made of a recipe, and written to a ``file``."""
    return {
        "kind": "recipe",
        "path": path,
        "ok": result.ok,
        "name": result.pairing.name,
        "file": file,
        "pairing": pairings.dump(result.pairing).decode(),
        "findings": result.findings,
    }


def recipe_lines(result: ImportedRecipe, path: str) -> Iterator[str]:
    """Yield what is to be known of a recipe."""
    for finding in result.findings:
        line = "" if finding.line is None else f":{finding.line}"
        level = "note" if finding.level is Level.NOTE else "error"
        yield f"{path}{line}: {level}: {finding.message} [{finding.code}]"
