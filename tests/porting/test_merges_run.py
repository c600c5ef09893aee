"""Merges by statements are run: what comes out does what the mod's edit of the target does.

A program is a list of statements with names of their own; an edit inserts, replaces or removes some of
them, so that the mod's edits can be made to the target itself, by these names. Where the mod and the
target insert at one place, the mod's is first, and where it cannot leave, the other order does the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from vllm_mods.porting import statements


class Line(NamedTuple):
    """A statement that can be told from others, whatever becomes of its text."""

    name: int
    code: str


Program = tuple[Line, ...]
"""Lines; and edits of them by name: the code that is to be there instead, None for nothing."""


class Edit(NamedTuple):
    """What is inserted before a line of that name, -1 for the end, and what takes the place of others."""

    inserted: dict[int, list[str]]
    replaced: dict[int, str | None]


NAMES = ["a", "b", "c", "n", "m"]


def expression(draw: random.Random) -> str:
    return draw.choice(
        [
            str(draw.randint(0, 9)),
            draw.choice(NAMES),
            f"{draw.choice(NAMES)} + {draw.choice(NAMES)}",
            f"s.{draw.choice('xyz')}",
            f"len(xs) + {draw.choice(NAMES)}",
            f"(w := {draw.choice(NAMES)} + 1)",
            "xs[-1]",
            f"d.get('{draw.choice('pq')}', 0)",
            f"sum(i for i in [1, {draw.choice(NAMES)}])",
        ]
    )


def statement(draw: random.Random, depth: int = 0) -> str:
    name, value = draw.choice(NAMES), expression(draw)
    simple = [
        f"{name} = {value}",
        f"{name} = {value}  # why",
        f"# above\n{name} = {value}",
        f"{name} += {value}",
        f"s.{draw.choice('xyz')} = {value}",
        f"s.{draw.choice('xyz')} += 1",
        f"d['{draw.choice('pq')}'] = {value}",
        f"xs.append({value})",
        f"xs.extend([{value}, 1])",
        f"xs[0] = {value}",
        f"put(s, {value})",
        f"{name}: int = {value}",
        f"{name}, w = {value}, 2",
        f"text = '''\n{name}\n  # no comment\n'''\ns.t = len(text)",
        f"def g(q=0):\n    nonlocal {name}\n    {name} = {value}\n    return q",
        f"from math import {draw.choice(['floor', 'ceil'])}",
        f"assert s is not None, {value}",
        f"global G\nG = {value}",
    ]
    if depth > 1 or draw.random() < 0.6:
        return draw.choice(simple)
    body = block(draw, depth + 1)
    more = block(draw, depth + 1)
    return draw.choice(
        [
            f"if {value} > 3:\n{body}",
            f"if {value} > 3:\n{body}\nelse:\n{more}",
            f"if {value} > 3:\n{body}\nelif {name} > 2:\n{more}\nelse:\n{body}",
            f"for i in range(3):\n{body}",
            f"for i in range(3):\n{body}\n    if i == {draw.choice(NAMES)}:\n        continue\n{more}",
            f"try:\n{body}\nexcept ZeroDivisionError:\n{more}",
            f"try:\n{body}\nfinally:\n{more}",
            f"with held(s):\n{body}",
            f"if {value} > 3:\n{body}\n    return {name}",
            f"if {value} > 3:\n    return {name}",
            f"match {name}:\n    case 1:\n{shifted(body)}\n    case n:\n{shifted(more)}",
        ]
    )


def shifted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def block(draw: random.Random, depth: int) -> str:
    return shifted("\n".join(statement(draw, depth) for _ in range(draw.randint(1, 2))))


def edit(draw: random.Random, program: Program) -> Edit:
    inserted: dict[int, list[str]] = {}
    replaced: dict[int, str | None] = {}
    for _ in range(draw.randint(1, 2)):
        one = draw.choice(program)
        kind = draw.random()
        if kind < 0.6:
            place = draw.choice([one.name, one.name, -1])
            inserted.setdefault(place, []).append(statement(draw))
        elif kind < 0.9:
            replaced[one.name] = changed(draw, one.code)
        else:
            replaced[one.name] = None
    return Edit(inserted, replaced)


def changed(draw: random.Random, code: str) -> str:
    rows = code.split("\n")
    if (
        len(rows) > 1
        and not code.startswith(("text", "def", "global", "#"))
        and draw.random() < 0.8
    ):
        n = draw.randint(1, len(rows) - 1)
        width = len(rows[n]) - len(rows[n].lstrip())
        if width and not rows[n].lstrip().startswith(("case", "'")):
            rows.insert(n, " " * width + f"s.{draw.choice('xyz')} = {draw.randint(20, 99)}")
            return "\n".join(rows)
    head, equals, _ = code.partition(" = ")
    return f"{head} = {expression(draw)}" if equals and "\n" not in code else statement(draw, 2)


def edited(program: Program, *edits: Edit) -> str | None:
    """Make edits to a program, of which the first goes first; None where they change one line."""
    rows: list[str] = []
    for one in (*program, Line(-1, "")):
        for each in edits:
            rows += each.inserted.get(one.name, [])
        new = {each.replaced[one.name] for each in edits if one.name in each.replaced}
        if len(new) > 1:
            return None
        code = new.pop() if new else one.code
        rows += [code] if code else []
    return "\n".join(rows)


HEAD = """
from contextlib import contextmanager
G = 0
class S:
    x = y = z = t = 0
@contextmanager
def held(s):
    yield
    s.t += 1
def put(s, value):
    s.z = value
"""


def source(body: str) -> str:
    return f"def inner(s, xs, d, a, b, c, n, m, w):\n{shifted(body)}\n    return a, b, c, n, m\n"


def did(code: str) -> Sequence[object]:
    """Run a program on a few inputs and return everything that is left of it."""
    found: list[object] = []
    for given in ((0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (9, 9, 1, 5, 2)):
        space: dict[str, object] = {}
        exec(compile(HEAD, "head", "exec"), space)  # noqa: S102
        exec(compile(code, "code", "exec"), space)  # noqa: S102
        s, xs = space["S"](), [7]  # type: ignore[operator]
        d: dict[str, object] = {}
        try:
            value = space["inner"](s, xs, d, *given, 0)  # type: ignore[operator]
        except Exception as error:  # noqa: BLE001
            value = type(error).__name__
        found.append((value, vars(s), xs, d, space.get("G")))
    return found


def drawn(seed: int) -> tuple[Program, Edit, Edit]:
    draw = random.Random(seed)
    program = tuple(Line(n, statement(draw)) for n in range(draw.randint(2, 5)))
    return program, edit(draw, program), edit(draw, program)


def wrong(seed: int) -> str | None:
    """Tell what is wrong with a merge, "" if nothing, None where there is none."""
    program, mine, theirs = drawn(seed)
    texts = [edited(program), edited(program, mine), edited(program, theirs)]
    sides = [source(one or "pass") for one in texts]
    try:
        for one in sides:
            compile(one, "side", "exec")
    except SyntaxError:
        return None
    done = statements.merge(*(one.encode() for one in sides))
    if done is None:
        return None
    both = edited(program, mine, theirs)
    if both is None:
        return None  # within one statement: there is no telling by names
    if did(done.decode()) == did(source(both)):
        return ""
    other = source(edited(program, theirs, mine) or "")
    if did(done.decode()) == did(other):
        return ""
    return "\n---\n".join([*sides, done.decode(), source(both)])


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("start", range(0, 1500, 250))
def test_what_comes_out_runs_as_the_mods_edit_of_the_target(start: int) -> None:
    found = [wrong(seed) for seed in range(start, start + 250)]
    assert [one for one in found if one] == []
    assert found.count("") > 20, "too few merges to tell"
