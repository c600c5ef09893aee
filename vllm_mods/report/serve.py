"""Answers of ``serve-check``, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vllm_mods.base.model import Level
from vllm_mods.report import data, text
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault
from vllm_mods.serving.releases import ServeCell


def answer_data(
    answer: ServeAnswer, *, pairing: str | None, argv: Sequence[str], spec: str, version: str | None
) -> dict[str, Any]:
    """Return the answer for one tree."""
    return {
        "schema": data.SCHEMA,
        "pairing": pairing,
        "command": argv,
        "tree": {"spec": spec, "version": version},
        **_held(answer),
    }


def cells_data(
    cells: Iterable[ServeCell], *, pairing: str | None, argv: Sequence[str]
) -> dict[str, Any]:
    """Return the answer for many trees."""
    return {
        "schema": data.SCHEMA,
        "pairing": pairing,
        "command": argv,
        "cells": [{**data.fields(one, "version", "tree"), **_held(one.answer)} for one in cells],
    }


def _held(answer: ServeAnswer) -> dict[str, Any]:
    findings = [
        {**data.fields(one, "code", "level", "subject", "message"), "suggestion": one.near or None}
        for one in answer.faults
    ]
    return {"ok": answer.ok, "findings": findings}


def answer_text(answer: ServeAnswer, *, head: str) -> str:
    """Return a line per finding, what is wrong first."""
    wrong = [fault for fault in answer.faults if fault.level is Level.ERROR]
    notes = [fault for fault in answer.faults if fault.level is Level.NOTE]
    flags = f"{answer.used} flag{'s' * (answer.used != 1)}"
    verdict = f"{len(wrong)} wrong" if wrong else "nothing is wrong"
    lines = [head, f"  {flags}: {verdict}"]
    lines += [f"    {_line(fault)}" for fault in wrong]
    lines += [f"    note: {_line(fault)}" for fault in notes]
    return "\n".join(lines)


def cells_text(cells: Sequence[ServeCell]) -> str:
    """Return a row per tree with what is wrong there, then each finding once with its releases."""
    labels = {cell.tree: text.label(cell.tree, cell.version) for cell in cells}
    width = max((len(label) for label in labels.values()), default=0)
    lines = [f"{'vLLM'.ljust(width)}  wrong"]
    where: dict[tuple[str, str], list[tuple[str, ServeFault]]] = {}
    for cell in cells:
        wrong = [fault for fault in cell.answer.faults if fault.level is Level.ERROR]
        shown = ", ".join(dict.fromkeys(fault.subject for fault in wrong)) or "nothing"
        lines.append(f"{labels[cell.tree].ljust(width)}  {shown}")
        for fault in wrong:
            where.setdefault((fault.code, fault.subject), []).append((labels[cell.tree], fault))
    for found in where.values():
        first, last = found[0][0], found[-1][0]
        trees = first if first == last else f"{first} to {last}, {len(found)} of {len(cells)}"
        lines += ["", f"{_line(found[-1][1])}", f"  on {trees}"]
    return "\n".join(lines)


def _line(fault: ServeFault) -> str:
    return f"{fault.subject}: {fault.message} [{fault.code}]"
