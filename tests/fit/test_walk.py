"""Where a node stands: the classes and functions around it, and what the code says of itself there."""

from __future__ import annotations

import ast
from inspect import Parameter

import pytest

from vllm_mods.fit.shapes import Import
from vllm_mods.fit.walk import CodeSite, local_names, receiver, walk


def _site(text: str) -> CodeSite:
    """Return where the name ``here`` stands."""
    tree = ast.parse(text)
    lines = frozenset(range(1, text.count("\n") + 2))
    (site,) = (s for s in walk(tree, lines) if isinstance(s.node, ast.Name) and s.node.id == "here")
    return site


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("here", ""),
        ("class A:\n    def f(self):\n        here", "A.f"),
        ("def f(a=here): ...", ""),
        ("@here\ndef f(): ...", ""),
        ("def f(a: here) -> b: ...", ""),
        ("class A(here): ...", ""),
        ("def f():\n    lambda: here", "f"),
        ("def f():\n    [here for a in b]", "f"),
        ("class A:\n    class B:\n        here", "A.B"),
    ],
)
def test_the_scope_of_a_place(text: str, scope: str) -> None:
    assert _site(text).scope.name == scope


@pytest.mark.parametrize(
    ("text", "typing_only", "guarded", "tolerant"),
    [
        ("here", False, False, False),
        ("if TYPE_CHECKING:\n    here", True, False, False),
        ("if t.TYPE_CHECKING:\n    a\nelse:\n    here", False, False, False),
        ("if TYPE_CHECKING:\n    def f():\n        here", True, False, False),
        ("try:\n    here\nexcept ImportError:\n    pass", False, True, False),
        ("try:\n    here\nexcept (AttributeError, KeyError):\n    pass", False, False, True),
        ("try:\n    here\nexcept TypeError:\n    pass", False, False, True),
        ("try:\n    here\nexcept Exception:\n    pass", False, True, True),
        ("try:\n    here\nexcept Exception:\n    other", False, True, False),
        ("try:\n    here\nexcept KeyError:\n    pass", False, False, False),
        ("try:\n    pass\nexcept TypeError:\n    here", False, False, False),
        ("try:\n    pass\nexcept TypeError:\n    pass\nelse:\n    here", False, False, False),
        ("try:\n    pass\nexcept TypeError:\n    pass\nfinally:\n    here", False, False, False),
        (
            "try:\n    try:\n        here\n    except KeyError:\n        pass\nexcept TypeError:\n    pass",
            False,
            False,
            True,
        ),
        ("if 'a' in signature(f).parameters:\n    here", False, True, True),
        ("if 'a' in signature(f).parameters:\n    a\nelse:\n    here", False, True, True),
        ("if vllm.__version__ == '0.1':\n    here", False, True, True),
        ("if vllm_version_is('0.1'):\n    a\nelse:\n    here", False, True, True),
        ("here if vllm_version_is('0.1') else a", False, True, True),
        ("a if vllm_version_is('0.1') else here", False, True, True),
        ("a if vllm_version_is(here) else b", False, False, False),
        ("here if debug else a", False, False, False),
        ("if version.parse(v) < Version('1'):\n    here", False, True, True),
        ("if version == 3:\n    here", False, False, False),
        ("if find_spec('vllm.x'):\n    here", False, True, True),
        ("if util.find_spec('vllm.x') is None:\n    a\nelse:\n    here", False, True, True),
        ("if find_spec('flashinfer'):\n    here", False, False, False),
        ("if find_spec(name):\n    here", False, False, False),
        ("try:\n    x = here\nexcept Exception:\n    x = 1", False, True, True),
        ("try:\n    x = here\nexcept Exception:\n    y = 1", False, True, False),
        ("try:\n    x = here\nexcept KeyError:\n    x = 1\n    raise", False, False, False),
        ("if here in signature(f).parameters:\n    a", False, False, False),
        ("if 'a' in f.other:\n    here", False, False, False),
    ],
)
def test_what_the_code_says_of_itself(
    text: str,
    typing_only: bool,  # noqa: FBT001
    guarded: bool,  # noqa: FBT001
    tolerant: bool,  # noqa: FBT001
) -> None:
    scope = _site(text).scope
    assert (scope.typing_only, scope.guarded, scope.tolerant) == (typing_only, guarded, tolerant)


@pytest.mark.parametrize(
    ("handler", "catches"),
    [
        ("except ImportError", True),
        ("except (ValueError, x.ModuleNotFoundError)", True),
        ("except", True),
        ("except Exception as e", True),
        ("except ValueError", False),
        ("except (KeyError, TypeError)", False),
        ("except made()", False),
    ],
)
def test_a_try_that_expects_an_import_to_fail(handler: str, catches: bool) -> None:  # noqa: FBT001
    assert _site(f"try:\n    here\n{handler}: pass").scope.guarded is catches


@pytest.mark.parametrize(
    ("body", "handler", "guarded"),
    [
        ("import a", "except ImportError", True),
        ("import a; from b import c", "except", True),
        ("import a; f()", "except ImportError", False),
        ("import a", "except KeyError", False),
    ],
)
def test_what_stands_in_for_imports_may_fail(
    body: str,
    handler: str,
    guarded: bool,  # noqa: FBT001
) -> None:
    text = f"try:\n    {body}\n{handler}:\n    here"
    assert _site(text).scope.guarded is guarded


def test_only_what_touches_the_lines_is_met() -> None:
    tree = ast.parse("a\nf(\n    b,\n    c,\n)\n@d\ndef g():\n    e\n")

    def met(*lines: int) -> str:
        names = (site.node for site in walk(tree, frozenset(lines)))
        return " ".join(node.id for node in names if isinstance(node, ast.Name))

    assert met(3) == "b"
    assert met(2) == "f"
    assert met(1, 4) == "a c"
    assert met(6) == "d"
    assert met(8) == "e"
    assert met() == ""


def test_scopes_are_known_from_the_inside_to_the_outside() -> None:
    scope = _site("class A:\n    def f(self):\n        [here for a in b]").scope
    kinds = ["ListComp", "FunctionDef", "ClassDef", "Module"]
    assert [type(one.node).__name__ for one in scope.around()] == kinds
    assert [type(one.node).__name__ for one in scope.in_function()] == kinds[:2]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("class A:\n    def f(self):\n        here", "self"),
        ("class A:\n    @staticmethod\n    def f(self):\n        here", None),
        ("def f(self):\n    here", None),
        ("class A:\n    def f(self):\n        def g(me):\n            here", None),
        ("class A:\n    here", None),
    ],
)
def test_the_receiver_of_a_scope(text: str, name: str | None) -> None:
    assert receiver(_site(text).scope) == name


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("def f(a, *b, c=1, **d):\n    e = 1", "a b c d e"),
        ("def f():\n    import a.b as c, d.e\n    from g import h", "c d h"),
        ("def f():\n    global a\n    a = b = 1", "b"),
        ("def f():\n    nonlocal a\n    a = 1", ""),
        ("def f():\n    def g(x): y = 1\n    class h: z = 1\n    lambda q: q", "g h"),
        ("def f():\n    [a for a in (b := x)]\n    {c: 1 for c in [(d := y)]}", "b d"),
        ("def f():\n    for a, (b, *c) in x: pass\n    with x as d: pass", "a b c d"),
        ("def f():\n    try: pass\n    except E as a: pass", "a"),
        ("def f():\n    match x:\n        case [a, *b]: pass\n        case c: pass", "a b c"),
        ("def f():\n    a.b = c[d] = 1\n    print(e)", ""),
        ("lambda a, *b: c", "a b"),
        ("[a for a, b in x for c in y]", "a b c"),
        ("class A:\n    a = 1", ""),
    ],
)
def test_the_names_of_a_function(text: str, names: str) -> None:
    (node,) = ast.parse(text).body
    assert set(local_names(node.value if isinstance(node, ast.Expr) else node)) == set(
        names.split()
    )


def test_what_local_names_are_bound_by() -> None:
    (node,) = ast.parse("def f(a):\n    import b\n    a = 1\n").body
    names = local_names(node)
    assert names["b"] == [Import(0, "b", None, 2, whole=True)]
    first, second = names["a"]
    assert isinstance(first, Parameter)
    assert second is None
