"""What a check answers, in the words of findings."""

from __future__ import annotations

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Level
from vllm_mods.fit.lines import added_lines, touched_lines
from vllm_mods.fit.problems import Doubt, Problem, finding, lasting, nearest, notes


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("get_numHeads", ["heads", "num_heads_get", "other"], "num_heads_get"),
        ("hok", ["hook", "run"], "hook"),
        ("max_len", ["max_length", "max_model_len"], "max_length"),
        ("a_b", ["a_c", "b_d"], "a_c"),
        ("one", ["two", "three"], ""),
        ("x", ["__x__", "__init__"], ""),
        ("FLASHY", ["FLASH", "FLASHX"], "FLASH"),
        ("config", [], ""),
        ("load_weights_fast", ["load_weights", "fast"], "load_weights"),
        ("V2Name", ["V2Nam", "v_2_name"], "V2Nam"),
    ],
)
def test_what_is_there_instead(name: str, names: list[str], near: str) -> None:
    assert nearest(name, names) == (f"; the nearest is {near}" if near else "")


def test_doubts_are_one_note_for_each_file_with_the_commonest_reasons() -> None:
    doubts = [
        *[Doubt("b.py", "import", "w")] * 2,
        *[Doubt("b.py", "import", why) for why in "zyzx"],
        Doubt("b.py", "name", "n"),
        Doubt("a.py", "name", "m"),
    ]
    assert tuple(notes(doubts)) == tuple(
        Finding(
            FindingCode.FIT_UNKNOWN,
            f"{path}: not checked: {text}",
            path,
            scope="",
            level=Level.NOTE,
        )
        for path, text in (
            ("a.py", "1 name (m)"),
            ("b.py", "6 imports (w, z and 2 other reasons); 1 name (n)"),
        )
    )
    (both,) = notes([Doubt("a.py", "name", why) for why in "ab"])
    assert both.message.endswith("2 names (a, b)")
    assert not [*notes([])]


def test_a_problem_is_a_finding_with_its_place() -> None:
    problem = Problem(FindingCode.FIT_CALL, "a.py", 3, "f", "no", ("k",), "t", Level.NOTE)
    assert finding(problem) == Finding(
        FindingCode.FIT_CALL, "a.py:3: no", "a.py", 3, scope="f", level=Level.NOTE
    )
    assert lasting("at a.py:30 and b:7:8, not 9") == "at a.py and b, not 9"


@pytest.mark.parametrize(
    ("before", "after", "added", "touched"),
    [
        (None, b"a\nb\n", {1, 2}, {1, 2}),
        (b"a\nb\n", b"a\nb\n", set(), set()),
        (b"a\nb\n", b"a\nx\nb\n", {2}, {2}),
        (b"a\nb\nc\n", b"a\nc\n", set(), {1, 2}),
        (b"a\nb\nc\nd\n", b"x\nb\nd\n", {1}, {1, 2, 3}),
        (b"a\n", b"", set(), {0, 1}),
    ],
)
def test_which_lines_a_change_adds_and_touches(
    before: bytes | None, after: bytes, added: set[int], touched: set[int]
) -> None:
    assert added_lines(before, after) == added
    assert touched_lines(before, after) == touched
