"""The second opinion: what of it is news, what of that an error, and what happens without it."""

from __future__ import annotations

import re

import pytest
from fit_tree import FILES, INC, change, tree_of

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit, judge, types

PICK = "        return Layer(name, self.bits)\n"


def said(*lines: str, more: str = "") -> list[object]:
    """Write ``LINE:COLUMN: error[RULE] TEXT`` as ty does, and read it."""
    parts = (re.fullmatch(r"(\d+:\d+): (error\[.*?\]) (.*)", line) for line in lines)
    blocks = (f"{p[2]}: {p[3]}\n --> {INC}:{p[1]}\n  |\n{more}\n" for p in parts if p)
    return [*types._SAID.finditer("\n".join(blocks))]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[object]]:
    """Let ``ty`` say what a test puts in: first of the files before, then of those after."""
    answers: list[list[object]] = []
    monkeypatch.setattr(judge, "find_spec", lambda _: True)
    monkeypatch.setattr(types, "_check", lambda *_: answers.pop(0))
    return answers


def patch() -> FileChange:
    return change(tree_of(FILES), INC, (PICK, "        print(name)\n" + PICK))


def row() -> int:
    rows = (patch().after or b"").splitlines()
    return next(n for n, text in enumerate(rows, 1) if b"print" in text)


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
        "31:9: error[invalid-argument-type] Argument to bound method `INCConfig.pick` is incorrect: Expected `int`, found `object`",
        "31:9: error[invalid-argument-type] Argument to bound method `INCConfig.pick` is incorrect: Expected `int`, found `list[None]`",
        "31:9: error[unknown-argument] Argument `a` does not match any known parameter of `object.__init__`",
    ]
    asked += [said(old, *(line.replace("31:", f"{row()}:") for line in new)), said(old)]
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


def test_what_is_stated_as_any_object_or_any_class_is_no_concrete_owner(
    asked: list[list[object]],
) -> None:
    new = (
        "31:9: error[missing-attribute] Object of type `object` has no attribute `set`",
        "31:9: error[not-callable] Object of type `object` is not callable",
        "31:9: error[not-callable] Object of type `None` is not callable",
        "31:9: error[missing-attribute] Object of type `type` has no attribute `can_implement`",
    )
    asked += [said(*(line.replace("31:", f"{row()}:") for line in new)), []]
    found = [f for f in fit((patch(),), tree_of(FILES)).findings if f.code == "fit-types"]
    assert [f.level for f in found] == [Level.NOTE]


def test_an_attribute_that_a_class_below_the_stated_one_has_is_a_note(
    asked: list[list[object]],
) -> None:
    below = "vllm/below.py"
    files = {
        **FILES,
        "vllm/one.py": "class Owner: ...\n\n\nclass Between(\n    Owner\n):\n    near = 1\n",
        below: "class Low(Generic[T], one.Between):\n    def late(self): ...\n",
        "vllm/other.py": "class Other:\n    far = 1\n",
    }
    lines = [
        f"31:9: error[missing-attribute] Object of type `{kind}` has no attribute `{name}`"
        for kind in ("Owner", "type[Owner]", "<class 'Owner'>")
        for name in ("near", "late", "far")
    ]
    asked += [said(*(line.replace("31:", f"{row()}:") for line in lines)), []]
    brought = FileChange(path=below, before=b"", after=files.pop(below).encode())
    found = [f for f in fit((patch(), brought), tree_of(files)).findings if f.code == "fit-types"]
    assert [f.message.count("`far`") for f in found if f.level is Level.ERROR] == [1, 1, 1]
    assert "6 missing-attribute" in next(f.message for f in found if f.level is Level.NOTE)


TAKERS = """
    from typing import Protocol

    class Taker(Protocol):
        def take(self, a): ...

    class Plain:
        def take(self, a): ...
        def give(self, a): ...

    class Below(Plain):
        def give(self, a, b): ...

    def once(a): ...
"""
MANY = "error[too-many-positional-arguments] Too many positional arguments to"
LACKS = "error[missing-attribute] Object of type"


@pytest.mark.parametrize(
    ("code", "said_of_it", "wrong"),
    [
        (
            "name.take(\n            1, 2)",
            f"{MANY} bound method `Plain.take`: expected 2, got 3",
            True,
        ),
        (
            "name.take(\n            1, 2)",
            f"{MANY} bound method `Taker.take`: expected 2, got 3",
            False,
        ),
        # vllm/model_executor/models/minicpmv4_6.py of 0.22.0: of a stated class, one below is meant.
        (
            "name.give(\n            1, 2)",
            f"{MANY} bound method `Plain.give`: expected 2, got 3",
            False,
        ),
        ("name.once(\n            1, 2)", f"{MANY} function `once`: expected 1, got 2", True),
        (
            (
                "import inspect\n        if 'a' in inspect.signature(name).parameters:\n"
                "          name.once(\n            1, 2)"
            ),
            f"{MANY} function `once`: expected 1, got 2",
            False,
        ),
        ("name(\n            1).bits", f"{LACKS} `Plain` has no attribute `bits`", True),
        ("name(\n            1).bits", f"{LACKS} `Taker` has no attribute `bits`", False),
        ("name(\n            1).bits", f"{LACKS} `list[int]` has no attribute `bits`", False),
        ("name(\n            1).bits", f"{LACKS} `~None` has no attribute `bits`", False),
        ("name(\n            1).bits", f"{LACKS} `FromOutside` has no attribute `bits`", False),
        # vllm/v1/worker/gpu_model_runner.py of 0.16.0: imported further down in the function.
        (
            "self.bits: (\n            1 | Late) = name",
            "error[unresolved-reference] Name `Late` used when not defined",
            False,
        ),
        (
            "name.bits = (\n            1)",
            "error[missing-attribute] Unresolved attribute `bits` on type `Plain`",
            False,
        ),
    ],
)
def test_an_error_names_what_the_tree_defines(
    asked: list[list[object]], code: str, said_of_it: str, *, wrong: bool
) -> None:
    files = {**FILES, "vllm/takers.py": TAKERS}
    tree = tree_of(files)
    one = change(tree, INC, (PICK, f"        {code}\n{PICK}"))
    rows = (one.after or b"").splitlines()
    line = next(n for n, text in enumerate(rows, 1) if text.startswith(b"            1"))
    asked += [said(f"{line}:13: {said_of_it}"), []]
    found = [f for f in fit((one,), tree).findings if f.code == "fit-types"]
    assert [f.level for f in found] == [Level.ERROR if wrong else Level.NOTE]


def test_of_a_union_another_one_may_be_meant(asked: list[list[object]]) -> None:
    # vllm/models/hy_v4 of 0.29.0: getattr(param, "weight_loader", default_weight_loader).
    tree = tree_of({**FILES, "vllm/takers.py": TAKERS})
    one = change(tree, INC, (PICK, "        name.load(1, 2)\n" + PICK))
    rows = (one.after or b"").splitlines()
    line = next(n for n, text in enumerate(rows, 1) if b"name.load" in text)
    what = f"{line}:9: {MANY} function `once`: expected 1, got 2"
    asked += [said(what, more="info: Attempted to call union type `Unknown | (def once(a))`\n"), []]
    found = [f for f in fit((one,), tree).findings if f.code == "fit-types"]
    assert [f.level for f in found] == [Level.NOTE]


def test_what_the_static_proof_says_of_a_call_is_not_said_again(asked: list[list[object]]) -> None:
    tree = tree_of(FILES)
    one = change(
        tree,
        INC,
        (
            PICK,
            f"        from vllm.logger import init_logger\n        init_logger(\n            name, 2)\n{PICK}",
        ),
    )
    rows = (one.after or b"").splitlines()
    line = next(n for n, text in enumerate(rows, 1) if b"name, 2)" in text)
    asked += [said(f"{line}:19: {MANY} function `init_logger`: expected 1, got 2"), []]
    (error,) = [f for f in fit((one,), tree).findings if f.level is Level.ERROR]
    assert (error.code, error.line) == ("fit-call", line - 1)


def test_a_user_of_a_changed_file_is_asked_where_it_names_what_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[set[str]] = []

    def check(_: str, paths: set[str], *__: object) -> list[object]:
        asked.append(set(paths))
        return []

    monkeypatch.setattr(judge, "find_spec", lambda _: True)
    monkeypatch.setattr(types, "_check", check)
    user = "vllm/model_executor/user.py"
    importing = "from vllm.model_executor.layers.quantization.inc import INCConfig\n"
    tree = tree_of({**FILES, user: importing})
    fit((change(tree, INC, (PICK, "        print(name)\n" + PICK)),), tree)
    fit((change(tree, INC, ("class INCConfig", "class INCConfiguration")),), tree)
    assert [user in paths for paths in asked] == [False, False, True, False]


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


@pytest.mark.types
def test_the_checker_itself_is_asked_and_sees_no_package_of_this_environment() -> None:
    pytest.importorskip("ty")
    lines = """        import click
        outside: click.Command = name
        outside.nothing()
        inside: LLM = name
        inside.nothing()
"""
    tree = tree_of(FILES)
    top = "from vllm.entrypoints.llm import LLM\n"
    before = tree.read(INC) or b""
    one = FileChange(
        path=INC,
        before=before,
        after=top.encode() + before.replace(PICK.encode(), (lines + PICK).encode()),
    )
    files = {path: tree.read(path) or b"" for path in tree.paths() if path.endswith(".py")}
    found, why = types.second_opinion((one,), files, (3, 10))
    assert not why
    (error,) = found
    assert "Object of type `LLM` has no attribute `nothing`" in error.message
