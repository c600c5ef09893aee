"""Ranges that the trees contradict, either way, and mods that nobody needs any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from matrix_making import cell
from mod_making import mod, variant

from vllm_mods.base.model import Level
from vllm_mods.matrices.ranges import range_problems

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod
    from vllm_mods.matrices.cell import Cell

NAMES = mod(variant(vllm=">=0.19,<0.21"))
PROMISES = NAMES._replace(vllm=">=0.19")
ENDS = NAMES._replace(vllm="<0.21")
WITHOUT_A_BEGINNING = mod(variant(vllm="<0.19"))
NOT_MEANT: dict[str, Any] = {"meant": False, "in_range": False}


def codes(of: Mod, *cells: Cell) -> list[tuple[str, str | None]]:
    return [(one.code.value, one.tree) for one in range_problems(of, cells)]


@pytest.mark.parametrize(
    ("of", "shown", "code"),
    [
        (NAMES, cell(version="0.20.0"), None),
        (NAMES, cell(version="0.20.0", verdict="upstream"), None),
        (NAMES, cell(version="0.20.0", verdict="conflict"), "range-too-wide"),
        (NAMES, cell(version="0.20.0", in_range=False), "range-too-wide"),
        (NAMES, cell(version="0.20.0", verdict="applied", in_range=False), None),
        (NAMES, cell(version="0.21.0", verdict="conflict", **NOT_MEANT), "needs-port"),
        (NAMES, cell(version="0.19.0rc1", verdict="conflict", **NOT_MEANT), None),
        (NAMES, cell(version="0.18.0", verdict="conflict", **NOT_MEANT), None),
        (PROMISES, cell(version="0.21.0", verdict="conflict", in_range=False), "needs-port"),
        (PROMISES, cell(version="0.21.0", in_range=False), None),
        (ENDS, cell(version="0.21.0", verdict="conflict", **NOT_MEANT), None),
        (WITHOUT_A_BEGINNING, cell(version="0.19.0", verdict="unfit", **NOT_MEANT), "needs-port"),
        (NAMES, cell(version="0.21.0", **NOT_MEANT), "range-too-narrow"),
        (NAMES, cell(version="0.18.0", verdict="moved", **NOT_MEANT), "range-too-narrow"),
        (NAMES, cell(version="0.21.0", verdict="upstream", **NOT_MEANT), None),
        (NAMES, cell(version="0.20.0", verdict="unreadable"), None),
        (NAMES, cell(version="0.20.0", verdict="conflict", computed=False), None),
    ],
)
def test_a_range_is_held_against_what_a_tree_says(of: Mod, shown: Cell, code: str | None) -> None:
    problems = [(which, where) for which, where in codes(of, shown) if which != "needless"]
    assert problems == ([] if code is None else [(code, shown.tree)])


def test_only_that_a_mod_fits_beyond_its_ranges_is_no_error() -> None:
    wide, port, narrow = range_problems(
        NAMES,
        [
            cell(version="0.19.0", verdict="conflict"),
            cell(version="0.21.0", verdict="conflict", **NOT_MEANT),
            cell(version="0.22.0", **NOT_MEANT),
        ],
    )
    assert (wide.level, port.level, narrow.level) == (Level.ERROR, Level.ERROR, Level.NOTE)
    assert wide.message == (
        "a range of mod includes vLLM 0.19.0 (pypi:0.19.0), where its verdict is `conflict`"
    )


IN_UPSTREAM = cell(version="0.20.0", verdict="upstream")


@pytest.mark.parametrize(
    ("cells", "needless"),
    [
        ([IN_UPSTREAM], True),
        ([IN_UPSTREAM, cell(version="0.18.0", **NOT_MEANT)], True),
        ([IN_UPSTREAM, cell(version="0.19.0", verdict="unreadable")], True),
        ([IN_UPSTREAM, cell(version="0.19.0", computed=False)], True),
        ([IN_UPSTREAM, cell(version="0.19.0")], False),
        ([IN_UPSTREAM, cell(version="0.19.0", verdict="applied")], False),
        ([IN_UPSTREAM._replace(meant=False)], False),
        ([cell(version="0.20.0", verdict="unreadable")], False),
        ([], False),
    ],
)
def test_a_mod_is_needless_where_all_that_it_is_meant_for_have_its_change(
    cells: list[Cell],
    needless: bool,  # noqa: FBT001
) -> None:
    assert (("needless", None) in codes(NAMES, *cells)) is needless
