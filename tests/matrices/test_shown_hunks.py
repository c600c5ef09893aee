"""What is shown of a cell: each hunk beside the lines where it goes in, where it is in, or that are most like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.matrices.explain import explain
from vllm_mods.matrices.work import blank_cell, filled
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod
    from vllm_mods.matrices.cell import HunkView

PATH, NEW = "vllm/a.py", "vllm/n.py"
CODE = [
    *("import os", "", "", "class C:", "    def f(self):"),
    *("        a = 1", "        b = 2", "        return a + b", "", "", "X = 1", "Y = 2"),
]
OLD = "\n".join(CODE) + "\n"
MIDDLE, BOTH = (
    OLD.replace("b = 2", "b = 3"),
    OLD.replace("b = 2", "b = 3").replace("Y = 2", "Y = 3"),
)
MOD = mod(variant(diff_of(PATH, OLD, BOTH, context=1, section="class C:")))
MADE = b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1,2 @@\n+A = 1\n+B = 2\n"


def shown(of: Mod, **files: str) -> list[HunkView]:
    """Return what is shown of a mod on a tree of these modules of vLLM."""
    data = {
        f"vllm/{name}.py": text.encode("utf-8", "surrogateescape") for name, text in files.items()
    }
    tree = MemoryTree({"vllm/__init__.py": b"", **data})
    cell = filled(blank_cell(of, tree.spec, tree.version), plan([of], tree).mods[0])
    return [*explain(of, cell, tree)]


def numbered(text: str, first: int, last: int) -> tuple[tuple[int, str], ...]:
    """Return the lines of a text from one to another, which is the last of them."""
    return tuple((n, text.splitlines()[n - 1]) for n in range(first, last + 1))


def test_a_hunk_that_goes_in_stands_beside_its_place_and_three_lines_around() -> None:
    first, second = shown(MOD, a=OLD)
    assert (first.patch, first.path, first.number, first.scope) == ("one/0.patch", PATH, 1, "C.f")
    assert first.lines == (" " + CODE[5], "-        b = 2", "+        b = 3", " " + CODE[7])
    assert (first.line, first.offset, first.target) == (6, 0, numbered(OLD, 3, 11))
    # no further than to the end of the file
    assert (second.number, second.line, second.target) == (2, 11, numbered(OLD, 8, 12))


def test_a_hunk_that_moved_says_how_far_and_what_proves_it() -> None:
    text = "import re\n\n" + OLD
    of = mod(variant(diff_of(PATH, OLD, MIDDLE, section="class C:")))
    (view,) = shown(of, a=text)
    assert (view.line, view.offset, view.proof) == (6, 2, "scope")
    assert view.target == numbered(text, 3, 14)


def test_what_is_in_already_is_shown_as_the_patch_has_it_beside_what_it_left() -> None:
    first, second = shown(MOD, a=BOTH)
    assert first.lines[1:3] == ("-        b = 2", "+        b = 3")
    assert (first.line, first.offset, first.target) == (6, 0, numbered(BOTH, 3, 11))
    assert second.target == numbered(BOTH, 8, 12)


def test_a_hunk_without_a_place_stands_beside_what_is_most_like_it() -> None:
    text = OLD.replace("b = 2", "b = 4")
    first, second = shown(MOD, a=text)
    assert (first.line, first.offset, first.proof) == (7, None, None)  # the line that differs
    assert first.target == numbered(text, 3, 11)
    assert (second.line, second.offset, second.proof) == (11, 0, "scope")


def test_a_hunk_whose_text_stands_elsewhere_stands_beside_it() -> None:
    text = OLD.replace("class C", "class D")
    first, _ = shown(MOD, a=text)
    assert (first.line, first.proof, first.target) == (6, None, numbered(text, 3, 11))


@pytest.mark.parametrize("files", [{}, {"a": "def (:\n"}, {"a": "q\n"}])
def test_what_nothing_is_like_stands_beside_nothing(files: dict[str, str]) -> None:
    views = shown(MOD, **files)
    assert [(one.number, one.line, one.offset, one.proof) for one in views] == [
        (1, None, None, None),
        (2, None, None, None),
    ]
    assert {one.target for one in views} == {()}


def test_a_new_file_is_proven_by_nothing_being_in_its_place() -> None:
    of = mod(variant(MADE))
    (view,) = shown(of)
    assert (view.line, view.offset, view.proof, view.target) == (1, 0, "new file", ())
    assert view.lines == ("+A = 1", "+B = 2")
    (view,) = shown(of, n="A = 1\nB = 4\n")
    assert (view.line, view.offset, view.proof) == (1, None, None)
    assert view.target == ((1, "A = 1"), (2, "B = 4"))
    (view,) = shown(of, n="A = 1\nB = 2\n")
    assert (view.line, view.proof, view.target) == (1, "stated", ((1, "A = 1"), (2, "B = 2")))


@pytest.mark.parametrize(
    ("second", "path", "before", "after"),
    [
        (diff_of(PATH, MIDDLE, MIDDLE.replace("b = 3", "b = 4")), "a", MIDDLE, "        b = 4"),
        (diff_of(NEW, "A = 1\nB = 2\n", "A = 1\nB = 3\n"), "n", "A = 1\nB = 2\n", "B = 3"),
    ],
)
def test_a_patch_is_shown_beside_what_the_ones_before_it_left(
    second: bytes, path: str, before: str, after: str
) -> None:
    of = mod(variant(diff_of(PATH, OLD, MIDDLE), MADE, second))
    *_, last = shown(of, a=OLD)
    assert (last.patch, last.offset) == ("one/2.patch", 0)
    assert set(last.target) <= set(numbered(before, 1, before.count("\n")))
    # and taken out again from the last to the first
    done = {"a": MIDDLE, "n": "A = 1\nB = 2\n"}
    changed = done[path].replace("b = 3", "b = 4").replace("B = 2", "B = 3") if path == "n" else ""
    done[path] = changed or MIDDLE.replace("b = 3", "b = 4")
    views = shown(of, **done)
    assert [one.patch for one in views] == ["one/2.patch", "one/1.patch", "one/0.patch"]
    assert all(one.proof for one in views)
    assert after in dict(views[0].target).values()


def test_nothing_is_shown_of_a_patch_behind_one_that_has_no_place() -> None:
    of = mod(variant(diff_of(PATH, OLD, BOTH, context=1), diff_of(PATH, BOTH, OLD)))
    text = OLD.replace("Y = 2", "Y = 9")
    last = shown(of, a=text)[-1]
    assert (last.patch, last.proof) == ("one/1.patch", None)
    assert set(last.target) <= set(numbered(text, 1, 12))  # the first hunk alone was not put in


def test_nothing_is_shown_where_no_variant_was_tried() -> None:
    nothing = blank_cell(MOD, "pypi:0.19.1", None)
    assert [*explain(MOD, nothing, MemoryTree({PATH: OLD.encode()}))] == []


def test_lines_are_shown_without_their_ends_and_with_bytes_that_are_no_text() -> None:
    text = "# coding: latin-1\r\nB = 2  # \udcff\r\n"
    patch = b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1,2 +1,2 @@\n # coding: latin-1\r\n-B = 2  # \xff\r\n+B = 3\r\n"
    (view,) = shown(mod(variant(patch)), a=text)
    assert view.lines == (" # coding: latin-1", "-B = 2  # \ufffd", "+B = 3")
    assert view.target == ((1, "# coding: latin-1"), (2, "B = 2  # \ufffd"))
