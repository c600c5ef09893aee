"""Where a class or function is that is gone from its file: which files are looked at, in which order, and what is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.errors import TreeError
from vllm_mods.placing import relocation

if TYPE_CHECKING:
    from collections.abc import Mapping

LOST = "vllm/a/lost.py"


def tree(files: Mapping[str, str], *, remote: bool = False) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in files.items()}, remote=remote)


def search(files: Mapping[str, str], name: str = "f", path: str = LOST) -> tuple[str, str]:
    code, words = relocation.search(tree(files), name, path)
    return code.value, words


@pytest.mark.parametrize(
    "text", ["def f(): 1", "async  def\tf(): 1", "class f: 1", "class f(A): 1", "x\ndef f[T](): 1"]
)
def test_what_is_defined_at_the_top_of_another_file_is_found_there(text: str) -> None:
    line = text.count("\n") + 1
    assert search({"vllm/b.py": text}) == ("scope-gone", f"`f` is defined in vllm/b.py:{line}")


@pytest.mark.parametrize("text", ["  def f(): 1", "def ff(): 1", "def g(): f", "x = f", "#f"])
def test_what_is_not_defined_at_the_top_is_only_named(text: str) -> None:
    code, words = search({"vllm/b.py": text, "vllm/c.txt": "def f(): 1", LOST: "def f(): 1"})
    if "ff" in text:
        assert (code, words) == (
            "superseded",
            "this version no longer has it: none of the 1 Python files of vllm/ contains the name",
        )
    else:
        assert (code, words) == (
            "scope-gone",
            "no file of vllm/ defines `f`, but vllm/b.py contains the name",
        )


def test_three_places_are_told_and_those_of_the_package_of_the_file_alone() -> None:
    files = {f"ext/{n}.py": "def f(): 1" for n in range(5)} | {"vllm/b.py": "def f(): 1"}
    assert search(files, path="ext/lost.py") == (
        "scope-gone",
        "`f` is defined in ext/0.py:1, ext/1.py:1, ext/2.py:1",
    )
    assert search(files, "f.x") == (
        "superseded",
        "this version no longer has it: none of the 1 Python files of vllm/ contains the name",
    )


LIKELIEST = [
    "vllm/a/b/lost.py",
    "vllm/lost.py",
    "vllm/a/lost/core.py",  # the module has become a package
    "vllm/a/lo.py",
    "vllm/a/lost_more.py",
    "vllm/a/other.py",
    "vllm/a/b/c/other.py",
    "vllm/z.py",
]


def test_files_are_looked_at_by_how_much_their_paths_are_like_the_lost_one() -> None:
    files = dict.fromkeys(sorted(LIKELIEST), "def f(): 1\ndef g(): 1")
    assert list(relocation.defining(tree(files), LOST, ["f", "g"])) == LIKELIEST
    assert list(relocation.defining(tree(files), LOST, ["f", "h"])) == []


def test_of_a_remote_tree_the_twelve_likeliest_are_read() -> None:
    files = {f"vllm/{n:02}.py": "" for n in range(14)} | {"vllm/13.py": "def f(): 1"}
    there = tree(files, remote=True)
    code, words = relocation.search(there, "f", LOST)
    assert (code.value, words) == (
        "scope-gone",
        "the 12 likeliest of 14 files do not define it; the others were not read",
    )
    assert sorted(there.reads) == sorted(files)[:12]
    assert list(relocation.defining(tree(files, remote=True), LOST, ["f"])) == []
    old = tree({path: "" for path in files if path != "vllm/13.py"})
    new = tree(files, remote=True)
    assert list(relocation.defining(new, LOST, ["f"], old)) == ["vllm/13.py"]
    assert next(iter(new.reads)) == "vllm/13.py"


def test_files_that_the_tree_before_had_not_are_looked_at_first() -> None:
    files = {"vllm/a/lost2.py": "  def f(): 1", "vllm/z.py": "\tclass f: 1", "vllm/y.py": "f"}
    old = tree({"vllm/a/lost2.py": ""})
    assert list(relocation.defining(tree(files), LOST, ["f"], old)) == [
        "vllm/z.py",
        "vllm/a/lost2.py",
    ]
    assert list(relocation.defining(tree(files), LOST, ["f"])) == ["vllm/a/lost2.py", "vllm/z.py"]


def test_what_cannot_be_read_defines_nothing() -> None:
    class Broken(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"{path} is a link")

    there = Broken({"vllm/b.py": b"def f(): 1"})
    assert relocation.search(there, "f", LOST)[0] == "superseded"
