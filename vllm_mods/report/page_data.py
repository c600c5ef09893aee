"""What the matrix page shows of a cell when it is opened, as one JSON value; a hunk beside the target. Pure.

Neighbouring releases have nearly the same sources, so everything is written once and named by its
number: strings, blocks of lines, findings, hunks. ``page/page.js`` reads it; the keys are the two
modules' own affair.
"""

import json
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any

from vllm_mods.base.model import Finding, Mod, Variant
from vllm_mods.matrices.cell import Cell, HunkView, MatrixResult
from vllm_mods.planning import patching
from vllm_mods.planning.known_trees import WORKSPACE
from vllm_mods.report import matrix_grid as view

Pair = tuple[int | None, int | None]
"""An index into the hunk's lines and one into the target's; None where nothing is beside it."""


class _Tables:
    """Values with numbers, by kind: what has the same key is made once and has the same number."""

    def __init__(self) -> None:
        kinds = ("texts", "blocks", "findings", "hunks")
        self.values: dict[str, list[Any]] = {kind: [] for kind in kinds}
        self._numbers: dict[tuple[str, Hashable], int] = {}

    def number(self, kind: str, key: Hashable, make: Callable[[], Any]) -> int:
        if (kind, key) not in self._numbers:
            value = make()  # it may number others before
            self._numbers[kind, key] = len(self.values[kind])
            self.values[kind].append(value)
        return self._numbers[kind, key]

    def text(self, line: str) -> int:
        shown = view.clean(line)
        return self.number("texts", shown, lambda: shown)

    def block(self, lines: Iterable[str]) -> int:
        numbers = tuple(map(self.text, lines))
        return self.number("blocks", numbers, lambda: numbers)


def page_data(of: view.Grid, result: MatrixResult) -> str:
    """Return the JSON of a page, fit to stand in a ``script`` element: it has no ``<`` in it."""
    tables = _Tables()
    about = {mod.name: _about(mod) for mod in result.mods}
    cells = [[_cell(tables, cell, result.hunks) for cell in row.cells] for row in of.rows]
    data = {
        "mods": [
            [view.clean(row.mod), view.clean(row.version), about.get(row.mod, {})]
            for row in of.rows
        ],
        "trees": [[view.clean(tree), label] for tree, label in of.labels.items()],
        "cells": cells,
        "meanings": view.MEANINGS,
        **tables.values,
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    # HTML, 4.12.1.3: in a script element `<!--` and `</script` have a meaning of their own.
    return text.replace("<", "\\u003c")


def _about(mod: Mod) -> dict[str, Any]:
    """Return what a mod can be found by: what it is for, the packages it changes, the models it names."""
    packages = {package for one in mod.variants for package in _packages(mod, one)}
    models = {
        value
        for one in mod.when
        for _, values in one.config
        for value in values
        if isinstance(value, str)
    }
    return {
        "summary": view.clean(mod.summary),
        "package": sorted(map(view.clean, packages)),
        "model": sorted(map(view.clean, models)),
    }


def _packages(mod: Mod, variant: Variant) -> set[str]:
    """Return the distributions that a variant changes: by its own word, else by the folder."""
    paths = [part.path for part in patching.parts_of(mod, variant, WORKSPACE)]
    tops = {path.partition("/")[0] for path in paths if not path.startswith(f"{WORKSPACE}/")}
    named = {variant.package} if variant.package else tops
    return named | tops & {"vllm"} | ({"chat template"} if variant.templates else set())


def _cell(
    tables: _Tables, cell: Cell, hunks: Mapping[tuple[str, str], tuple[HunkView, ...]]
) -> dict[str, Any]:
    return _without_empty(
        {
            "word": cell.word,
            "variant": view.variant(cell),
            "ranged": int(cell.in_range),
            "meant": int(cell.meant),
            "without": [view.clean(patch) for patch in cell.left_out],
            "packages": [view.clean(" ".join(one)) for one in cell.packages],
            "findings": [
                tables.number("findings", one, partial(_fields, one)) for one in cell.findings
            ],
            "hunks": [_hunk(tables, hunk) for hunk in hunks.get((cell.mod, cell.tree), ())],
        }
    )


def _hunk(tables: _Tables, hunk: HunkView) -> int:
    return tables.number(
        "hunks",
        hunk,
        lambda: {
            **_fields(hunk),
            "first": hunk.target[0][0] if hunk.target else None,
            "lines": tables.block(hunk.lines),
            "target": tables.block(text for _, text in hunk.target),
            "rows": tables.number("blocks", beside := pairs(hunk), lambda: beside),
        },
    )


def _fields(value: Finding | HunkView) -> dict[str, Any]:
    fields = value._asdict().items()
    return _without_empty(
        {name: view.clean(one) if isinstance(one, str) else one for name, one in fields}
    )


def _without_empty(value: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in value.items() if one or one == 0}


def pairs(hunk: HunkView) -> tuple[Pair, ...]:
    """Return the rows of a hunk and its target, each line of both once and in order.

    What the hunk takes away or keeps stands beside the target's lines; if it is in already, what it adds
    does. Where it has no place, lines that differ stand beside each other.
    """
    target = [text for _, text in hunk.target]
    first = max(0, hunk.line - hunk.target[0][0]) if hunk.line is not None and target else 0
    sides = [
        [at for at, line in enumerate(hunk.lines) if line[0] in kinds] for kinds in (" -", " +")
    ]
    for side in sides:
        start = _start([hunk.lines[at][1:] for at in side], target, first)
        if start is not None:
            beside = {line: start + at for at, line in enumerate(side)}
            break
    else:
        matched = _matched([hunk.lines[at][1:] for at in sides[0]], target)
        beside = {sides[0][at]: line for at, line in matched.items()}
    return tuple(_rows(len(hunk.lines), len(target), beside))


def _start(text: list[str], target: list[str], first: int) -> int | None:
    """Return where the whole text stands in the target: at ``first``, or the first place of all."""
    places = (first, *range(len(target) - len(text) + 1))
    return next((at for at in places if target[at : at + len(text)] == text), None)


def _matched(text: Sequence[str], target: Sequence[str]) -> dict[int, int]:
    """Pair equal lines, and those between two pairs from the first on; before all pairs, from the end."""
    beside: dict[int, int] = {}
    for tag, a, a_end, b, b_end in SequenceMatcher(
        None, text, target, autojunk=False
    ).get_opcodes():
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
