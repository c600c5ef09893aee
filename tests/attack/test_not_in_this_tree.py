"""A package that a tree does not hold is not gone from vLLM: nobody can tell from there."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import one

from vllm_mods.base.model import Verdict

VLLM = {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n"}
OTHER = diff_of("transformers/models/x.py", "X = 1\n", "X = 2\n")


@pytest.mark.parametrize("path", ["transformers/models/x.py", "flashinfer/jit/core.py"])
def test_a_mod_for_another_package_is_not_missing_where_only_vllm_is(path: str) -> None:
    planned = one(
        mod(variant(diff_of(path, "X = 1\n", "X = 2\n")), outside=(path,)), MemoryTree(dict(VLLM))
    )
    assert planned.verdict is Verdict.UNREADABLE
    assert [found.code for found in planned.findings] == ["not-in-tree"]


def test_where_the_package_is_there_its_file_may_be_gone_or_take_it() -> None:
    theirs = mod(variant(OTHER), outside=("transformers/models/x.py",))
    there = {**VLLM, "transformers/__init__.py": b""}
    assert one(theirs, MemoryTree(dict(there))).verdict is Verdict.MISSING
    there["transformers/models/x.py"] = b"X = 1\n"
    assert one(theirs, MemoryTree(dict(there))).verdict is Verdict.APPLIES


def test_what_is_wrong_in_vllm_itself_is_said_first() -> None:
    both = variant(OTHER, diff_of("vllm/a.py", "B = 1\n", "B = 2\n"))
    planned = one(mod(both, outside=("transformers/models/x.py",)), MemoryTree(dict(VLLM)))
    assert planned.verdict is Verdict.CONFLICT
    assert {found.code for found in planned.findings} == {"not-in-tree", "text"}
