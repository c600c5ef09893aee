"""What the matrix page shows of a cell when it is opened, as one JSON value; a hunk beside the target. Pure.

Neighbouring releases have nearly the same sources, so everything is written once and named by its number: strings,
blocks of lines, findings, hunks. ``page/page.js`` reads it; the keys are the two modules' own affair.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cache
from typing import Any, NamedTuple

from vllm_mods.base.model import Mod, Variant
from vllm_mods.matrices.cell import Cell, HunkView, MatrixResult
from vllm_mods.planning import patching
from vllm_mods.planning.known_trees import WORKSPACE
from vllm_mods.planning.next_step import library_option
from vllm_mods.report import matrix_grid as view

Pair = tuple[int | None, int | None]
"""An index into the hunk's lines and one into the target's; None where nothing is beside it."""


class _Numbered:
    """Values, each of them once, which are named by their numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, value: object) -> int:
        return self._numbers.setdefault(json.dumps(value), len(self._numbers))

    @property
    def values(self) -> list[Any]:
        return list(map(json.loads, self._numbers))


class _Tables(NamedTuple):
    texts: _Numbered
    blocks: _Numbered
    findings: _Numbered
    hunks: _Numbered

    def block(self, lines: Iterable[str]) -> int:
        return self.blocks.number([self.texts.number(line) for line in lines])


def page_data(of: view.Grid, result: MatrixResult) -> str:
    """Return the JSON of a page, fit to stand in a ``script`` element: it has no ``<`` in it."""
    tables = _Tables(*(_Numbered() for _ in _Tables._fields))
    about = {mod.name: _about(mod) for mod in result.mods}
    cells = [[_cell(tables, cell) for cell in row.cells] for row in of.rows]
    data = {
        "mods": [[row.mod, row.version, about.get(row.mod, {})] for row in of.rows],
        "trees": [list(item) for item in of.labels.items()],
        "cells": cells,
        "meanings": view.MEANINGS,
        **{kind: table.values for kind, table in tables._asdict().items()},
    }
    text = json.dumps(_cleaned(data), ensure_ascii=False, separators=(",", ":"))
    # HTML, 4.12.1.3: in a script element `<!--` and `</script` have a meaning of their own.
    return text.replace("<", "\\u003c")


def _cleaned(value: Any) -> Any:  # noqa: ANN401  (what JSON holds)
    """Return a value without characters that cannot be shown."""
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return list(map(_cleaned, value))
    return view.clean(value) if isinstance(value, str) else value


def _about(mod: Mod) -> dict[str, Any]:
    """Return what a mod can be found by: what it is for, the packages it changes, the models it names; and if its library is to be named."""
    packages = {package for one in mod.variants for package in _packages(mod, one)}
    named = (value for one in mod.when for _, values in one.config for value in values)
    models = {value for value in named if isinstance(value, str)}
    more = {"library": 1} if library_option(mod) else {}
    return {"summary": mod.summary, "package": sorted(packages), "model": sorted(models), **more}


def _packages(mod: Mod, variant: Variant) -> set[str]:
    """Return the distributions that a variant changes: by its own word, else by the folder."""
    paths = [part.path for part in patching.parts_of(mod, variant, WORKSPACE)]
    tops = {path.partition("/")[0] for path in paths if not path.startswith(f"{WORKSPACE}/")}
    named = {variant.package} if variant.package else tops
    return named | tops & {"vllm"} | ({"chat template"} if variant.templates else set())


def _cell(tables: _Tables, cell: Cell) -> dict[str, Any]:
    return _without_empty(
        {
            "word": cell.word,
            "variant": view.variant(cell),
            "meant": int(cell.meant),
            "without": list(cell.left_out),
            "packages": list(map(" ".join, cell.packages)),
            "findings": [
                tables.findings.number(_without_empty(one._asdict())) for one in cell.findings
            ],
            "hunks": [_hunk(tables, hunk) for hunk in cell.hunks],
        }
    )


def _hunk(tables: _Tables, hunk: HunkView) -> int:
    return tables.hunks.number(
        {
            **_without_empty(hunk._asdict()),
            "first": hunk.target[0][0] if hunk.target else None,
            "lines": tables.block(hunk.lines),
            "target": tables.block(text for _, text in hunk.target),
            "rows": tables.blocks.number(pairs(hunk)),
        }
    )


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if one or one == 0}


@cache
def pairs(hunk: HunkView) -> tuple[Pair, ...]:
    """Return the rows of a hunk and its target, each line of both once and in order.

    What the hunk takes away or keeps stands beside the target's lines; if it is in already, what it adds
    does. Where it has no place, lines that differ stand beside each other.
    """
    target = [text for _, text in hunk.target]
    sides = [[at for at, line in enumerate(hunk.lines) if line[0] in of] for of in (" -", " +")]
    texts = [[hunk.lines[at][1:] for at in side] for side in sides]
    is_in = _has(target, texts[1]) and not _has(target, texts[0])
    beside = {sides[is_in][at]: line for at, line in _matched(texts[is_in], target).items()}
    return tuple(_rows(len(hunk.lines), len(target), beside))


def _has(target: list[str], text: list[str]) -> bool:
    return any(target[at : at + len(text)] == text for at in range(len(target)))


def _matched(text: Sequence[str], target: Sequence[str]) -> dict[int, int]:
    """Pair equal lines, and those between two pairs from the first on; before all pairs, from the end."""
    beside: dict[int, int] = {}
    matcher = SequenceMatcher(None, text, target, autojunk=False)
    for tag, a, a_end, b, b_end in matcher.get_opcodes():
        if tag in {"equal", "replace"}:
            count = min(a_end - a, b_end - b)
            from_a, from_b = (a_end - count, b_end - count) if a == 0 else (a, b)
            beside.update((from_a + at, from_b + at) for at in range(count))
    return beside


def _rows(lines: int, target: int, beside: dict[int, int]) -> Iterator[Pair]:
    done = 0
    for line in range(lines):
        at = beside.get(line)
        if at is not None:
            yield from ((None, other) for other in range(done, at))
            done = at + 1
        yield line, at
    yield from ((None, other) for other in range(done, target))
