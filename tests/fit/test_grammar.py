"""What this Python says of a file, and what LibCST says, whose grammar is its own."""

from __future__ import annotations

import pytest
from fit_tree import INC, errors

from vllm_mods.fit import syntax
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.formats import syntax_tree

# Python, and not for LibCST.
ONLY_HERE = b"(a): int = 1\n"


def test_what_this_python_takes_and_libcst_does_not_is_said() -> None:
    (found,) = syntax.syntax_problems("a.py", b"", ONLY_HERE, (3, 10))
    assert isinstance(found, Doubt)
    assert "accepts it, but LibCST, the second parser, does not: line 1" in found.why


def test_what_the_patch_left_alone_is_not_read_again() -> None:
    before = ONLY_HERE + b"x = 1\n"
    assert not list(syntax.syntax_problems("a.py", before, before.replace(b"x", b"y"), (3, 10)))


def test_where_this_python_is_too_old_libcst_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "_error", lambda *_: SyntaxError("newer than this Python"))
    monkeypatch.setattr(syntax_tree, "only", lambda data, _: data)
    (fine,) = syntax.syntax_problems("a.py", b"", b"x = 1\n", (3, 99))
    assert isinstance(fine, Doubt)
    (wrong,) = syntax.syntax_problems("a.py", b"", b"x = 1\nx = = 1\n", (3, 99))
    assert isinstance(wrong, Problem)
    assert wrong.line == 2
    assert "not valid Python 3.99" in wrong.message


@pytest.mark.slow
def test_what_only_a_newer_python_takes_inside_an_f_string(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "_error", lambda *_: None)  # as one that runs on 3.12 has it
    pair = "return Layer(name, self.bits)", "return f'{self.pick('a')}'"
    (found,) = errors(INC, pair)
    assert (found.code, found.line) == ("fit-syntax", 32)
    assert "not valid Python 3.10: Cannot reuse outer quote character" in found.message
