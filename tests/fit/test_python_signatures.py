"""Signatures read from code, and which calls bind to them."""

from __future__ import annotations

import ast

import pytest

from vllm_mods.fit.shapes import Function
from vllm_mods.fit.signatures import (
    call_text,
    decorator_name,
    dotted,
    every,
    function_of,
    receiver_of,
    refusal,
    statements,
)
from vllm_mods.fit.summary import class_of


def _node(text: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node


def _function(parameters: str, *decorators: str) -> Function:
    above = "".join(f"@{name}\n" for name in decorators)
    return function_of(_node(f"{above}def f({parameters}): ..."))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _why(parameters: str, arguments: str) -> str | None:
    call = _expression(f"f({arguments})")
    assert isinstance(call, ast.Call)
    return refusal(_function(parameters).parameters, call)


@pytest.mark.parametrize(
    ("parameters", "arguments"),
    [
        ("", ""),
        ("a, b=1", "1"),
        ("a, b=1", "1, 2"),
        ("a, b", "b=1, a=2"),
        ("a, *, b", "1, b=2"),
        ("a, *, b=1", "1"),
        ("a, /, b", "1, b=2"),
        ("*a", "1, 2, 3"),
        ("**a", "x=1, y=2"),
        ("a, /, **b", "1, a=2"),
        ("a, b", "*x"),
        ("a, b", "1, *x"),
        ("a, b", "*x, b=1"),
        ("a, b", "1, **x"),
        ("a, *, b", "**x"),
        ("a, *b, c=1, **d", "1, 2, 3, e=4"),
    ],
)
def test_a_call_that_binds(parameters: str, arguments: str) -> None:
    assert _why(parameters, arguments) is None


@pytest.mark.parametrize(
    ("parameters", "arguments", "why"),
    [
        ("", "1", "fails: too many positional arguments"),
        ("a", "1, 2", "fails: too many positional arguments"),
        ("a, b", "1, 2, 3", "fails: too many positional arguments"),
        ("a, *, b", "1, 2", "fails: too many positional arguments"),
        ("a, b", "1, *x, *y, 2, 3", "fails: too many positional arguments"),
        ("a, b=2", "1, a=2", "fails: multiple values for argument 'a'"),
        ("a", "1, b=2", "fails: got an unexpected keyword argument 'b'"),
        ("a", "1, b=2, **x", "fails: got an unexpected keyword argument 'b'"),
        ("a, b", "1", "fails: missing a required argument: 'b'"),
        ("a, b", "b=1", "fails: missing a required argument: 'a'"),
        ("a, *, b", "1", "fails: missing a required argument: 'b'"),
        ("a, *, b", "*x", "fails: missing a required argument: 'b'"),
        ("a, *b, c, **d", "1", "fails: missing a required argument: 'c'"),
    ],
)
def test_a_call_that_does_not_bind_is_told_why(parameters: str, arguments: str, why: str) -> None:
    said = str(_why(parameters, arguments))
    assert said.replace("required keyword-only", "required") == why  # as Python 3.12 has it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ("a, /, b, c=1, *d, e, f=2, **g", "(a, /, b, c=…, *d, e, f=…, **g)"),
        ("a, *, b", "(a, *, b)"),
        ("a: int = 3", "(a=…)"),
        ("", "()"),
        (", ".join(f"name{n}" for n in range(10)), f"({', '.join(f'name{n}' for n in range(10))})"),
        (
            ", ".join(f"long_{n}" for n in range(20)),
            f"({', '.join(f'long_{n}' for n in range(8))}, …)",
        ),
    ],
)
def test_parameters_as_a_person_writes_them(parameters: str, text: str) -> None:
    assert _function(parameters).text() == text


@pytest.mark.parametrize(
    ("parameters", "decorators", "text"),
    [
        ("self, a", (), "(a)"),
        ("self, /, a", (), "(a)"),
        ("a, b", ("staticmethod",), "(a, b)"),
        ("cls, a", ("classmethod",), "(a)"),
        ("*a", (), "(*a)"),
        ("*, a", (), "(*, a)"),
        ("", (), "()"),
    ],
)
def test_a_method_without_its_receiver(
    parameters: str, decorators: tuple[str, ...], text: str
) -> None:
    function = _function(parameters, *decorators)
    assert function._replace(parameters=function.unbound).text() == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(self): ...", "self"),
        ("def f(me, /, a): ...", "me"),
        ("def f(): ...", None),
        ("def f(*, a): ...", None),
        ("@staticmethod\ndef f(self): ...", None),
        ("@a.classmethod\ndef f(kind): ...", "kind"),
        ("@property\ndef f(me): ...", "me"),
        ("@made\ndef f(self): ...", "self"),
        ("@made(1)\ndef f(cls): ...", "cls"),
        ("@made\ndef f(me): ...", None),
    ],
)
def test_the_receiver_of_a_method(text: str, name: str | None) -> None:
    assert receiver_of(_node(text)) == name


def test_what_decorators_say() -> None:
    assert _function("a", "x.y", "z(1)", "(1)", "a().b").decorators == ("x.y", "z", "?", "a().b")
    assert _function("a", "x.y", "z(1)").marks == {"y", "z"}
    for name in ("property", "functools.cached_property", "f.setter", "computed_field(1)"):
        assert _function("self", name).is_property
    assert not _function("self", "staticmethod").is_property
    assert _function("a", "torch.no_grad()", "x.made", "other").opaque_decorator == "x.made"
    assert _function("a", "lru_cache(1)", "staticmethod").opaque_decorator is None
    plain, stated = "    def f(a): ...\n", "    @typing.overload\n    def f(a): ...\n"
    for text, lines in ((stated + plain + stated, [4]), (stated + stated, [3, 5])):
        (node,) = ast.parse(f"class A:\n{text}").body
        assert isinstance(node, ast.ClassDef)
        assert [one.line for one in class_of(node).methods["f"]] == lines
    assert function_of(_node("async def f(): ...")).asynchronous
    assert not _function("a").asynchronous


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a", "a"),
        ("a.b.c", "a.b.c"),
        ("a().b", "a().b"),
        ("a(1).b", None),
        ("a.b().c", None),
        ("a[0].b", None),
        ("1", None),
    ],
)
def test_dotted_names(text: str, name: str | None) -> None:
    assert dotted(_expression(text)) == name
    assert decorator_name(_expression(text)) == (name or "?")
    assert decorator_name(_expression(f"{text}(1)")) == (name or "?")
    assert dotted(None) is None


def test_what_is_called_as_the_code_writes_it() -> None:
    for text, shown in (
        ("a.b(1)", "a.b"),
        ("a[0](1)", "a[0]"),
        ("x[" + "1" * 80 + "]()", "x[" + "1" * 58),
    ):
        call = _expression(text)
        assert isinstance(call, ast.Call)
        assert call_text(call) == shown


def test_statements_are_those_that_a_module_runs() -> None:
    tree = ast.parse(
        "if TYPE_CHECKING:\n    a\nelse:\n    b\nif x.TYPE_CHECKING:\n    if y:\n        c\n"
        "try:\n    d\nexcept E:\n    e\nelse:\n    f\nfinally:\n    g\n"
        "for i in x:\n    h\nwith x:\n    i\nmatch x:\n    case 1:\n        j\n"
        "def k():\n    no\nclass l:\n    no\n"
    )
    names = {
        ast.unparse(node): typing_only
        for node, typing_only in statements(tree.body)
        if isinstance(node, ast.Expr)
    }
    assert names == {name: name in "ac" for name in "abcdefghij"}


def test_every_node_is_met_once() -> None:
    tree = ast.parse("def f(a, b=c, *, d: e = 1) -> g:\n    h[i] = {j: k for k in l if m}\n")
    names = sorted(node.id for node in every(tree) if isinstance(node, ast.Name))
    assert names == sorted("ceghijkklm")
