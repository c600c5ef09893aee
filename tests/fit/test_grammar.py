"""What this Python says of a file, and what the type checker says for the oldest that the release supports."""

from __future__ import annotations

import sys

import pytest
from fit_tree import INC, errors, findings

from vllm_mods.base.model import Level
from vllm_mods.fit import types
from vllm_mods.fit.problems import Doubt, Problem

GIVEN = "return Layer(name, self.bits)"


def test_what_this_python_says_of_a_file() -> None:
    (wrong,) = types.syntax_problems("a.py", b"x = 1\nx = = 1\n", (3, 10))
    assert isinstance(wrong, Problem)
    assert wrong.line == 2
    assert wrong.message == "this is not valid Python 3.10: invalid syntax"
    (deep,) = types.syntax_problems("a.py", b"x = " + b"-" * 99999 + b"1\n", (3, 99))
    assert isinstance(deep, Problem)
    assert "it is nested too deeply" in deep.message
    assert not list(types.syntax_problems("a.py", b"(a): int = 1\n", (3, 10)))
    (unstated,) = types.syntax_problems("a.py", b"", None)
    assert unstated == Doubt(
        "a.py", "syntax", "this tree has no metadata that says which Python it needs"
    )


@pytest.mark.slow
def test_what_only_a_newer_python_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(types, "_error", lambda *_: None)  # as one that runs on 3.12 has it
    for text, why in (
        ("return f'{self.pick('a')}'", "Cannot reuse outer quote character"),
        ("try: return 1\n        except* ValueError: pass", "Cannot use `except*`"),
    ):
        (found,) = errors(INC, (GIVEN, text))
        assert found.code == "fit-syntax"
        assert f"not valid Python 3.10: {why}" in found.message


@pytest.mark.slow
def test_where_this_python_is_too_old_the_type_checker_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(types, "_error", lambda *_: SyntaxError("newer than this Python"))
    newest = sys.version_info[0], sys.version_info[1] + 1
    monkeypatch.setattr("vllm_mods.fit.world.World.python", property(lambda _: newest))
    fine = findings(INC, (GIVEN, "return Layer(name, bits=self.bits)"))
    assert [one.level for one in fine] == [Level.NOTE]
    assert "may need a newer Python" in fine[0].message
    (found,) = errors(INC, (GIVEN, "return = self.bits"))
    assert (found.code, found.line) == ("fit-syntax", 32)
