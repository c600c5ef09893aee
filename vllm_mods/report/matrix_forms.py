"""The forms that a matrix can be reported in, by name; text and JSON are made here."""

import json
from collections.abc import Callable, Iterable

from vllm_mods.formats.schema import encode
from vllm_mods.matrices.cell import Cell, MatrixResult
from vllm_mods.report import annotations, html, junit, matrix_grid as view, matrix_markdown, sarif
from vllm_mods.report.data import SCHEMA, fields
from vllm_mods.report.text import Paint, columns, folded

_COLUMNS = 80
_KEYS = ("mod", "version", "tree", "variant", "verdict", "in_range", "computed")
_MORE = ("packages", "left_out", "findings")
_WORD = 13  # the longest verdict, in brackets


def text(result: MatrixResult, paint: Paint = str) -> str:
    """Return a block per mod, neighbouring releases that say the same in one line; the problems; why each bad cell is bad.

    A verdict in brackets is of trees that the mod is not meant for. What wraps is what people wrote.
    """
    of = view.grid(result)
    in_brackets = "\n(in brackets: outside the mod's range)"
    blocks = [view.headline(of) + in_brackets * any(not one.meant for one in result.cells)]
    blocks += ["\n".join(_mod(of, row, paint)) for row in of.rows]
    problems = _items(view.problem(of, one) for one in view.problems(result))
    blocks += ["\n".join(("problems of ranges and locks", *problems))] if problems else []
    for run in view.wrong(of):
        head = f"{view.clean(run.mod)} on {run.trees}: {_painted(run.first, paint)}"
        reasons = _items(view.clean(str(finding)) for finding in run.first.findings)
        blocks.append("\n".join((head, *reasons)))
    return "\n\n".join((*blocks, view.summary(of))) + "\n"


def _mod(of: view.Grid, row: view.GridRow, paint: Paint) -> list[str]:
    rows = []
    for run in view.runs(of, row):
        verdict = _painted(run.first, paint) + " " * (_WORD - len(_painted(run.first, str)))
        rows.append((run.trees, f"{verdict}  {view.details(run.cells)}"))
    return [view.clean(f"{row.mod} {row.version}"), *columns(rows, "  ")]


def _painted(cell: Cell, paint: Paint) -> str:
    shown = paint(cell.verdict) if cell.computed else cell.word
    return shown if cell.meant else f"({shown})"


def _items(texts: Iterable[str]) -> list[str]:
    return [line for text in texts for line in folded(text, _COLUMNS, "  ", "    ")]


def _json(result: MatrixResult) -> str:
    answer = {
        "schema": SCHEMA,
        "cells": [fields(c, *_KEYS, *_MORE) | {"packages": dict(c.packages)} for c in result.cells],
        "problems": result.problems,
    }
    return json.dumps(encode(answer), indent=2) + "\n"


FORMS: dict[str, Callable[..., str]] = {
    "text": text,
    "json": _json,
    "markdown": matrix_markdown.render,
    "junit": junit.render,
    "github": lambda result: annotations.workflow_commands(
        annotations.of_matrix(result), view.summary(view.grid(result))
    ),
    "sarif": lambda result: sarif.render(annotations.of_matrix(result)),
    "html": html.render,
    "site": html.render,  # with files beside it: cli/matrix.py
}
