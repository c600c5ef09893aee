"""The answers of ``check`` (of a plugin, too), ``diff`` and ``apply``: a plan, how the mods fit a checkpoint, what would change or was changed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm_mods.api.plan import CheckResult
from vllm_mods.base.model import Level, Verdict
from vllm_mods.base.versions import sort_key
from vllm_mods.formats import diff_writer
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply, notes

if TYPE_CHECKING:
    from vllm_mods.api.plugin_check import PluginChecked, PluginMatrix
    from vllm_mods.applying.outcomes import Applied
    from vllm_mods.formats.pairing import Pairing

_UNEXAMINED = "not examined: names in strings, source that exec runs, compiled modules, whether spawned workers run the plugin"


def check(result: CheckResult, paint: text.Paint, *, explain: bool) -> Reply:
    """Return a plan and how the mods fit a model; with ``explain``, what was not examined too."""
    answer = {**data.plan(result.plan), "beside": result.beside}
    lines = [text.plan(result.plan, paint, explain=explain)]
    lines += [f"beside vLLM: {found}" for found in result.beside]
    if result.tree.releases is not None:
        answer["tree"]["verified"] = result.tree.verified
    if result.tree.verified == "parts":
        lines.append("only parts of the wheel were read; `--verify` checks the whole wheel's hash")
    if result.model is not None:
        from vllm_mods.report import checkpoint  # noqa: PLC0415  (where one is named)

        answer |= {"model": checkpoint.fit_data(result.model), "ok": result.ok}
        lines.append(checkpoint.fit_text(result.model))
    return Reply(answer, "\n".join(lines), result.ok, result.hint)


def plugin_check(result: PluginChecked, paint: text.Paint) -> Reply:
    """Return what a plugin is and what starts it, what is broken first, and how many findings there are."""
    plugin, tree = result.plugin, result.tree
    made_for = f"vLLM {result.made_for} ({result.source})"
    if not result.source:
        made_for = "an unknown vLLM, so all findings are notes; --made-for TREE names that vLLM"
    errors = sum(one.level is Level.ERROR for one in result.findings)
    lines = [
        f"{plugin.name} {plugin.version or 'of unknown version'} on {text.tree_name(tree.version, tree.spec)}",
        f"  made for {made_for}",
        *(f"  starts by {group}: {entry}" for group, entry in plugin.entry_points),
        *(f"  runs whenever Python starts: {path}" for path in plugin.starts),
        *text.findings(result.findings, "  ", lambda words: paint(Verdict.UNFIT, words)),
        f"  {text.counted(errors, 'error')}, {text.counted(len(result.findings) - errors, 'note')}",
        *text.folded(_UNEXAMINED, text.WIDTH - 2, "  ", "    "),
    ]
    about = {**plugin._asdict(), **data.fields(result, "made_for", "source")}
    about["entry_points"] = [{"group": of, "entry": entry} for of, entry in plugin.entry_points]
    answer = {"tree": {"spec": tree.spec, "version": tree.version}, "plugin": about}
    answer |= data.fields(result, "ok", "findings")
    return Reply(answer, "\n".join(lines), result.ok)


def plugin_matrix(result: PluginMatrix) -> Reply:
    """Return a row for each release of a plugin, with the errors on each vLLM; then the first of each, and what was not read."""
    cells: dict[tuple[str, str], dict[str, PluginChecked]] = {}
    for cell in result.cells:
        row = f"{cell.plugin.name} {cell.plugin.version or ''}".rstrip(), cell.made_for or "-"
        cells.setdefault(row, {})[cell.tree.version or cell.tree.spec] = cell
    columns = sorted({tree for found in cells.values() for tree in found}, key=sort_key)
    rows = [("plugin", "made for", *columns)]
    rows += [(*row, *(_cell(found.get(tree)) for tree in columns)) for row, found in cells.items()]
    lines = [*text.columns(rows), *(f"not checked: {why}" for why in result.unread)]
    for (name, _), found in cells.items():
        bad: dict[str, list[str]] = {}
        for tree in (tree for tree in columns if tree in found and not found[tree].ok):
            bad.setdefault(str(found[tree].findings[0]), []).append(tree)
        lines += (f"{name} on {', '.join(trees)}: {first}" for first, trees in bad.items())
    answer = [
        {
            **data.fields(cell.plugin, "name", "version"),
            **data.fields(cell, "made_for", "ok", "findings"),
            "tree": {"spec": cell.tree.spec, "version": cell.tree.version},
        }
        for cell in result.cells
    ]
    told = {"ok": result.ok, "cells": answer, "unread": result.unread}
    return Reply(told, "\n".join(lines), result.ok)


def _cell(found: PluginChecked | None) -> str:
    errors = sum(one.level is Level.ERROR for one in found.findings) if found else 0
    notes = len(found.findings) - errors if found else 0
    told = (text.counted(n, word) for n, word in ((errors, "error"), (notes, "note")) if n)
    return ", ".join(told) or ("ok" if found else "")


def diff(result: CheckResult, paint: text.Paint) -> Reply:
    """Return what mods would change as a diff; the plan where any of them does not fit."""
    answer = data.plan(result.plan)
    if not result.ok:
        words = text.plan(result.plan, paint)
        return Reply({**answer, "files": []}, words, ok=False, next_step=result.hint)
    diffs = {}
    for one in result.plan.changes:  # a template may go to a folder anywhere
        path = os.path.basename(one.path) if one.path.startswith("/") else one.path
        diffs[one.path] = diff_writer.file_diff(*one._replace(path=path))
    files = [_counted(path, diff) for path, diff in diffs.items()]
    whole = b"".join(diffs.values()).decode("utf-8", "surrogateescape")
    stderr = () if whole else ("note: everything is already applied, so nothing would change",)
    return Reply({**answer, "files": files}, whole, stderr=stderr, is_file=True)


def _counted(path: str, diff: bytes) -> dict[str, Any]:
    _head, _, body = diff.partition(b"\n@@")
    lines = body.split(b"\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in (b"+", b"-"))
    return {"path": path, "added": added, "removed": removed}


def apply(done: Applied, pairing: Pairing | None, paint: text.Paint, *, dry_run: bool) -> Reply:
    """Return what was done, or would be, and how to serve with it."""
    answer = {**data.plan(done.plan), "changed": done.changed}
    records = [f"  {path}: new hashes" for path in done.changed if path.endswith("/RECORD")]
    lines = [text.plan(done.plan, paint), *records, text.done(done.changed, dry_run=dry_run)]
    if pairing is None:
        lines += text.serve_arguments(done.plan, done.templates)
    else:
        answer["serve"] = done.serve_script(pairing)
        lines.append(f"serve with (pairing {pairing.name}):\n{answer['serve']}")
    return Reply({**answer, "dry_run": dry_run}, "\n".join(lines), stderr=notes(done.notes))
