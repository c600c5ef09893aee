"""The second opinion: what of it is news, what of that an error, and what happens without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fit_tree import FILES, INC, change, tree_of

from vllm_mods.base.model import Level
from vllm_mods.fit import fit, judge, types

if TYPE_CHECKING:
    from vllm_mods.base.model import FileChange

PICK = "        return Layer(name, self.bits)\n"


def said(*lines: str) -> list[object]:
    return [*types._LINE.finditer("\n".join(f"{INC}:{line}" for line in lines))]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """Let ``ty`` say what a test puts in: first of the files before, then of those after."""
    answers: list[list[object]] = []
    monkeypatch.setattr(judge, "find_spec", lambda _: True)
    monkeypatch.setattr(types, "_check", lambda *_: answers.pop(0))
    return answers


def patch() -> FileChange:
    return change(tree_of(FILES), INC, (PICK, "        print(name)\n" + PICK))


def test_only_what_is_new_counts_and_only_what_is_sure_is_an_error(
    asked: list[list[object]],
) -> None:
    old = "3:1: error[missing-attribute] Object of type `Layer` has no attribute `old`"
    new = [
        "31:9: error[missing-attribute] Object of type `Layer` has no attribute `bitz`",
        "31:9: error[missing-attribute] Object of type `Layer | None` has no attribute `a`",
        "31:9: error[missing-attribute] Object of type `Layer` has no attribute `on`",
        "4:1: error[missing-attribute] Object of type `Layer` has no attribute `far`",
        "31:9: error[unsupported-operator] Operator `+` is not supported",
        "31:9: error[invalid-argument-type] Argument to function `pick` is incorrect: Expected `int`, found `object`",
        "31:9: error[invalid-argument-type] Argument to function `pick` is incorrect: Expected `int`, found `list[None]`",
        "31:9: error[unknown-argument] Argument `a` does not match any known parameter of `object.__init__`",
    ]
    row = next(
        n for n, text in enumerate((patch().after or b"").splitlines(), 1) if b"print" in text
    )
    asked += [said(old), said(old, *(line.replace("31:", f"{row}:") for line in new))]
    found = [f for f in fit((patch(),), tree_of(FILES)).findings if f.code == "fit-types"]
    errors = [f.message for f in found if f.level is Level.ERROR]
    assert [("bitz" in m, "`on`" in m, "list[None]" in m) for m in sorted(errors)] == [
        (False, False, True),
        (True, False, False),
        (False, True, False),
    ]
    (note,) = [f for f in found if f.level is Level.NOTE]
    assert "2 invalid" not in note.message
    assert "2 missing-attribute, 1 unknown-argument, 1 unsupported-operator" in note.message
    assert {f.scope for f in found if f.level is Level.ERROR} == {"INCConfig.pick"}


def test_with_an_answer_the_proof_is_one_of_types(asked: list[list[object]]) -> None:
    asked += [[], []]
    done = fit((patch(),), tree_of(FILES))
    assert done.proof == "types"
    assert not [why for what, why in done.unexamined if what.startswith("types of")]


def test_a_checker_that_fails_leaves_the_static_proof_and_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> list[object]:
        raise RuntimeError("no answer")

    monkeypatch.setattr(judge, "find_spec", lambda _: True)
    monkeypatch.setattr(types, "_check", fail)
    done = fit((patch(),), tree_of(FILES))
    assert done.proof == "static"
    assert any("ty failed: no answer" in finding.message for finding in done.findings)
    assert (
        "types of arguments that are no literals, and of results",
        "ty failed: no answer",
    ) in done.unexamined


def test_of_a_remote_tree_it_is_not_asked() -> None:
    done = fit((patch(),), tree_of(FILES, remote=True))
    assert done.proof == "static"
    whys = dict(done.unexamined)
    assert whys["types of arguments that are no literals, and of results"] == "the tree is remote"
    assert any("only some files" in why for why in whys.values())
