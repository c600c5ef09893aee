"""What code puts in the place of vLLM's own while it runs takes the calls of it, and is there once it was put in."""

from __future__ import annotations

import pytest
from run_time_broken import BROKEN, MISSED
from run_time_tree import errors
from run_time_working import WORKING


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_what_breaks_vllm_while_it_runs_is_refused(what: str) -> None:
    assert (errors(BROKEN[what]) == []) is (what in MISSED)


def test_hardly_anything_is_missed() -> None:
    assert len(BROKEN) >= 50
    assert len(MISSED) / len(BROKEN) < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("what", WORKING)
def test_what_works_is_let_be(what: str) -> None:
    assert errors(WORKING[what]) == []
