"""Whatever the history and whatever its commits own up to, what is found is a change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from sampling import examples

from vllm_mods.matrices.bisect import Point, search
from vllm_mods.planning.planner import plan
from vllm_mods.trees.git import Commit

PATH = "vllm/x.py"
BASE = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
MOD = mod(variant(diff_of(PATH, BASE, BASE.replace("b = 2", "b = 20"))))
TEXTS = {
    "applies": BASE,
    "moved": f"import os\n\n\n{BASE}",
    "conflict": BASE.replace("b = 2", "b = 3"),
    "upstream": BASE.replace("b = 2", "b = 20"),
    "missing": BASE.replace("def f", "def g"),
}
STEPS = st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.booleans()), min_size=2, max_size=30)


def tree(kind: str) -> MemoryTree:
    return MemoryTree({PATH: TEXTS[kind].encode()}, pristine=True)


@pytest.mark.slow
def test_the_texts_have_the_verdicts_they_are_called_by() -> None:
    assert all(plan([MOD], tree(kind)).mods[0].verdict == kind for kind in TEXTS)


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_neighbours_on_two_sides(steps: list[tuple[str, bool]]) -> None:
    kinds = [kind for kind, _ in steps]
    points = [
        Point(str(i), Commit(str(i), (), "", "", frozenset({PATH} if honest else ())))
        for i, (_, honest) in enumerate(steps)
    ]
    verdicts = [plan([MOD], tree(kind)).mods[0].verdict for kind in kinds]
    found = search([MOD], points, lambda name: tree(kinds[int(name)]))
    if verdicts[0] == verdicts[-1]:
        assert found.after is None
        return
    assert found.before is not None
    assert found.after is not None
    before, after = int(found.before.point.name), int(found.after.point.name)
    assert after == before + 1
    good, bad, old, new = (verdicts[i] for i in (0, -1, before, after))
    if (good.ok, good.writes) != (bad.ok, bad.writes):
        assert (old.ok, old.writes) == (good.ok, good.writes) != (new.ok, new.writes)
    else:
        assert old == good != new
