"""Merges by statements that would run otherwise than both changes do: each is refused."""

from __future__ import annotations

import pytest

from vllm_mods.porting import statements

PAIR = "def f(self, xs, a):\n    a = 1\n    b = 2\n    return a\n"


def between(piece: str, source: str = PAIR) -> str:
    return source.replace("    b = 2\n", f"{piece}    b = 2\n")


ELSE = """def f(a, b, z):
    if a:
        w()
    else:
        if b:
            if z:
                q()
"""
MATCHED = """def f(a):
    match a:
        case 1:
            x = 1
        case 2:
            x = 2
    return x
"""
CAUGHT = """def f(a):
    try:
        go()
    except KeyError:
        x = 1
    except ValueError:
        x = 2
    return x
"""
LOOP = "def f(xs):\n    n = 0\n    for x in xs:\n        a = x\n        b = a\n    return n\n"
DEEP = """def f(self):
    if self.on:
        self.a = 1
        self.b = 2
    return self
"""


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        pytest.param(
            ELSE,
            f"{ELSE}            new()\n",
            "def f(a, b, z):\n    if a:\n        w()\n    elif b:\n        if z:\n            q()\n",
            id="a-block-of-another-depth-takes-it-in",
        ),
        pytest.param(
            MATCHED,
            MATCHED.replace("1:", "2:")
            .replace("= 1", "= 2")
            .replace("case 2:\n            x = 2\n    ", "case 3:\n            x = 3\n    "),
            MATCHED.replace("x = 1\n", "x = 1\n            y = 5\n"),
            id="a-case-that-took-the-place-of-another",
        ),
        pytest.param(
            CAUGHT,
            CAUGHT.replace("KeyError", "OSError")
            .replace("ValueError", "KeyError")
            .replace("= 2", "= 1")
            .replace("= 1", "= 3", 1),
            CAUGHT.replace("x = 1\n", "x = 1\n        y = 5\n"),
            id="a-handler-that-took-the-place-of-another",
        ),
        pytest.param(PAIR, between("    n = 1\n"), between("    global n\n"), id="global"),
        pytest.param(
            PAIR,
            between("    n = 1\n"),
            between("    def g():\n        nonlocal n\n        n = 2\n    g()\n"),
            id="nonlocal",
        ),
        pytest.param(
            PAIR,
            between("    n = a\n    m = n\n"),
            between("    from os.path import *\n"),
            id="star-import",
        ),
        pytest.param(
            PAIR,
            between("    n = 1\n"),
            between("    match a:\n        case [n]:\n            pass\n"),
            id="a-capture-of-match",
        ),
        pytest.param(
            PAIR,
            between("    n = 1\n"),
            between("    match a:\n        case [*n]:\n            pass\n"),
            id="a-star-of-match",
        ),
        pytest.param(
            PAIR,
            between("    n = 1\n"),
            between("    match a:\n        case {1: 2, **n}:\n            pass\n"),
            id="the-rest-of-match",
        ),
        pytest.param(
            PAIR,
            between("    xs.append(1)\n"),
            between("    n = len(xs)\n"),
            id="changed-by-a-method",
        ),
        pytest.param(
            PAIR, between("    xs.append(1)\n"), between("    xs.clear()\n"), id="two-methods"
        ),
        pytest.param(
            PAIR,
            between("    shuffle(xs)\n"),
            between("    n = xs[0]\n"),
            id="changed-as-an-argument",
        ),
        pytest.param(
            PAIR,
            between("    n = len(xs)\n"),
            between("    xs.append(1)\n"),
            id="theirs-changes-it",
        ),
        pytest.param(
            PAIR,
            between("    self.a.n = 1\n"),
            between("    n = copy(self.a)\n"),
            id="an-attribute-of-what-is-read",
        ),
        pytest.param(
            PAIR.replace("    b = 2\n", "    n = 2\n    b = 2\n"),
            PAIR,
            PAIR.replace("    b = 2\n", "    n = 2\n    b = 2\n    m = n\n"),
            id="removed-and-read",
        ),
        pytest.param(
            PAIR.replace("    b = 2\n", "    n = 2\n    b = 2\n"),
            PAIR.replace("    b = 2\n", "    n = 2\n    b = 2\n    self.m = n\n"),
            PAIR,
            id="read-and-removed",
        ),
        pytest.param(
            LOOP,
            LOOP.replace("        b = a\n", "        if a:\n            continue\n        b = a\n"),
            LOOP.replace("        b = a\n", "        n += 1\n        b = a\n"),
            id="a-continue-leaves-out-a-count",
        ),
        pytest.param(
            LOOP,
            LOOP.replace("        b = a\n", "        if a:\n            break\n        b = a\n"),
            LOOP.replace("        b = a\n", "        m = x\n        b = a\n"),
            id="a-break-leaves-out-a-name",
        ),
        pytest.param(
            PAIR,
            between("    if a:\n        return 1\n"),
            between("    register(self)\n"),
            id="a-return-leaves-out-a-call",
        ),
        pytest.param(
            DEEP,
            DEEP.replace(
                "        self.b", "        if fast():\n            return self\n        self.b"
            ),
            DEEP.replace("= 1\n", "= 3\n").replace("    return", "    self.c = 3\n    return"),
            id="a-return-leaves-out-what-is-behind-its-block",
        ),
        pytest.param(
            "a = 1\n", "import m\na = 1\n", "from __future__ import x\na = 1\n", id="future"
        ),
        pytest.param(
            "a = 1\n",
            "import m\na = 1\n",
            '"""What it is."""\na = 1\n',
            id="a-docstring-goes-first",
        ),
        pytest.param(
            "def f():\n    a = 1\n    b = 2\n",
            "def f():\n    a = 1\n    m = 3\n    b = 2\n",
            "def f():\r\n    a = 1\r\n    b = 3\r\n",
            id="other-line-ends",
        ),
        pytest.param(
            "if a:\n    n = 1\nn = 2\nb = 1\n",
            "if a:\n    n = 1\nb = 1\n",
            "if a:\n    n = 1\nn = 2\nb = 1\nm = n\n",
            id="removed-and-read-where-another-may-bind-it",
        ),
        pytest.param(
            "a = 1\nb = 2\nc = 3\n",
            "a = 1\nb = a\nc = 3\n",
            "b = 2\na = 1\nc = 3\n",
            id="another-order-of-theirs",
        ),
        pytest.param(
            "if q:\n  if a:\n    x = 1\n",
            "if q:\n  if a:\n    x = 1\n  z = 1\n",
            "if q:\n if a:\n  x = 1\n",
            id="another-indentation-of-theirs",
        ),
        pytest.param("a = 1\n", "a = 1\nb = x", "a = 1\nc = 3\n", id="no-newline-at-the-end"),
        pytest.param(
            "def f(): global a\n", "def f(): global a, m\n", "def f(): global a, t\n", id="names"
        ),
    ],
)
def test_what_would_run_otherwise_is_refused(base: str, ours: str, theirs: str) -> None:
    done = statements.merge(*(one.encode() for one in (base, ours, theirs)))
    assert done is None, done.decode()


def test_a_file_whose_columns_are_not_those_of_its_bytes_is_refused() -> None:
    text = "# coding: latin-1\nf(a='\xe9', b={}, c={})\n"
    sides = (text.format(*one).encode("latin-1") for one in ((1, 1), (2, 1), (1, 3)))
    assert statements.merge(*sides) is None
