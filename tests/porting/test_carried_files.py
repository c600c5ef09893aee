"""Files of a variant carried over: whole ones, those that are elsewhere by now, and those that are nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange
from vllm_mods.porting import files
from vllm_mods.porting.files import FilePort

PATH = "vllm/a.py"
BODY = "".join(f"    step_{n}(path)\n" for n in range(6))
OLD = f"import os\n\n\ndef load(path):\n{BODY}    return 1\n"
NEW = OLD.replace("return 1", "return 2")
CHANGE = FileChange(PATH, OLD.encode(), NEW.encode())


def port(change: Any = CHANGE, base: Any = None, **target: Any) -> FilePort:
    """Carry a change over to a tree of modules of vLLM."""
    trees = [
        MemoryTree({f"vllm/{name}.py": text.encode() for name, text in modules.items()})
        for modules in (target, base or {"a": OLD})
    ]
    return files.port(change, *trees)


def problems(done: FilePort) -> list[tuple[str, str, str | None]]:
    return [(one.code, one.message, one.scope) for one in done.ported.problems]


@pytest.mark.slow
def test_a_file_that_stayed_is_merged_in_its_place() -> None:
    done = port(a="import re\n" + OLD)
    assert (done.path, done.new_path, done.ported.proof) == (PATH, PATH, "file")
    assert done.ported.text == b"import re\n" + NEW.encode()
    assert (done.before, done.ported.followed, done.carried) == (
        b"import re\n" + OLD.encode(),
        (),
        False,
    )
    assert port(a=NEW).carried


def test_a_file_is_followed_to_the_one_that_defines_what_is_changed() -> None:
    done = port(b="# moved\n" + OLD, c="def load(path):\n    return 7\n")
    assert (done.path, done.new_path) == (PATH, "vllm/b.py")
    assert done.ported.text == b"# moved\n" + NEW.encode()
    assert done.before == b"# moved\n" + OLD.encode()
    ((old, new, likeness),) = done.ported.followed
    assert (old, new, likeness) == (PATH, "vllm/b.py", 1.0)
    assert done.ported.followed[0].how == "100% alike"


@pytest.mark.slow
def test_a_function_is_followed_out_of_a_file_that_stayed() -> None:
    done = port(a="import os\n", b=OLD)
    assert (done.path, done.new_path, done.ported.text) == (PATH, "vllm/b.py", NEW.encode())


def test_a_part_of_what_is_changed_is_not_followed_alone() -> None:
    both = OLD + "\n\ndef other():\n    return 1\n"
    change = FileChange(PATH, both.encode(), both.replace("return 1", "return 2").encode())
    done = port(change, {"a": both}, a="def other():\n    return 1\n", b=OLD)
    assert (done.new_path, done.ported.followed) == (PATH, ())
    assert problems(done) == [("gone", "the target has no such class or function", "load")]


@pytest.mark.parametrize(
    "target",
    [
        {},
        {"b": "x = 1\n"},
        # two as good
        {"b": OLD, "c": OLD},
        # unlike
        {"b": "def load(path):\n" + "    other()\n" * 30},
    ],
)
def test_a_file_without_one_home_is_gone(target: dict[str, Any]) -> None:
    done = port(**target)
    assert (done.new_path, done.before, done.ported.text) == (PATH, None, None)
    assert problems(done) == [
        ("file-gone", "the target has no vllm/a.py, and its new place is unknown", "")
    ]


def test_what_is_no_python_is_not_looked_for_elsewhere() -> None:
    trees = MemoryTree({"vllm/b.txt": b"one\n"}), MemoryTree({"vllm/a.txt": b"one\n"})
    done = files.port(FileChange("vllm/a.txt", b"one\n", b"two\n"), *trees)
    assert problems(done)[0][0] == "file-gone"


@pytest.mark.parametrize(
    ("before", "after", "target", "text", "problem"),
    [
        (None, "N\n", {}, b"N\n", None),
        (None, "N\n", {"a": "N\n"}, b"N\n", None),
        (None, "N\n", {"a": "X\n"}, None, ("both-add", "makes")),
        ("N\n", None, {"a": "N\n"}, b"", None),
        ("N\n", None, {}, b"", None),
        ("N\n", None, {"a": "X\n"}, None, ("removed", "removes")),
    ],
)
def test_a_file_that_the_mod_makes_or_removes_is_carried_over_whole(
    before: str | None,
    after: str | None,
    target: dict[str, str],
    text: bytes | None,
    problem: tuple[str, str] | None,
) -> None:
    sides = [None if one is None else one.encode() for one in (before, after)]
    done = port(FileChange(PATH, sides[0], sides[1]), **target)
    assert done.ported.text == text
    assert done.ported.proof == (None if text is None else "file")
    if problem is not None:
        code, verb = problem
        message = f"the mod {verb} vllm/a.py, but the target has it with different contents"
        assert problems(done) == [(code, message, "")]
