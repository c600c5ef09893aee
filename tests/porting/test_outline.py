"""Files as trees of definitions: keys that tell namesakes apart, statements by their keys, and likeness."""

from __future__ import annotations

import ast
import textwrap

import pytest

from vllm_mods.base import line_diff
from vllm_mods.porting import follow, outline, structure, suites
from vllm_mods.porting.outline import Outline
from vllm_mods.porting.suites import BothChangedError


def read(text: str) -> Outline:
    done = outline.read(textwrap.dedent(text).lstrip("\n").encode())
    assert done is not None
    return done


def keys(node: Outline) -> list[str]:
    return [inner.key for inner in node.inner]


def test_namesakes_are_told_apart_by_their_decorators_and_their_order() -> None:
    whole = read("""
        class A:
            @property
            def x(self):
                return 1

            @x.setter
            def x(self, y):
                pass

            def y(self): ...

        if True:
            def f(): ...
        else:
            def f(): ...
        try:
            async def g(): ...
        except ImportError:
            g = None
    """)
    assert keys(whole) == ["A", "f #1", "f #2", "g"]
    (inner,) = (one for one in whole.inner if one.key == "A")
    assert keys(inner) == ["x @property #1", "x @x.setter #1", "y"]
    assert [one.name for one in inner.inner] == ["x", "x", "y"]
    first, second, third = inner.inner
    assert [(one.start, one.end) for one in (whole, first, second, third)] == [
        *((1, 19), (2, 4), (6, 8), (10, 10))
    ]
    assert inner.lines == (
        b"class A:\n",
        outline.mark("x @property #1"),
        b"\n",
        outline.mark("x @x.setter #1"),
        b"\n",
        outline.mark("y"),
    )


def test_a_definition_on_the_line_of_another_is_part_of_its_lines() -> None:
    whole = read("class A: pass\nx = 1; y = 2\nif x: pass\nclass B: x = 1; y = 2\n")
    assert keys(whole) == ["A", "B"]
    assert whole.text() == b"class A: pass\nx = 1; y = 2\nif x: pass\nclass B: x = 1; y = 2\n"


def test_a_scope_that_is_changed_is_the_one_whose_own_lines_are() -> None:
    base = read("class A:\n    def f(self):\n        return 1\n\n\ndef g():\n    return 1\n")
    ours = read("class A:\n    def f(self):\n        return 2\n\n\ndef g():\n    return 1\nX = 1\n")
    assert structure.touched(base, ours) == ["", "A.f"]
    assert structure.touched(base, base) == []


def test_one_definition_is_found_by_its_chain() -> None:
    whole = read("class A:\n    def f(self): ...\n\ndef g(): ...\ndef g(): ...\n")
    assert follow.definition(whole, "A.f") == whole.inner[0].inner[0]
    assert [follow.definition(whole, name) for name in ("A.g", "g", "f")] == [None, None, None]


@pytest.mark.parametrize(
    ("first", "other", "likeness"),
    [
        ("def f():\n    a\n    b\n", "def g():\n    a\n    b\n", 1.0),
        ("def f():\n    a\n\n    b\n", "def f(x):\n  a\n", 2 / 3),
        ("def f():\n    a\n", "def f():\n    b\n", 0.0),
        ("def f(): ...\n", "def f(): ...\n", 0.0),
        ("def f():\n    a\n", "def f(): ...\n", 0.0),
    ],
)
def test_likeness_is_the_share_of_lines_below_the_first(
    first: str, other: str, likeness: float
) -> None:
    sides = (read(text).inner[0] for text in (first, other))
    assert follow.likeness(*sides) == pytest.approx(likeness)


BODY = "".join(f"    step_{n}()\n" for n in range(6))
LOAD = f"def load(a):\n{BODY}"


def renamed(theirs: str, *, base: str = LOAD, ours: str | None = None) -> list[tuple[str, str]]:
    mine = base.replace("step_2()", "step_2(now)") if ours is None else ours
    sides = read(base), read(mine), read(theirs)
    return [(".".join(chain), one.new) for chain, one in follow.renamed(*sides)]


@pytest.mark.parametrize(
    ("theirs", "new"),
    [
        (LOAD.replace("load", "read"), "read"),
        ("@x\n" + LOAD.replace("load", "read"), "read"),
        (LOAD.replace("def load", "async def read"), "read"),
        # still there, or there twice by now
        (LOAD + LOAD.replace("load", "read"), None),
        (LOAD * 2 + LOAD.replace("load", "read"), None),
        # two as good, and one that is better by enough
        (LOAD.replace("load", "one") + LOAD.replace("load", "two"), None),
        (
            LOAD.replace("load", "one") + LOAD.replace("load", "two").replace("step_5", "other"),
            "one",
        ),
        # half is enough, and less is not
        (f"def read():\n{BODY.replace('step_5', 'a').replace('step_4', 'b')}", "read"),
        ("def read():\n    step_0()\n    step_1()\n    a()\n    b()\n", None),
        # a class is no function
        (LOAD.replace("def load(a)", "class read"), None),
    ],
)
def test_a_definition_under_another_name_is_followed_where_it_is_the_one(
    theirs: str, new: str | None
) -> None:
    assert renamed(theirs) == ([] if new is None else [("load", new)])


def test_only_what_the_mod_changes_is_followed_inside_of_what_stayed_too() -> None:
    theirs = LOAD.replace("load", "read")
    assert renamed(theirs, ours=LOAD) == []
    assert renamed(theirs, ours="x = 1\n") == []
    inner = textwrap.indent(LOAD, "    ")
    assert renamed(f"class A:\n{inner.replace('load', 'read')}", base=f"class A:\n{inner}") == [
        ("A.load", "read")
    ]
    known = LOAD.replace("load", "read")
    assert renamed(known, base=LOAD + known) == []


def test_a_definition_takes_the_name_that_it_has_by_now() -> None:
    node = read("class A:\n    def f(self): ...\n\n    def h(self): ...\n\ndef f(): ...\n")
    new = follow.with_names(node, ("A", "f"), "g")
    assert (keys(new), keys(new.inner[0])) == (["A", "f"], ["g", "h"])
    assert new.text() == node.text()
    assert keys(follow.with_names(node, ("f",), "g")) == ["A", "g"]


# --- statements


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a = 1", "= a"),
        ("a = b = 1", "= a b"),
        ("a: int = 1", "= a"),
        ("a += 1", "AugAssign a"),
        ("x.y, z = 1, 2", "= (x.y, z)"),
        ("from .a import b", "ImportFrom 1 a"),
        ("from . import b", "ImportFrom 1 None"),
        ("import a, b", "import a, b"),
        ("if a:\n    b", "If a"),
        ("while a:\n    b", "While a"),
        ("for a in b:\n    c", "For a b"),
        ("with a as b, c:\n    d", "With a as b c"),
        ("return a", "Return "),
        ("raise a", "Raise "),
        ("try:\n    a\nfinally:\n    b", "Try "),
        ("match a:\n    case 1:\n        b", "Match "),
        ("def f(a): ...", "def f"),
        ("class f: ...", "def f"),
        ("f('x', 1)", "f('x'"),
        ("a.f(b)", "a.f(''"),
        ("f()", "f(''"),
        ("'text'", "docstring"),
        ("...", "docstring"),
        ("await f()", "await f()"),
        ("assert a, b", "assert a, b"),
    ],
)
def test_a_statement_is_known_by_what_a_change_of_the_rest_leaves(text: str, key: str) -> None:
    (node,) = ast.parse(text).body
    assert suites.key(node) == key


def suite(text: str) -> suites.Suite:
    return suites.read(ast.parse(text).body, line_diff.split(text.encode()), 1)


def test_statements_have_what_stands_above_them_and_namesakes_their_number() -> None:
    whole = suite("# one\n\na = 1\nb(\n    2,\n)\n\n# three\na = 3\n")
    assert list(whole) == ["= a #1 of 2", "b(2", "= a #2 of 2"]
    assert [(one.key, one.lead, one.text, one.start) for one in whole.values()] == [
        ("= a #1 of 2", (b"# one\n", b"\n"), (b"a = 1\n",), 3),
        ("b(2", (), (b"b(\n", b"    2,\n", b")\n"), 4),
        ("= a #2 of 2", (b"\n", b"# three\n"), (b"a = 3\n",), 9),
    ]
    with pytest.raises(BothChangedError):
        suite("a = 1; b = 2\n")


def sections(text: str) -> list[tuple[list[str], list[str]]]:
    (statement,) = suite(text).values()
    return [
        ([line.decode() for line in one.head], list(one.suite)) for one in suites.parts(statement)
    ]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a = 1\n", []),
        ("if a: b\n", []),
        ("if a:\n    b = 1\n", [(["if a:\n"], ["= b"])]),
        (
            "if (a and\n        b):\n    # why\n\n    c = 1\nelif d:\n    e = 1\nelse:\n    f = 1\n",
            [(["if (a and\n", "        b):\n"], ["= c"]), ([], ["If d"])],
        ),
        (
            "try:\n    a = 1\nexcept E:\n    b = 1\nelse:\n    c = 1\nfinally:\n    d = 1\n",
            [
                (["try:\n"], ["= a"]),
                (["except E:\n"], ["= b"]),
                (["else:\n"], ["= c"]),
                (["finally:\n"], ["= d"]),
            ],
        ),
        (
            "@x\ndef f():\n    '''Say.'''\n    a = 1\n",
            [(["@x\n", "def f():\n"], ["docstring", "= a"])],
        ),
    ],
)
def test_a_compound_statement_is_its_heads_and_what_is_below_them(
    text: str, parts: list[tuple[list[str], list[str]]]
) -> None:
    assert sections(text) == parts


def test_comments_above_the_first_statement_of_a_block_belong_to_the_block() -> None:
    (statement,) = suite("if a:\n    # why\n\n    b = 1\n").values()
    (part,) = suites.parts(statement)
    assert part.suite["= b"].lead == (b"    # why\n", b"\n")


@pytest.mark.parametrize(
    ("base", "side", "runs"),
    [
        ("abc", "abc", []),
        ("abc", "xabc", [(None, "a", ["x"])]),
        ("abc", "axybc", [("a", "b", ["x", "y"])]),
        ("abc", "abcx", [("c", None, ["x"])]),
        ("abc", "axcy", [("a", "c", ["x"]), ("c", None, ["y"])]),
        ("", "xy", [(None, None, ["x", "y"])]),
    ],
)
def test_runs_that_a_side_adds_have_their_old_neighbours(
    base: str, side: str, runs: list[tuple[str | None, str | None, list[str]]]
) -> None:
    assert [*suites.added(base, side)] == runs


def test_what_is_left_has_to_be_in_order() -> None:
    suites.check_order("abc", "axc", "bc", "")
    for sides in (("cba",), ("abc", "cxa")):
        with pytest.raises(BothChangedError):
            suites.check_order("abc", *sides)
