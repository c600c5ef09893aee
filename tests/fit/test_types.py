"""What the type checker says: what of it is news, what of that an error, and what happens without it."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest
from fit_tree import FILES, INC, change, tree_of
from small_site import build

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import FileChange, Finding, Level
from vllm_mods.fit import AtOrigin, checker, fit, types
from vllm_mods.fit.checker import Diagnostic
from vllm_mods.fit.world import SummaryCache
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.trees.open import open_tree

PICK = "        return Layer(name, self.bits)\n"
START = "            1"
TAKERS = "vllm/takers.py"
FILES_TOO = {
    **FILES,
    TAKERS: """
        from typing import Protocol


        class Taker(Protocol):
            def take(self, a): ...


        class Plain:
            def take(self, a): ...
            def give(self, a): ...


        class Below(Plain):
            bats = 1

            def give(self, a, b): ...


        class Marker:
            pass


        class Far:
            def __getattr__(self, name): ...


        def once(a): ...
    """,
}
MANY = "Too many positional arguments to"
LACKS = "Object of type"


def findings(
    monkeypatch: pytest.MonkeyPatch, code: str, rule: str, text: str, *, more: str = ""
) -> list[Finding]:
    """Let ty say something of the line of a patch that starts with ``START``."""
    tree = tree_of(FILES_TOO)
    patch = change(tree, INC, (PICK, f"        {code}\n{PICK}"))
    rows = (patch.after or b"").splitlines()
    line = next(n for n, row in enumerate(rows, 1) if row.startswith(START.encode()))
    answers = [(Diagnostic(INC, line, 13, rule, text, more),), ()]
    monkeypatch.setattr(types, "check", lambda *_: answers.pop(0))
    return [f for f in fit((patch,), tree).findings if f"(ty: {rule})" in f.message]


@pytest.mark.parametrize(
    ("code", "rule", "text", "level"),
    [
        (
            "name.take(\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} bound method `Plain.take`: expected 2, got 3",
            "error",
        ),
        (
            "name.take(\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} bound method `Taker.take`: expected 2, got 3",
            "note",
        ),
        # vllm/model_executor/models/minicpmv4_6.py of 0.22.0: of a stated class, one below is meant.
        (
            "name.give(\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} bound method `Plain.give`: expected 2, got 3",
            "note",
        ),
        (
            "name.once(\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} function `once`: expected 1, got 2",
            "error",
        ),
        (
            "name.once(\n            1, a=2)",
            "unknown-argument",
            "Argument `a` does not match any known parameter of `object.__init__`",
            "note",
        ),
        # a Triton kernel is started with more than it takes: what, its compiler says
        (
            "name.once[1](\n            1, multibuffer=2)",
            "unknown-argument",
            "Argument `multibuffer` does not match any known parameter",
            "",
        ),
        (
            "import inspect\n        if 'a' in inspect.signature(name).parameters:\n          name.once(\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} function `once`: expected 1, got 2",
            "",
        ),
        (
            "name(\n            1, 2)",
            "invalid-argument-type",
            "Argument to function `once` is incorrect: Expected `int`, found `list[None]`",
            "error",
        ),
        (
            "name(\n            1, 2)",
            "invalid-argument-type",
            "Argument to function `once` is incorrect: Expected `int`, found `Plain`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `Plain` has no attribute `bits`",
            "error",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `type[Plain]` has no attribute `bits`",
            "error",
        ),
        (
            "name(\n            1).bats",
            "missing-attribute",
            f"{LACKS} `Plain` has no attribute `bats`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `Taker` has no attribute `bits`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `Far` has no attribute `bits`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `list[int]` has no attribute `bits`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `~None` has no attribute `bits`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `FromOutside` has no attribute `bits`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `object` has no attribute `bits`",
            "",
        ),
        # vllm/v1/worker/gpu_model_runner.py of 0.16.0: imported further down in the function.
        (
            "self.bits: (\n            1 | Late) = name",
            "unresolved-reference",
            "Name `Late` used when not defined",
            "",
        ),
        (
            "name.bits = (\n            1)",
            "invalid-assignment",
            "Cannot assign to unresolved attribute `bits` on type `Plain`",
            "note",
        ),
        (
            "name.bits = (\n            1)",
            "invalid-assignment",
            "Object of type `Plain` is not assignable to `int`",
            "",
        ),
        ("name(\n            1)", "not-callable", f"{LACKS} `None` is not callable", "note"),
        ("name(\n            1)", "not-callable", f"{LACKS} `str` is not callable", "error"),
        # vllm_ascend 0.18.0: cdiv(int, int) -> int is given tensors, too.
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `int` has no attribute `unsqueeze`",
            "note",
        ),
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `Literal[1]` has no attribute `unsqueeze`",
            "error",
        ),
        # a class without a member says nothing of what is handed around under its name
        (
            "name(\n            1).bits",
            "missing-attribute",
            f"{LACKS} `Marker` has no attribute `bits`",
            "note",
        ),
        # vllm states `tuple[torch.dtype]` for a field with two
        (
            "a, b = (\n            1 and self).shapes",
            "invalid-assignment",
            "Not enough values to unpack: Expected 2",
            "note",
        ),
        (
            "a, b = (\n            1, )",
            "invalid-assignment",
            "Not enough values to unpack: Expected 2",
            "error",
        ),
        # vllm/distributed/weight_transfer/sharded_rdt_fake.py of 0.29.0: a parameter `args=()`
        (
            "name[(\n            1)]",
            "index-out-of-bounds",
            "Index 0 is out of bounds for tuple `tuple[()]` with length 0",
            "",
        ),
        # vllm/compilation/passes/fusion/minimax_qk_norm_fusion.py of 0.19.1: getattr(config, "names", "")[0]
        (
            "name[(\n            1)]",
            "index-out-of-bounds",
            'Index 0 is out of bounds for string `Literal[""]` with length 0',
            "",
        ),
        # vllm/v1/attention/backends/mla/rocm_aiter_mla.py of 0.19.0: the comment stands where the call begins
        (
            "name.once(  # type: ignore[call-arg]\n            1, 2)",
            "too-many-positional-arguments",
            f"{MANY} function `once`: expected 1, got 2",
            "note",
        ),
        # a property that became a method is always true
        (
            "if (\n            1 and name.bits): pass",
            "redundant-condition",
            "Method `Plain.bits` is always truthy: Did you mean to call this method?",
            "error",
        ),
        (
            "name(\n            1)",
            "invalid-argument-type",
            "Argument to function `once` is incorrect: Expected `int`, found `CoroutineType[Any, Any, int]`",
            "error",
        ),
        (
            "name(\n            1)",
            "invalid-argument-type",
            "Argument to function `once` is incorrect: Expected `Awaitable[int]`, found `CoroutineType[Any, Any, int]`",
            "note",
        ),
        (
            "return (\n            1)",
            "invalid-explicit-return",
            "Return type does not match returned value: expected `int`, found `CoroutineType[Any, Any, int]`",
            "error",
        ),
        (
            "return (\n            1)",
            "invalid-explicit-return",
            "Return type does not match returned value: expected `int`, found `str`",
            "",
        ),
        (
            "name + (\n            1)",
            "unsupported-operator",
            "Operator `+` is not supported between objects of type `A | B` and `int`",
            "note",
        ),
    ],
)
def test_an_error_on_an_added_line_names_what_nothing_else_can_be(
    monkeypatch: pytest.MonkeyPatch, code: str, rule: str, text: str, level: str
) -> None:
    said = findings(monkeypatch, code, rule, text)
    assert [f.level.value for f in said] == [level] * bool(level)
    assert all((f.path, f.scope) == (INC, "INCConfig.pick") for f in said)


def test_of_a_union_another_one_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    # vllm/models/hy_v4 of 0.29.0: getattr(param, "weight_loader", default_weight_loader).
    text = f"{MANY} function `once`: expected 1, got 2"
    more = "  info: Attempted to call union type `Unknown | (def once(a))`"
    rule = "too-many-positional-arguments"
    (note,) = findings(monkeypatch, "name.load(\n            1, 2)", rule, text, more=more)
    assert note.level is Level.NOTE


def test_outside_the_added_lines_a_breaking_rule_needs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = tree_of(FILES)
    patch = change(tree, INC, (PICK, "        print(name)\n" + PICK))
    text = f"{LACKS} `FromOutside` has no attribute `bits`"
    here, there = (Diagnostic(INC, n, 9, "missing-attribute", text) for n in (32, 33))
    answers = [(here, there), ()]
    monkeypatch.setattr(types, "check", lambda *_: answers.pop(0))
    said = [f for f in fit((patch,), tree).findings if f.code == "fit-attribute"]
    assert [(f.line, f.level.value) for f in said] == [(33, "error"), (32, "note")]


@pytest.mark.slow
def test_what_the_checker_does_not_say_where_the_patch_was_written_needs_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tree = tree_of(FILES)
    patch = change(tree, INC, (PICK, "        print(name)\n" + PICK))
    text = f"{LACKS} `FromOutside` has no attribute `{{}}`"
    one = Diagnostic(INC, 32, 9, "missing-attribute", text.format("bits"))

    def level(*there: Diagnostic) -> str:
        answers = [(one,), (), there, ()]
        monkeypatch.setattr(types, "check", lambda *_: answers.pop(0))
        found = fit((patch,), tree, origin=AtOrigin(tree_of(FILES), (patch,))).findings
        (said,) = [f for f in found if f.code == "fit-attribute"]
        return said.level.value

    assert level() == "error"
    assert level(one._replace(line=7)) == "note"  # the same words
    assert level(one._replace(text=text.format("more"))) == "note"  # of the same line of code
    assert level(one._replace(line=7, text=text.format("more"))) == "error"


@pytest.mark.parametrize("identity", ["of the release", None])
def test_where_a_patch_was_written_it_is_asked_of_once(
    monkeypatch: pytest.MonkeyPatch, identity: str | None
) -> None:
    tree, written_for = tree_of(FILES), tree_of(FILES)
    written_for.identity = identity
    patch = change(tree, INC, (PICK, "        print(name)\n" + PICK))
    other = change(tree, INC, (PICK, "        print(name, name)\n" + PICK))
    text = f"{LACKS} `FromOutside` has no attribute `bits`"
    asked: list[str] = []

    def check(folder: str, *_: object) -> tuple[Diagnostic, ...]:
        asked.append(folder)
        said = Diagnostic(INC, 32, 9, "missing-attribute", text)
        return (said,) if b"print(" in Path(folder, INC).read_bytes() else ()

    monkeypatch.setattr(types, "check", check)
    cache = SummaryCache()
    for one in (patch, patch, other):
        fit((one,), tree, cache=cache, origin=AtOrigin(written_for, (one,)))
    assert len(asked) == (3 + 2 if identity else 3 + 3) * 2
    on_another = LayeredTree(written_for, [FileChange("vllm/more.py", None, b"")])
    fit((patch,), tree, cache=cache, origin=AtOrigin(on_another, (patch,)))
    assert len(asked) == (7 if identity else 8) * 2


@pytest.mark.slow
def test_what_the_checker_cannot_read_is_said() -> None:
    tree = tree_of({**FILES, "vllm/old.py": ""})
    data = "# -*- coding: latin-1 -*-\nNAME = 'é'\n".encode("latin-1")
    for before in (b"", data.replace(b"NAME", b"NAM")):
        tree.files["vllm/old.py"] = before
        (note,) = fit((FileChange("vllm/old.py", before, data),), tree).findings
        assert "Failed to read file" in note.message
        assert (note.code, note.level) == ("fit-unknown", Level.NOTE)


def test_only_what_is_new_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = tree_of(FILES)
    patch = change(tree, INC, (PICK, "        print(name)\n" + PICK))
    text = f"{LACKS} `Layer` has no attribute `{{}}`"
    old = Diagnostic(INC, 32, 9, "missing-attribute", text.format("old"))
    new = old._replace(line=33)
    # what moved to another definition of the file is no news either
    moved = old._replace(line=14, text=text.format("moved"))
    answers = [(new, moved._replace(line=33)), (old, moved)]
    monkeypatch.setattr(types, "check", lambda *_: answers.pop(0))
    assert not [f for f in fit((patch,), tree).findings if f.code == "fit-attribute"]


USER = "vllm/model_executor/user.py"
IMPORTING = "from vllm.model_executor.layers.quantization.inc import INCConfig\n"


def test_a_user_of_a_changed_file_is_asked_where_it_names_what_was_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[set[str]] = []

    def check(_: str, paths: set[str], *__: object) -> tuple[Diagnostic, ...]:
        asked.append(set(paths))
        return ()

    monkeypatch.setattr(types, "check", check)
    tree = tree_of({**FILES, USER: IMPORTING})
    fit((change(tree, INC, (PICK, "        print(name)\n" + PICK)),), tree)
    fit((change(tree, INC, ("bits: int, group", "bits: int, more: int, group")),), tree)
    assert [USER in paths for paths in asked if paths] == [False, True]


# --- the checker itself


@pytest.mark.slow
@pytest.mark.started
def test_no_package_of_this_environment_is_seen() -> None:
    lines = """        import click
        outside: click.Command = name
        outside.nothing()
        inside: LLM = name
        inside.nothing()
"""
    tree = tree_of(FILES)
    before = tree.files[INC]
    top = b"from vllm.entrypoints.llm import LLM\n"
    after = top + before.replace(PICK.encode(), (lines + PICK).encode())
    (error,) = [
        f for f in fit((FileChange(INC, before, after),), tree).findings if f.level is Level.ERROR
    ]
    assert "`LLM` has no attribute `nothing`" in error.message


@pytest.mark.parametrize("call", ["mkdtemp", "symlink", "mkdir"])
def test_where_no_temporary_file_can_be_written_the_tree_is_unreadable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: str
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "folder/x")

    tree = open_tree(str(build(tmp_path / "site")))
    before = tree.read("vllm/other.py") or b""
    patch = FileChange("vllm/other.py", before, before + b"B = 1\n")
    monkeypatch.setattr(tempfile if call == "mkdtemp" else os, call, full)
    with pytest.raises(TreeError, match="did not run: No space left on device: folder/x"):
        fit((patch,), tree)


@pytest.mark.slow
def test_under_a_lower_limit_than_its_own_the_checker_answers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("nobody\n")
    code = f"from vllm_mods.fit import checker; print(checker.check({str(tmp_path)!r}, ['a.py'], ['unresolved-reference'], None))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert "Name `nobody` used when not defined" in done.stdout, done.stderr


def test_the_pinned_version_is_the_one_that_is_asked() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    assert f"ty=={checker.VERSION}" in project["project"]["dependencies"]


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a place for a program that is found as ty, and nothing else is."""
    checker.program.cache_clear()
    monkeypatch.setattr(checker, "_installed", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path / "ty"


@pytest.fixture(autouse=True)
def _forget() -> object:
    yield
    checker.program.cache_clear()


def write(fake: Path, script: str, version: str = checker.VERSION) -> None:
    lines = ("#!/bin/sh", f'[ "$1" = --version ] && {{ echo ty {version}; exit; }}', script, "")
    fake.write_text("\n".join(lines), encoding="utf-8")
    fake.chmod(0o755)


def judge() -> None:
    tree = tree_of(FILES)
    fit((change(tree, INC, (PICK, "        print(name)\n" + PICK)),), tree)


@pytest.mark.parametrize("version", ["", "0.0.1"])
def test_without_the_pinned_version_nothing_is_judged(
    fake: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    if version:
        write(fake, "exit 0", version)
    else:
        monkeypatch.setenv("PATH", str(fake.parent))
    with pytest.raises(UsageError, match="is not installed") as error:
        judge()
    assert error.value.hint == f"pip install ty=={checker.VERSION}"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo broken >&2; exit 2", "broken"),
        ("kill -SEGV $$", "Segmentation fault"),
        ("echo '::error title=what is this'", "it printed"),
        ("exec sleep 60", "more than 0.2 seconds"),
    ],
)
def test_a_checker_that_gives_no_answer_is_no_yes(
    fake: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setattr(checker, "_SECONDS", 0.2)
    write(fake, script)
    with pytest.raises(TreeError, match=why):
        judge()


def test_where_ty_is_on_the_path_it_is_taken_from_there(fake: Path) -> None:
    write(fake, "exit 0")
    judge()
    assert checker.program() == str(fake)
