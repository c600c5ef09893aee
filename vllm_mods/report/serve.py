"""Answers of ``serve-check``, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mods.api.serve_check import ServeChecked
from vllm_mods.base.model import Level
from vllm_mods.report import data as reports
from vllm_mods.report import text as words
from vllm_mods.report.columns import columns
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.releases import ServeCell


def data(result: ServeChecked) -> dict[str, Any]:
    """Return it for scripts."""
    head = {"pairing": result.pairing, "command": result.argv}
    if result.over_releases:
        cells = [
            {**reports.fields(cell, "version", "tree"), **_answer(cell.answer)}
            for cell in result.cells
        ]
        return {**head, "cells": cells}
    (cell,) = result.cells
    tree = {"spec": cell.tree, "version": cell.version or None}
    return {**head, "tree": tree, **_answer(cell.answer)}


def _answer(answer: ServeAnswer) -> dict[str, Any]:
    findings = [
        {
            **reports.fields(fault, "code", "level", "subject", "message"),
            "suggestion": fault.near or None,
        }
        for fault in answer.faults
    ]
    return {"ok": answer.ok, "findings": findings}


def text(result: ServeChecked) -> str:
    """Return a line per finding, what is wrong first."""
    if result.over_releases:
        return _cells_text(result.cells)
    (cell,) = result.cells
    wrong = [fault for fault in cell.answer.faults if fault.level is Level.ERROR]
    notes = [fault for fault in cell.answer.faults if fault.level is Level.NOTE]
    what = f"pairing {result.pairing}" if result.pairing else "vllm serve"
    flags = f"{cell.answer.used} flag{'s' * (cell.answer.used != 1)}"
    verdict = f"{len(wrong)} wrong" if wrong else "nothing is wrong"
    lines = [f"{what} on {words.tree_name(cell.version, cell.tree)}", f"  {flags}: {verdict}"]
    lines += [f"    {_line(fault)}" for fault in wrong]
    lines += [f"    note: {_line(fault)}" for fault in notes]
    return "\n".join(lines)


def _cells_text(cells: Sequence[ServeCell]) -> str:
    """Return a row per tree with what is wrong there, then each finding once with its releases."""
    labels = {cell.tree: words.label(cell.tree, cell.version) for cell in cells}
    rows = [("vLLM", "wrong")]
    places: dict[tuple[str, str], list[tuple[str, ServeFault]]] = {}
    for cell in cells:
        wrong = [fault for fault in cell.answer.faults if fault.level is Level.ERROR]
        subjects = ", ".join(dict.fromkeys(fault.subject for fault in wrong)) or "nothing"
        rows.append((labels[cell.tree], subjects))
        for fault in wrong:
            places.setdefault((fault.code, fault.subject), []).append((labels[cell.tree], fault))
    lines = columns(rows)
    for faults in places.values():
        first, last = faults[0][0], faults[-1][0]
        trees = first if first == last else f"{first} to {last}, {len(faults)} of {len(cells)}"
        lines += ["", f"{_line(faults[-1][1])}", f"  on {trees}"]
    return "\n".join(lines)


def _line(fault: ServeFault) -> str:
    return f"{fault.subject}: {fault.message} [{fault.code}]"
