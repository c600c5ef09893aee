"""Statements that may go before others, names that come to be missed, and what a new way out leaves out."""

from __future__ import annotations

import ast

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.porting import independence


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a = 1", "b = 2"),
        ("import a as z", "b = a"),
        ("import a.b", "c = b"),
        ("from a import b as c", "d = b"),
        ("d['a'] = 1", "d['b'] = 2"),
        ("x.a = 1", "x.b = 2"),
        ("self.a = 1", "b = self"),
        ("cls.a = 1", "b = cls.b"),
        ("logger.info(a)", "b = a"),
        ("print(a)", "b = a"),
        ("super().f(a)", "b = a"),
        ("self.f()", "self.g()"),
        ("x.f()", "x.f()"),
        ("b = f(a)", "c = a"),
        ("f(1, k='x')", "c = a"),
        # bound by one that leaves after it
        ("if x:\n    a = 1\n    return b", "a = 2"),
        ("if x:\n    a = 1\n    raise b", "a = 2"),
        # what is in a function runs later
        ("def g():\n    a = 1", "a = 2"),
        ("a = 1", "def g():\n    return 2"),
        ("a = 1", "class G:\n    def f(self):\n        yield 2"),
    ],
)
def test_statements_that_have_nothing_to_do_with_each_other(first: str, second: str) -> None:
    assert independence.holds(ast.parse(first).body, ast.parse(second).body)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a = 1", "b = a"),
        ("b = a", "a = 1"),
        ("a = 1", "a = 2"),
        ("a = 1", "a += 2"),
        ("a: int = 1", "b = a"),
        ("del a", "b = a"),
        ("f(a := 1)", "b = a"),
        ("a, (b, *c) = x", "d = c"),
        ("import a.b", "c = a.d"),
        ("from a import b", "c = b"),
        ("for i in x:\n    pass", "b = i"),
        ("with f() as g:\n    pass", "b = g"),
        ("try:\n    pass\nexcept E as e:\n    pass", "b = e"),
        ("match a:\n    case {'k': 1, **rest}:\n        pass", "b = rest"),
        ("match a:\n    case [x, *more]:\n        pass", "b = more"),
        ("match a:\n    case x:\n        pass", "b = x"),
        ("def g():\n    pass", "g()"),
        ("class G:\n    pass", "b = G.x"),
        ("def h():\n    global q\n    q = 1", "b = q"),
        ("global q", "b = q"),
        ("self.a = 1", "b = self.a"),
        ("self.a = 1", "b = self.a.b"),
        ("self.a.b = 1", "c = self.a"),
        ("d[k] = 1", "d['b'] = 2"),
        ("d['a'] = 1", "b = d['a']"),
        ("d['a'] = 1", "b = d[k]"),
        ("d[k] = 1", "b = d"),
        ("k = 1", "d[k].x = 2"),
        ("f(a)", "b = a"),
        ("f(x=a)", "b = a"),
        ("f(a.b)", "c = a.b"),
        ("x.f()", "x.g()"),
        ("await x.f()", "b = x"),
        ("x.f()", "b = x"),
        ("if x:\n    a = 1", "a = 2"),
        ("if x:\n    a = 1\n    return a", "b = a"),
        # the second may leave, and the first would not have run
        ("a = 1", "return b"),
        ("a = 1", "if b:\n    raise c"),
        ("a = 1", "for b in c:\n    break"),
        ("a = 1", "while b:\n    continue"),
        ("a = 1", "b = yield c"),
        ("a = 1", "yield from b"),
        ("a = 1", "await b()"),
    ],
)
def test_statements_whose_order_could_matter(first: str, second: str) -> None:
    assert not independence.holds(ast.parse(first).body, ast.parse(second).body)


@pytest.mark.parametrize(
    ("gone", "instead", "new", "old", "lacks"),
    [
        ("a = 1", "", "f(a)", None, True),
        ("a = 1", "", "f(a)", "f(b)", True),
        ("a = 1", "", "f(a, 2)", "f(a)", False),
        ("a = 1", "a = 2", "f(a)", None, False),
        ("a = 1", "b = 2", "f(b)", None, False),
        ("self.a = 1", "", "f(self.a)", None, True),
        ("import a.b", "", "a.b.c()", None, True),
    ],
)
def test_a_name_is_missed_that_only_what_is_gone_bound(
    gone: str,
    instead: str,
    new: str,
    old: str | None,
    lacks: bool,  # noqa: FBT001
) -> None:
    (now,) = ast.parse(new).body
    was = None if old is None else ast.parse(old).body[0]
    answer = independence.lacks(ast.parse(gone).body, ast.parse(instead).body, now, was)
    assert answer is lacks


BASE = "def f(self, x):\n    a = 1\n    for y in x:\n        b = y\n    return a\n"
LEAVES = "    if x:\n        return None\n"
GOES_ON = "        if y:\n            continue\n"


def left_out(scope: str, line: int, names: tuple[str, ...]) -> Finding:
    says = f"line {line}, which the mod adds, skips the target's new code, which sets or calls "
    return Finding(FindingCode.SKIPS, says + ", ".join(names), scope=scope)


def skipped(exit_: str, before: str, theirs: str, behind: str) -> list[Finding]:
    """Return what is said where the mod puts a way out before a line, and the target code before another."""
    texts = []
    for mine, its in ((False, False), (True, False), (False, True), (True, True)):
        text = BASE.replace(behind, theirs + behind) if its else BASE
        texts.append((text.replace(before, exit_ + before) if mine else text).encode())
    return [*independence.skipped(*texts)]


@pytest.mark.parametrize(
    ("theirs", "names"),
    [
        ("    self.t = 1\n", ("self.t",)),
        ("    self.t = x.u = 1\n", ("self.t", "x.u")),
        ("    x['k'] = 1\n", ("x.'k'",)),
        ("    go(1)\n", ("go()",)),
        ("    self.go()\n", ("self.go()",)),
        ("    global g\n    g = 1\n", ("g.global",)),
        ("    t = 1\n", ()),
        ("    logger.info(1)\n", ()),
        ("    t = go(1)\n", ()),
        ("    def t():\n        self.t = 1\n", ()),
    ],
)
def test_a_return_leaves_out_what_outlives_the_function(
    theirs: str, names: tuple[str, ...]
) -> None:
    leaves = skipped(LEAVES, "    a = 1\n", theirs, "    return a\n")
    assert leaves == ([left_out("f", 3, names)] if names else [])
    # and nothing that stands before it
    assert skipped(LEAVES, "    return a\n", theirs, "    a = 1\n") == []


def test_in_a_loop_a_name_is_left_out_too() -> None:
    assert skipped(GOES_ON, "        b = y\n", "        t = 1\n", "    return a\n") == [
        left_out("f", 5, ("t",))
    ]
    # behind the loop it goes on
    assert skipped(GOES_ON, "        b = y\n", "    self.t = 1\n", "    return a\n") == []
    raises = GOES_ON.replace("continue", "raise E")
    assert skipped(raises, "        b = y\n", "    self.t = 1\n", "    return a\n") == [
        left_out("f", 5, ("self.t",))
    ]


def test_what_the_mod_does_itself_is_not_left_out() -> None:
    own = "    self.t = 2\n" + LEAVES
    assert skipped(own, "    a = 1\n", "    self.t = 1\n", "    return a\n") == []


def test_what_was_behind_the_way_out_in_the_base_is_meant() -> None:
    base = BASE.replace("    return a", "    self.t = 1\n    return a")
    theirs = base.replace("self.t = 1", "self.t = 2\n    self.u = 3")
    ours, merged = (one.replace("    a = 1\n", LEAVES + "    a = 1\n") for one in (base, theirs))
    texts = (one.encode() for one in (base, ours, theirs, merged))
    assert [*independence.skipped(*texts)] == [left_out("f", 3, ("self.u",))]


def test_a_method_is_named_with_its_class() -> None:
    base = "class C:\n" + "".join(f"    {line}\n" for line in BASE.splitlines())
    theirs = base.replace("        return a", "        self.t = 1\n        return a")
    leaves = "        if x:\n            return None\n"
    ours, merged = (
        one.replace("        a = 1\n", leaves + "        a = 1\n") for one in (base, theirs)
    )
    texts = (one.encode() for one in (base, ours, theirs, merged))
    assert [*independence.skipped(*texts)] == [left_out("C.f", 4, ("self.t",))]
