"""Three-way merges: of lines, of outlines, and both on one file."""

from __future__ import annotations

import itertools
import random
import shutil

import pytest
from hypothesis import given, strategies as st

from vllm_mods.base import diff3, line_diff
from vllm_mods.base.diff3 import Clash
from vllm_mods.porting import outline, text, textual

LINES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n", b"e\n"]), max_size=12)


@given(LINES, LINES)
def test_what_one_side_changed_is_what_comes_out(base: list[bytes], other: list[bytes]) -> None:
    assert diff3.clean(diff3.merge(base, other, base)) == b"".join(other)
    assert diff3.clean(diff3.merge(base, base, other)) == b"".join(other)
    assert diff3.clean(diff3.merge(base, other, other)) == b"".join(other)


@given(LINES, LINES, LINES)
def test_sides_may_change_places(base: list[bytes], one: list[bytes], two: list[bytes]) -> None:
    assert diff3.clean(diff3.merge(base, one, two)) == diff3.clean(diff3.merge(base, two, one))


@given(LINES, LINES, LINES)
def test_nothing_of_a_clash_is_lost(base: list[bytes], one: list[bytes], two: list[bytes]) -> None:
    merged = diff3.merge(base, one, two)
    marked = diff3.marked(merged, "one", "base", "two")
    assert (b"<<<<<<< one\n" in marked) == (diff3.clean(merged) is None)
    for clash in (part for part in merged if isinstance(part, Clash)):
        assert clash.ours != clash.theirs
        assert b"".join(clash.ours) in marked
        assert b"".join(clash.theirs) in marked


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_agrees_where_changes_are_apart() -> None:
    draw = random.Random(5)
    for _ in range(40):
        base = [b"line %d\n" % n for n in range(60)]
        one, two = list(base), list(base)
        for side, start in ((one, 3), (two, 33)):
            at = start + draw.randrange(20)
            side[at : at + draw.randrange(3)] = [b"new %d\n" % draw.randrange(9)] * draw.randrange(
                3
            )
        ours = diff3.clean(diff3.merge(base, one, two))
        assert ours is not None
        assert ours == diff3.clean(textual.merge(base, one, two))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_what_git_marks_is_read_back() -> None:
    base, one, two = ([b"same\n", line, b"end\n"] for line in (b"x\n", b"<<<<<<< y\n", b"z\n"))
    assert textual.merge(base, one, two) == [
        (b"same\n",),
        Clash((b"<<<<<<< y\n",), (b"x\n",), (b"z\n",)),
        (b"end\n",),
    ]


def test_without_git_our_own_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    monkeypatch.setattr("subprocess.run", lambda *_a, **_k: pytest.fail("git was called"))
    base = b"import os\n\nA = 1\n"
    done = text.port(base, base.replace(b"1", b"2"), b"# more\n" + base, python=True)
    assert done.text == b"# more\nimport os\n\nA = 2\n"


TWINS = b"""import os


class First:
    def forward(self, x):
        y = x + 1
        return y


class Second:
    def forward(self, x):
        y = x + 1
        return y
"""
IN_SECOND = TWINS[:-40] + TWINS[-40:].replace(b"y = x + 1", b"y = x + 2")


def swapped(data: bytes) -> bytes:
    head, first, second = data.split(b"\n\n\n")
    return b"\n\n\n".join((head, second.rstrip(b"\n"), first)) + b"\n"


@pytest.mark.slow
def test_of_twins_that_changed_places_none_is_changed_by_mistake() -> None:
    """A merge of the whole file is clean, and in the wrong class: both results are shown."""
    lines = [line_diff.split(one) for one in (TWINS, IN_SECOND, swapped(TWINS))]
    assert diff3.clean(textual.merge(*lines)) not in {None, swapped(IN_SECOND)}
    done = text.port(TWINS, IN_SECOND, swapped(TWINS), python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("disagree", "Second.forward")]
    clashes = [one for one in done.stretches if isinstance(one, Clash)]
    assert [(one.ours, one.theirs) for one in clashes] == [
        ((b"        y = x + 2\n",), (b"        y = x + 1\n",)),
        ((b"        y = x + 1\n",), (b"        y = x + 2\n",)),
    ]


@pytest.mark.slow
def test_every_order_of_siblings_is_landed_right_or_refused() -> None:
    parts = [f"def f{n}(x):\n    y = x + 1\n    return y\n" for n in range(4)]
    base = "\n\n".join(parts).encode()
    mod = "\n\n".join([*parts[:2], parts[2].replace("+ 1", "+ 7"), parts[3]]).encode()
    landed = 0
    for order in itertools.permutations(range(4)):
        target = "\n\n".join(parts[n] for n in order).encode()
        done = text.port(base, mod, target, python=True)
        if done.text is None:
            assert done.problems
            continue
        landed += 1
        expected = "\n\n".join(
            parts[n].replace("+ 1", "+ 7") if n == 2 else parts[n] for n in order
        )
        assert done.text == expected.encode()
    assert landed >= 12


def test_a_function_that_is_there_twice_is_refused() -> None:
    target = (
        TWINS
        + b"\n\nclass Second:\n    def forward(self, x):\n        y = x + 1\n        return y\n"
    )
    done = text.port(TWINS, IN_SECOND, target, python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("ambiguous", "Second")]


def test_properties_are_told_apart_by_their_decorators() -> None:
    base = b"class A:\n    @property\n    def x(self):\n        return 1\n\n    @x.setter\n    def x(self, y):\n        pass\n"
    mod = base.replace(b"return 1", b"return 2")
    target = base.replace(b"class A:\n", b"class A:\n    TOP = 3\n\n")
    assert text.port(base, mod, target, python=True).text == target.replace(
        b"return 1", b"return 2"
    )


@pytest.mark.slow
def test_what_both_changed_is_a_clash_with_its_scope() -> None:
    target = TWINS[:-40] + TWINS[-40:].replace(b"y = x + 1", b"y = x + 3")
    done = text.port(TWINS, IN_SECOND, target, python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("clash", "Second.forward")]
    marked = diff3.marked(done.stretches, "mod", "base", "target")
    assert marked.count(b"<<<<<<< mod\n        y = x + 2\n||||||| base\n        y = x + 1\n") == 1
    assert b"class First:\n    def forward(self, x):\n        y = x + 1\n" in marked


@pytest.mark.slow
def test_what_the_target_has_two_lines_on_is_not_put_in_twice() -> None:
    base = b"def f(x):\n    a = 1\n    b = 2\n    c = 3\n    d = 4\n    return x\n"
    guard = b"    if x is None:\n        raise ValueError\n"
    mod = base.replace(b"    a = 1\n", guard + b"    a = 1\n")
    target = base.replace(b"    d = 4\n", guard + b"    d = 4\n")
    done = text.port(base, mod, target, python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("twice", "f")]


def test_what_the_target_has_already_stays_as_it_is() -> None:
    target = b"# newer\n" + IN_SECOND
    assert text.port(TWINS, IN_SECOND, target, python=True).text == target


BODY = b"""    def load(self, name):
        path = self.root / name
        data = path.read_bytes()
        size = len(data)
        return data, size
"""
LOADER = b"class Loader:\n    root = None\n\n" + BODY
FAST = LOADER.replace(b"size = len(data)", b"size = len(data) * 2")


def test_a_renamed_method_is_followed_and_told() -> None:
    target = LOADER.replace(b"def load(self, name)", b"def read_all(self, name, *, strict=True)")
    done = text.port(LOADER, FAST, target, python=True)
    assert done.text == target.replace(b"size = len(data)", b"size = len(data) * 2")
    (one,) = done.followed
    assert (one.old, one.new) == ("Loader.load", "Loader.read_all")
    assert one.likeness > 0.9


def test_a_method_that_is_a_function_by_now_is_gone() -> None:
    function = b"".join(line[4:] for line in BODY.splitlines(keepends=True))
    target = b"class Loader:\n    root = None\n\n\n" + function.replace(b"(self, name)", b"(name)")
    done = text.port(LOADER, FAST, target, python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("gone", "Loader.load")]


def test_a_function_like_no_other_is_gone() -> None:
    target = b"class Loader:\n    root = None\n\n    def other(self):\n        return 1\n"
    done = text.port(LOADER, FAST, target, python=True)
    assert done.text is None
    assert [(one.code, one.scope) for one in done.problems] == [("gone", "Loader.load")]
    assert done.followed == ()


@pytest.mark.slow
def test_other_files_are_merged_as_lines() -> None:
    base, mod = b"{% a %}\n{% b %}\n{% c %}\n", b"{% a %}\n{% b %}\n{% d %}\n"
    assert text.port(base, mod, b"{% 0 %}\n" + base, python=False).text == b"{% 0 %}\n" + mod
    done = text.port(base, mod, base.replace(b"c", b"e"), python=False)
    assert [one.code for one in done.problems] == ["clash"]


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"x = 1",
        b"@a\n@b(\n    c\n)\nasync def f(): return 1\n\nx = 2\n",
        b"if x:\n    def f():\n        pass\nelse:\n    def f():\n        class A: pass\n        return A\n",
        b"class A: pass\nclass B: pass; x = 1\ndef f(): pass\n# end",
        b"def f():\r\n    return '''\r\ndef g():\r\n'''\r\n",
    ],
)
def test_an_outline_gives_back_its_file(source: bytes) -> None:
    read = outline.read(source)
    assert read is not None
    assert read.text() == source
    assert read.end == len(line_diff.split(source))


@pytest.mark.parametrize(
    "source", [b"def f(:\n", b"a\0b", b"x = 1\x0c\ny = 2\n", b"x = 1\ry = 2\n"]
)
def test_what_is_no_plain_python_has_no_outline(source: bytes) -> None:
    assert outline.read(source) is None
