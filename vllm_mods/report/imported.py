"""Answers of ``new`` and ``import``."""

import itertools
import os
from collections.abc import Iterator
from typing import Any

from vllm_mods.formats import pairing as pairings
from vllm_mods.library import mod_folder
from vllm_mods.making.compose import NewMod
from vllm_mods.recipes.recipe_yaml import ImportedRecipe
from vllm_mods.report.data import fields
from vllm_mods.report.reply import Reply, notes


def new(result: NewMod) -> Reply:
    """Return a mod that was made of a diff, of trees, of a command."""
    variant = result.planned.variant if result.planned else None
    answer = {"mod": result.mod.name, "variant": variant and variant.id, **_mod_data(result)}
    del answer["releases"]
    return Reply(answer, "\n".join((*_written(result), *_remarks(result))), not result.failed)


def mod(result: NewMod, path: str) -> Reply:
    """Return a mod that was made of what lies at a path: written to a library, else its manifest."""
    name, ok = result.mod.name, not result.failed
    answer = {"kind": "mod", "path": path, "ok": ok, "name": name, **_mod_data(result)}
    notes = tuple(_remarks(result))
    if result.folder is None:
        hint = f"vllm-mods import {path} --library DIR  # writes DIR/patches/{name}"
        manifest = result.files[mod_folder.MANIFEST].decode()
        return Reply(answer, manifest, ok, hint, notes, is_file=True)
    library = os.path.dirname(os.path.dirname(result.folder))
    hint = f"vllm-mods check {name} --library {library} --target TREE"
    proven = result.planned is not None or result.releases
    words = "\n".join(_written(result))
    return Reply(answer, words, ok, None if proven else hint, notes)


def _mod_data(result: NewMod) -> dict[str, Any]:
    return {
        "folder": result.folder,
        "files": sorted(result.files),
        "verdict": result.planned and result.planned.verdict,
        "findings": result.planned.findings if result.planned else (),
        **fields(result, "notes", "unknown", "releases", "failed"),
    }


def _written(result: NewMod) -> Iterator[str]:
    verdict = "" if result.planned is None else f": {result.planned.verdict}"
    yield f"wrote {result.folder}{verdict}"
    yield from (f"  {path}" for path in sorted(result.files))


def _remarks(result: NewMod) -> Iterator[str]:
    findings = result.planned.findings if result.planned else ()
    yield from notes((*result.notes, *(finding.message for finding in findings)))
    # a line for each stretch of releases with the same variant, or the same reason for none
    for _, group in itertools.groupby(result.releases, key=lambda row: (row.variant, row.why)):
        first, *others = group
        span = f"{first.version} to {others[-1].version}" if others else first.version
        answer = f"variant `{first.variant}`" if first.variant else f"no variant: {first.why}"
        yield f"note: {span}: {answer}"
    yield from (f"failed: {line}" for line in result.failed)
    yield from (f"to add in mod.toml: {line}" for line in result.unknown)


def recipe(result: ImportedRecipe, path: str, file: str | None) -> Reply:
    """Return a pairing that was made of a recipe, and written to a ``file`` if one was named."""
    pairing = pairings.dump(result.pairing).decode()
    notes = []
    for finding in result.findings:
        line = "" if finding.line is None else f":{finding.line}"
        notes.append(f"{path}{line}: {finding.level}: {finding.message} [{finding.code}]")
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
    return Reply(answer, words, result.ok, stderr=tuple(notes), is_file=True)
