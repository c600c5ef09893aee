"""Which lines are whose, read twice; and which definitions their names are bound to in the end."""

from __future__ import annotations

import random
import sysconfig
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest
from sampling import SEED, few

from vllm_mods.formats import syntax_tree
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.syntax_tree import Scope
from vllm_mods.placing.scopes import long_strings, read_scopes, read_strictly
from vllm_mods.placing.target import Target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vllm_mods.base.tree import Tree
    from vllm_mods.placing import scopes


def lines_of(found: scopes.Scopes) -> list[tuple[object, ...]]:
    return [scope[:5] for scope in found.definitions]


def differences(files: Iterator[tuple[str, bytes]]) -> tuple[int, list[str]]:
    """Read files with both readers; return how many both could read, and those that differ."""
    both = 0
    wrong = []
    for path, data in files:
        try:
            strict = lines_of(read_strictly(data))
        except UnparsableError:
            continue  # nothing to hold the other reader to
        both += 1
        if lines_of(read_scopes(data)) != strict:
            wrong.append(path)
    return both, wrong


def dead(source: str) -> list[str]:
    """Return name and line of each definition that is not live."""
    found = read_scopes(dedent(source).encode()).definitions
    return [f"{one.name}:{one.head}" for one in found if not one.live]


# --- lines ----------------------------------------------------------------------------


def test_a_definition_begins_at_its_first_decorator_and_ends_before_comments() -> None:
    source = b"@a(\n a\n)\n# c\n@b\nclass C(\n D,\n):\n  @p\n  async def m(self):\n    pass\n    # end\n\n# x\n"
    assert read_scopes(source).scopes == (
        Scope("class", "C", 1, 6, 11),
        Scope("def", "C.m", 9, 10, 11),
    )


def test_a_line_in_a_string_is_in_no_definition_of_its_text() -> None:
    found = read_scopes(b'def real():\n    return """\ndef told():\n    x\n"""\n')
    assert [found.at(line) for line in (1, 3, 4)] == ["real"] * 3
    assert found.find("told") is None


ODD = {
    "form feed in a line": b"x = 1 \x0c\ny = 2\n",
    "carriage returns and line feeds": b"import os\r\ndef f():\r\n    pass\r\nx[\r\n1] = 2\r\n",
    "byte-order mark": b"\xef\xbb\xbfx = 1\ndef f(): pass\n",
    "latin": "# coding: latin-1\nx['é'] = 1; y = 2\n".encode("latin-1"),
    "semicolons": b"a = 1; b = 2\nimport x; y = (1,\n2)\nz = 1;\nw = 1; \\\nq = 3\n",
    "suites on a line": b"if x: a = 1; b = 2\nelse:\n  c = 1\nif x: \\\n  d = 3\nif x:  # \\\n  e = 4\n",
    "targets": b"(a) = 1\n(a, b) = 1, 2\na, = x\n((a), b) = 3\n(\n a # )\n) = 3\na . b = 1\na [ 0 ] = 1\n"
    b"(a).b = 2\na , b = 1\n[a,b] = c\n*a, = d\n(a) = (b) = 3\nx = \\\n 1\n",
    "imports": b"from . import b\nfrom .. import c\nfrom a.b import (c,\n d)\nfrom ...x import *\n",
    "annotated": b"a: int\nb  :int=2\nx[0]: int = 3\n",
    "brackets to the end": b"def f():\n    return (\n 1\n )\n\nx = (\n1\n)\ny: int = (\n 3\n )\nz = '''\n\n'''\n",
    "definitions on a line": b"class A: x = (1,\n)\nclass B: ...;\ndef f(): x = 1; y = (\n2)\n",
    "branches": b"match x:\n  case 1:\n    a = 1\n    def f(): pass\n  case _: b = 2\nwith a as b:\n  c = 1\n"
    b"try:\n  d = 1\nexcept E:\n  class G: pass\nelse:\n  e = 2\nfinally:\n  f = 1\nwhile x:\n  g = 1\n",
    "no line feed at the end": b"def f():\n  pass",
    "tabs": b"class A:\n\tdef f(self):\n\t\tpass\n\n\tdef g(self):\n\t\tpass\n",
    "nothing": b"",
    "a comment": b"# x\n",
}


@pytest.mark.parametrize("kind", ODD)
def test_both_readers_see_the_same_lines(kind: str) -> None:
    assert lines_of(read_scopes(ODD[kind])) == lines_of(read_strictly(ODD[kind]))


@pytest.mark.slow
def test_both_readers_see_the_same_in_the_standard_library() -> None:
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted([*root.glob("*.py"), *root.glob("[a-r]*/*.py")])
    chosen = few(random.Random(SEED).sample(paths, 25), 4, "standard library")
    both, wrong = differences((path.name, path.read_bytes()) for path in chosen)
    assert not wrong
    assert both > len(chosen) // 2


@pytest.mark.network
@pytest.mark.parametrize("version", ["0.21.0", "0.33.0"])
def test_both_readers_see_the_same_in_every_file_of_a_release(version: str) -> None:
    from vllm_mods.trees.open import open_tree

    tree: Tree = open_tree(f"pypi:{version}")
    paths = sorted(path for path in tree.paths("vllm") if path.endswith(".py"))
    assert len(paths) > 1000
    # all of them take LibCST five minutes a release
    chosen = few(paths, 40, version)
    both, wrong = differences((path, tree.read(path) or b"") for path in chosen)
    assert not wrong
    assert both == len(chosen)


def test_a_file_with_lines_that_a_patch_does_not_see_is_refused() -> None:
    with pytest.raises(UnparsableError, match="carriage return"):
        read_scopes(b"x = 1\ry = 2\r\ndef f():\r    z = 1\n\ndef g():\n    pass\n")


def test_a_statement_of_the_module_has_what_it_binds_for_a_name() -> None:
    source = b"import os.path\nfrom . import (a,\n b)\nif a:\n    x, y = (\n 1, 2)\nz: int\nf(x)\n"
    found = read_scopes(source)
    names = ["import os.path", *["from . import"] * 2, "", *["x, y ="] * 2, "z =", ""]
    assert [found.at(line) for line in range(1, 9)] == names


def test_a_form_feed_moves_no_line() -> None:
    found = read_scopes(b"import os\n\x0c\ndef f():\n    pass\n\x0cclass A:\n  x = 1\n")
    assert [(one.name, one.start, one.end) for one in found.definitions] == [
        ("f", 3, 4),
        ("A", 5, 6),
    ]


def test_what_this_python_cannot_read_is_read_by_libcst(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_old(*_: object, **__: object) -> None:
        raise SyntaxError("newer than this Python")

    for reader in (read_scopes, syntax_tree.module):
        reader.cache_clear()
    monkeypatch.setattr(syntax_tree, "parse", too_old)
    found = read_scopes(b"def f():\n    pass\n\n\ndef f():\n    pass\n\n\nclass A:\n    x = 1\n")
    for reader in (read_scopes, syntax_tree.module):
        reader.cache_clear()
    assert lines_of(found) == [
        ("def", "f", 1, 1, 2),
        ("def", "f", 5, 5, 6),
        ("class", "A", 9, 9, 10),
    ]
    assert all(one.live for one in found.scopes)


def test_what_neither_can_read_is_refused() -> None:
    with pytest.raises(UnparsableError, match="line 1"):
        read_scopes(b"print 'x'\n")


# --- what a name is bound to in the end -----------------------------------------------


def test_a_second_definition_in_the_same_scope_kills_the_first() -> None:
    assert dead("def f(): 1\ndef g(): f()\ndef f(): 2\n") == ["f:1"]
    assert dead("class A:\n  def m(self): 1\n  def m(self): 2\n") == ["A.m:2"]
    assert dead("def f():\n  def g(): 1\n  def g(): 2\n  return g\n") == ["f.g:2"]


@pytest.mark.parametrize(
    "later",
    [
        "class f: pass",
        "f = None",
        "f: int = 3",
        "(a, [*f]) = x",
        "import f.x",
        "from a import b as f",
        "with a as f: pass",
        "del f",
        "if x:\n  f = 1\nelse:\n  def f(): pass",
        "try:\n  from a import f\nexcept ImportError:\n  f = None",
        "try:\n  pass\nfinally:\n  f = 1",
    ],
)
def test_whatever_surely_binds_the_name_again_kills(later: str) -> None:
    assert dead(f"def f(): pass\n{later}\n")[0] == "f:1"


@pytest.mark.parametrize(
    "later",
    [
        "if x:\n  def f(): 2",
        "for f in x: pass",
        "while x:\n  f = 1",
        "with suppress(ImportError):\n  from a import f",
        "try:\n  from a import f\nexcept ImportError:\n  pass",
        "match x:\n  case 1:\n    f = 1",
        "from a import *",
    ],
)
def test_what_may_bind_the_name_again_leaves_the_first_alive(later: str) -> None:
    assert not dead(f"def f(): 1\n{later}\n")


@pytest.mark.parametrize(
    "later",
    ["f: int", "def g():\n  f = 1", "class B:\n  def f(self): pass", "x.f = 1", "f.x = 1", "[f for f in x]"],
)  # fmt: skip
def test_what_binds_the_name_elsewhere_does_nothing(later: str) -> None:
    assert not dead(f"def f(): 1\n{later}\n")


def test_definitions_in_different_branches_are_both_live() -> None:
    source = """\
        if x:
            def f(): 1
        elif y:
            def f(): 2
        else:
            def f(): 3
        try:
            class A: pass
        except ImportError:
            class A: pass
        match x:
            case 1:
                def g(): pass
            case _:
                def g(): pass
        """
    assert not dead(source)


def test_a_definition_in_a_branch_can_be_dead_too() -> None:
    assert dead("if x:\n  def f(): 1\n  def f(): 2\n") == ["f:2"]
    assert dead("if x:\n  def f(): 1\ndef f(): 2\n") == ["f:2"]


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n  @property\n  def x(self): 1\n  @x.setter\n  def x(self, v): 2\n  @x.deleter\n  def x(self): 3\n",
        "@overload\ndef f(x: int): ...\n@typing.overload\ndef f(x: str): ...\ndef f(x): 1\n",
        "@singledispatch\ndef f(x): 1\n@f.register\ndef _(x: int): 2\n@f.register(str)\ndef _(x): 3\n",
        "@register('a')\ndef f(): 1\n@register('b')\ndef f(): 2\n",
        "def f(): 1\nTABLE['a'] = f\ndef f(): 2\n",
        "def f(): 1\nf = compiled(f)\n",
        "class A: pass\nclass B(A): pass\nclass A(B): pass\n",
        "def f(): 1\ndef g(x=f): pass\ndef f(): 2\n",
        "def f(): 1\nf |= x\n",
    ],
)
def test_what_something_may_hold_is_not_dead(source: str) -> None:
    assert not dead(source)


def test_a_decorator_that_keeps_nothing_saves_nobody() -> None:
    assert dead(
        "class A:\n  @staticmethod\n  @functools.lru_cache(3)\n  def f(): 1\n  def f(): 2\n"
    ) == ["A.f:4"]


def test_what_is_in_a_dead_definition_is_dead() -> None:
    assert dead("class A:\n  def m(self): 1\nclass A:\n  def m(self): 2\n") == ["A:1", "A.m:2"]


def test_the_one_that_is_found_by_name_is_the_live_one() -> None:
    found = read_scopes(b"def f(): 1\ndef f(): 2\n").find("f")
    assert found is not None
    assert found.head == 2


def test_strings_over_more_than_two_lines_have_their_lines() -> None:
    data = b'a = """\n1\n"""\nb = f"""\n{x}\n2\n"""\nc = b"""\n\n"""\nd = """\n"""\n'
    assert {(1, 3), (4, 7), (8, 10)} <= set(long_strings(data))  # and what is in an f-string
    assert long_strings(b"def f(:\n") == ()
    assert not Target(b"def f(:\n\n\n", read_scopes).in_string(2, 2)
