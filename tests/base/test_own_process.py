"""Processes of our own: how Python is started as this one was, and how a process is held to less."""

from __future__ import annotations

import os
import resource
import sys

import pytest

from vllm_mods.base import own_process


def limits_of_a_child(before: int | None, most: int) -> tuple[int, int]:
    """Return the limits of files of a process that is held to ``most``, and was to what it was before."""
    heard, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if before is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (before, before))
            own_process.limit(resource.RLIMIT_FSIZE, most)
            os.write(tell, repr(resource.getrlimit(resource.RLIMIT_FSIZE)).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(tell)
    with open(heard) as file:
        soft, hard = map(int, file.read().strip("()").split(","))
    return soft, hard


@pytest.mark.parametrize(
    ("before", "most", "bound"), [(None, 9000, 9000), (9000, 64, 64), (9000, 1 << 40, 9000)]
)
def test_a_process_is_held_to_a_limit_and_never_to_more_than_before(
    before: int | None, most: int, bound: int
) -> None:
    assert limits_of_a_child(before, most) == (bound, bound)


def test_a_process_that_has_ended_cannot_be_limited() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(ProcessLookupError):
        own_process.limit(resource.RLIMIT_FSIZE, 1 << 40, child)


def test_a_module_is_found_by_another_process_as_by_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", ["", "/a", "b"])
    python, isolated, code, start, *rest = own_process.command("x.y")
    assert (python, isolated, code) == (sys.executable, "-P", "-c")
    assert rest == ["x.y", "/a", os.path.abspath("b")]
    assert "import_module(module).main()" in start
