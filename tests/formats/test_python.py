"""Python as both readers have it: what is parsed, what encloses what, what nests too deeply."""

from __future__ import annotations

import ast

import pytest
from lowering import lower

from vllm_mods.formats import concrete_syntax, syntax_tree
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.syntax_tree import Scope

SOURCE = b"""\
import os, sys
from .. import a
from .b.c import d
X = Y = 1
z: int = 2
f(x)
@dec
class A:
    @p
    async def g(self):
        def h(): pass
    y = 1
if x:
    def i(): pass
"""


def test_a_file_has_its_places_the_outer_ones_first() -> None:
    assert concrete_syntax.read_definitions(SOURCE) == (
        Scope("class", "A", 7, 8, 12),
        Scope("def", "A.g", 9, 10, 11),
        Scope("def", "A.g.h", 11, 11, 11),
        Scope("def", "i", 14, 14, 14),
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"print 'x'\n", "line 1: "),
        (b"x = 1\ny = (\n", "line "),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
        (b"x = '\xff'\n", ""),
    ],
)
def test_what_libcst_does_not_read_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnparsableError) as caught:
        concrete_syntax.read_definitions(data)
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    ("source", "limit", "most"),
    [
        (b"x = ((1))", "PYTHON_NESTING", 4),
        (b"x = -(-(-1))", "PYTHON_NESTING", 6),
        (b"a and b and c", "PYTHON_OPERANDS", 3),
        (b"import a.b.c", "PYTHON_OPERANDS", 2),
        (b"from a.b.c import d", "PYTHON_OPERANDS", 2),
    ],
)
def test_a_file_nests_as_deeply_as_the_limit(
    monkeypatch: pytest.MonkeyPatch, source: bytes, limit: str, most: int
) -> None:
    tree = syntax_tree.parse(source)
    lower(monkeypatch, limit, most)
    syntax_tree.check_depth(tree)
    assert concrete_syntax.read_definitions(source) is not None
    lower(monkeypatch, limit, most - 1)
    with pytest.raises(syntax_tree.DeepError) as caught:
        syntax_tree.check_depth(tree)
    assert caught.value.msg == "it is nested too deeply to be read"
    with pytest.raises(UnparsableError, match="it is nested too deeply to be read"):
        concrete_syntax.read_definitions(source)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\xef\xbb\xbfx = 1\n", "x = 1\n"),
        (b"# coding: latin-1\nx = '\xe9'\n", "# coding: latin-1\nx = 'é'\n"),
        (b"#!x\n# coding=latin-1\n'\xe9'\n", "#!x\n# coding=latin-1\n'é'\n"),
        ("x = 'é'\n\n# coding: latin-1\n".encode(), "x = 'é'\n\n# coding: latin-1\n"),
    ],
)
def test_a_file_is_text_by_what_it_says_of_its_coding(data: bytes, text: str) -> None:
    assert syntax_tree.decoded(data) == text


def test_what_this_python_does_not_read_is_no_module() -> None:
    assert syntax_tree.module(b"x = 1\n") is syntax_tree.module(b"x = 1\n")
    for data in (b"print 'x'\n", b"\0", b"# coding: nonsense\nx\n"):
        assert syntax_tree.module(data) is None
    with pytest.raises(SyntaxError):
        syntax_tree.decoded(b"# coding: nonsense\n")


def test_the_suites_of_a_statement() -> None:
    source = "try:\n a\nexcept X:\n b\nelse:\n c\nfinally:\n d\n"
    (statement,) = ast.parse(source).body
    lines = [[one.lineno for one in suite] for suite in syntax_tree.suites(statement)]
    assert lines == [[2], [6], [8], [4]]
    (match,) = ast.parse("match x:\n case 1:\n  a\n case _:\n  b\n").body
    assert [suite[0].lineno for suite in syntax_tree.suites(match)] == [3, 5]
    assert syntax_tree.first_line(ast.parse("@a\n@b\ndef f(): pass\n").body[0]) == 1


def test_parameters_that_may_be_given_by_their_place_have_their_defaults() -> None:
    (function,) = ast.parse("def f(a, /, b, c=1, *d, e=2): pass").body
    assert isinstance(function, ast.FunctionDef)
    pairs = syntax_tree.with_defaults(function.args)
    assert [(one.arg, default and ast.unparse(default)) for one, default in pairs] == [
        ("a", None),
        ("b", None),
        ("c", "1"),
    ]


def test_what_python_warns_of_is_no_reason_to_refuse_a_file() -> None:
    data = b"x = '\\d'\ny = 1 is 1\n"
    tree = syntax_tree.module(data)
    assert tree is not None
    assert ast.unparse(tree) == "x = '\\\\d'\ny = 1 is 1"
