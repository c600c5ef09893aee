"""Processes of our own: how Python is started as this one was, and how a process is held to less."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any

import pytest

from vllm_mods.base import own_process

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("hard", "most", "bound"), [(NONE, 9000, 9000), (9000, 64, 64), (9000, 1 << 40, 9000)]
)
def test_a_process_is_held_to_a_limit_and_never_to_more_than_before(
    hard: int, most: int, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[Any] = []
    monkeypatch.setattr(resource, "getrlimit", lambda what: (what, hard))
    monkeypatch.setattr(resource, "prlimit", lambda *given: limits.append(given))
    own_process.limit(resource.RLIMIT_FSIZE, most)
    own_process.limit(resource.RLIMIT_FSIZE, most, 7)
    assert limits == [(pid, resource.RLIMIT_FSIZE, (bound, bound)) for pid in (0, 7)]


def test_a_module_is_found_by_another_process_as_by_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/a", "b"])
    python, isolated, code, start, *rest = own_process.command("x.y")
    assert (python, isolated, code) == (sys.executable, "-P", "-c")
    assert rest == ["x.y", "/a", os.path.abspath("b")]
    assert "import_module(module).main()" in start
