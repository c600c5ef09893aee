"""What one worker answers of a tree: each mod as if it were the only one, and what of it is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, lock_of, mod, variant
from release_shelf import ReleaseInMemory, Shelf

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.base.model import Verdict
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.work import Task
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from vllm_mods.base.model import Mod

NAME, PATH = "flash-linear-attention", "fla/x.py"
FILES = {"vllm/__init__.py": b"", "vllm/m.py": b"A = 1\n", PATH: b"X = 1\n"}
FOR_IT = mod(
    variant(diff_of(PATH, "X = 1\n", "X = 2\n"), package=NAME, package_version=">=0"),
    name="for-it",
    outside=(PATH,),
)
NO_WORD_OF_IT = mod(
    variant(diff_of(PATH, "X = 1\n", "X = 3\n")), name="no-word-of-it", outside=(PATH,)
)
PLAIN = mod(variant(diff_of("vllm/m.py", "A = 1\n", "A = 2\n")), name="plain")


@dataclass
class Beside(ReleaseInMemory):
    """A release that finds what is of a package when it was asked for it by its name, as archives do."""

    asked: set[str] = field(default_factory=set)

    def apart(self) -> Self:
        return type(self)(self.files, packages=self.packages, spec=self.spec)

    def package(self, name: str) -> str | None:
        self.asked.add(name)
        return super().package(name)

    def read(self, path: str) -> bytes | None:
        known = not path.startswith("fla/") or NAME in self.asked
        return super().read(path) if known else None


def beside() -> Beside:
    return Beside(FILES, packages={NAME: "1.0"}, spec="memory:0.19.1")


def said(
    cache: Path, tree: ReleaseInMemory, *asked: str, mods: tuple[Mod, ...], **more: Any
) -> list[Cell]:
    origin = ReleaseInMemory(FILES, version="0.19.0", spec="memory:0.19.0")
    shelf = Shelf(mods, [origin, tree], str(cache), store=True, **more)
    return [*shelf.run(Task(tree.spec, asked))]


def locked() -> Mod:
    tree = beside()
    return FOR_IT._replace(lock=lock_of(plan([FOR_IT], tree).mods[0]))


@pytest.mark.parametrize("with_lock", [False, True])
def test_what_is_of_a_package_is_found_by_its_name(tmp_path: Path, with_lock: bool) -> None:  # noqa: FBT001
    one = locked() if with_lock else FOR_IT
    (answer,) = said(tmp_path, beside(), one.name, mods=(one,))
    (shown,) = said(tmp_path, beside(), one.name, mods=(one,), show=True)
    assert (answer.verdict, answer.packages) == (Verdict.APPLIES, ((NAME, "1.0"),))
    assert [hunk.target for hunk in shown.hunks] == [((1, "X = 1"),)]


def test_what_another_mod_asked_for_changes_no_answer(tmp_path: Path) -> None:
    mods = (FOR_IT, NO_WORD_OF_IT)
    for names in ((FOR_IT, NO_WORD_OF_IT), (NO_WORD_OF_IT, FOR_IT)):
        answers = said(tmp_path, beside(), *(one.name for one in names), mods=mods)
        by_name = dict(zip(names, answers, strict=True))
        with_it, without = by_name[FOR_IT], by_name[NO_WORD_OF_IT]
        assert (with_it.verdict, without.verdict) == (Verdict.APPLIES, Verdict.MISSING)


@dataclass
class Failing(ReleaseInMemory):
    """A release of which one file cannot be had."""

    error: TreeError = field(default_factory=lambda: TreeError("it is broken"))

    def read(self, path: str) -> bytes | None:
        if path == "vllm/m.py":
            raise self.error
        return super().read(path)


@pytest.mark.parametrize(
    ("error", "computed"), [(TreeError("it is broken"), True), (Unreachable("no network"), False)]
)
def test_an_answer_is_kept_only_if_all_could_be_read(
    tmp_path: Path,
    error: TreeError,
    computed: bool,  # noqa: FBT001
) -> None:
    known: dict[str, Any] = {"spec": "memory:0.19.1", "identity": "1" * 64}
    (first,) = said(tmp_path, Failing(FILES, error=error, **known), PLAIN.name, mods=(PLAIN,))
    assert (first.verdict, first.computed) == (Verdict.UNREADABLE, computed)
    (second,) = said(tmp_path, ReleaseInMemory(FILES, **known), PLAIN.name, mods=(PLAIN,))
    assert second.verdict is Verdict.APPLIES
    # and that one is: nobody asks the tree any more
    assert said(tmp_path, Failing(FILES, error=error, **known), PLAIN.name, mods=(PLAIN,)) == [
        second
    ]


def test_a_type_checker_that_was_killed_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> str:
        raise TreeError("the type checker gave no answer: Killed")

    one = mod(variant(diff_of("vllm/m.py", "A = 1\n", "A = len([])\n")))
    known: dict[str, Any] = {"spec": "memory:0.19.1", "identity": "1" * 64}
    with monkeypatch.context() as patch:
        patch.setattr("vllm_mods.fit.checker._run", killed)
        (cell,) = said(tmp_path, ReleaseInMemory(FILES, **known), one.name, mods=(one,))
        assert cell.verdict is Verdict.UNREADABLE
    (cell,) = said(tmp_path, ReleaseInMemory(FILES, **known), one.name, mods=(one,))
    assert cell.verdict is Verdict.APPLIES


@pytest.mark.parametrize("error", [TreeError("it is broken"), Unreachable("no network")])
def test_nothing_is_kept_to_show_of_an_answer_that_is_not(tmp_path: Path, error: TreeError) -> None:
    known: dict[str, Any] = {"spec": "memory:0.19.1", "identity": "1" * 64}
    wanted: dict[str, Any] = {"mods": (PLAIN,), "show": True}
    (failed,) = said(tmp_path, Failing(FILES, error=error, **known), PLAIN.name, **wanted)
    assert failed.hunks == ()
    whole = ReleaseInMemory(FILES, **known)
    (shown,) = said(tmp_path, whole, PLAIN.name, **wanted)
    assert [hunk.target for hunk in shown.hunks] == [((1, "A = 1"),)]
    # and that is: nobody asks the tree any more
    whole.reads.clear()
    assert said(tmp_path, whole, PLAIN.name, **wanted) == [shown]
    assert not whole.reads


@pytest.mark.parametrize(
    ("setting", "is_kept"),
    [
        ({}, True),
        ({"strict": True}, False),
        ({"others": {"other": "1.0"}}, True),
        ({"others": {"other": "1.0", NAME: "1.0"}}, False),
    ],
)
def test_what_was_asked_otherwise_is_asked_again(
    tmp_path: Path,
    setting: dict[str, Any],
    is_kept: bool,  # noqa: FBT001
) -> None:
    tree = Beside(FILES, packages={NAME: "1.0"}, spec="memory:0.19.1", identity="1" * 64)
    tree.apart = lambda: tree  # type: ignore[method-assign]

    def reads(**more: Any) -> bool:
        tree.reads.clear()
        (answer,) = said(tmp_path, tree, FOR_IT.name, mods=(FOR_IT,), **more)
        assert answer.verdict is Verdict.APPLIES
        return bool(tree.reads)

    assert reads()
    assert reads(**setting) is not is_kept
    assert not reads(**setting)
    assert not reads()


def test_another_version_of_a_package_is_asked_for_anew(tmp_path: Path) -> None:
    for number in ("1.0", "2.0"):
        tree = Beside(FILES, packages={NAME: number}, spec="memory:0.19.1", identity="1" * 64)
        named = {"others": {NAME: number}}
        (answer,) = said(tmp_path, tree, FOR_IT.name, mods=(FOR_IT,), **named)
        assert answer.packages == ((NAME, number),)


def test_a_tree_that_nothing_names_is_asked_each_time(tmp_path: Path) -> None:
    other = {**FILES, "vllm/m.py": b"B = 1\n"}
    for files, verdict in ((FILES, Verdict.APPLIES), (other, Verdict.CONFLICT)):
        tree = ReleaseInMemory(files, spec="memory:0.19.1")
        (answer,) = said(tmp_path, tree, PLAIN.name, mods=(PLAIN,))
        assert answer.verdict is verdict
    assert not list(tmp_path.rglob("answers/*"))
