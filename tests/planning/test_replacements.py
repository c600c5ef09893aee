"""``[[variant.replace]]``: exact text for exact text, placed, fitted, seen and taken out as a hunk is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import mod
from small_plans import PATH, after, codes, one, tree

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import ModPlan, TextReplacement, Variant, Verdict
from vllm_mods.formats import manifest, toml_writer

if TYPE_CHECKING:
    from collections.abc import Sequence

TEXT = "def f():\n    a = 1\n    return a\n\n\ndef g():\n    a = 1\n    return a + 2\n"


def planned(text: str, *replace: TextReplacement) -> ModPlan:
    return one(mod(Variant(id="v", vllm=">=0", replace=replace)), tree(text))


def put(old: str, new: str, count: int = 1) -> TextReplacement:
    return TextReplacement(PATH, old, new, count)


def test_text_that_stands_once_is_replaced_and_its_place_is_told() -> None:
    plan = planned(TEXT, put("return a + 2", "return a + 3"))
    assert plan.verdict is Verdict.APPLIES
    assert after(plan) == TEXT.replace("+ 2", "+ 3")
    assert [(hunk.line, hunk.scope) for hunk in plan.hunks] == [(8, "g")]


@pytest.mark.parametrize(
    ("old", "count", "verdict"),
    [
        ("a = 1", 1, Verdict.MISPLACED),
        ("a = 1", 2, Verdict.APPLIES),
        ("a = 1", 3, Verdict.CONFLICT),
        ("a = 9", 1, Verdict.CONFLICT),
    ],
)
def test_it_stands_there_as_often_as_it_has_to_or_nothing_is_done(
    old: str, count: int, verdict: Verdict
) -> None:
    plan = planned(TEXT, put(old, "a = 7", count))
    assert plan.verdict is verdict
    assert bool(plan.changes) is verdict.writes


def test_what_is_in_is_seen_and_is_not_put_in_twice() -> None:
    twice = put("a + 2", "a + 2 + 0")  # what is put in holds what it is put in for
    assert planned(TEXT.replace("a + 2", "a + 2 + 0"), twice).verdict is Verdict.APPLIED


def test_the_fit_judges_it() -> None:
    plan = planned(TEXT, put("def f():\n", "import vllm.nowhere\n\n\ndef f():\n"))
    assert plan.verdict is Verdict.UNFIT


def test_a_file_that_is_gone_is_missing() -> None:
    gone = mod(Variant(id="v", vllm=">=0", replace=(put("a", "b"),)))
    plan = one(gone, MemoryTree({"vllm/__init__.py": b""}))
    assert (plan.verdict, codes(plan)) == (Verdict.MISSING, {"file-gone"})


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"path": "vllm/a.py", "old": "", "new": "x"}, "variant[0].replace[0].old"),
        ({"path": "vllm/a.py", "old": "x", "new": "x"}, "variant[0].replace[0].old"),
        ({"path": "../a.py", "old": "x", "new": "y"}, "variant[0].replace[0].path"),
        ({"path": "vllm/a.py", "old": "x", "new": "y", "count": 0}, "variant[0].replace[0].count"),
        ({"path": "vllm/a.py", "old": "x", "new": "y", "nth": 1}, "variant[0].replace[0].nth"),
        ({"path": "vllm/a.py", "old": "x"}, "variant[0].replace[0].new"),
    ],
)
def test_what_is_wrong_with_one_is_named(entry: dict[str, object], problem: str) -> None:
    problems: Sequence[str] = ()
    table = {
        "schema": 1,
        "name": "m",
        "version": "1.0",
        "summary": "s",
        "license": "MIT",
        "variant": [{"id": "v", "vllm": ">=0", "replace": [entry]}],
    }
    try:
        manifest.from_toml("\n".join(toml_writer.rows(table)).encode(), "mod.toml")
    except ManifestError as error:
        problems = error.problems
    assert any(one.startswith(problem) for one in problems), problems
