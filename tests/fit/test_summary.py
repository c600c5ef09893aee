"""What fit knows of a module: its names and classes, from its text alone."""

from __future__ import annotations

import ast

import pytest

from vllm_mods.fit.shapes import Class, Function, Import, Module, Value
from vllm_mods.fit.signatures import imports_of
from vllm_mods.fit.summary import lazy_names, summarize


def _module(text: str) -> Module:
    module = summarize(text.encode())
    assert module is not None
    return module


def _names(text: str) -> set[str]:
    return set(_module(text).names)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a = b = 1", "a b"),
        ("a, (b, *c) = [d] = x", "a b c d"),
        ("a.b = c[d] = 1", ""),
        ("a: int\nb: int = 1\nc += 1", "a b c"),
        ("def a(): x = 1\nasync def b(): ...\nclass c: x = 1", "a b c"),
        ("import a.b, c as d\nfrom e import f, g as h", "a d f h"),
        ("for a, b in x: c = 1\nelse: d = 1", "a b c d"),
        ("with x as a, y as (b, c): d = 1", "a b c d"),
        ("with x: pass", ""),
        ("try: a = 1\nexcept E as b: c = 1\nexcept F: pass", "a b c"),
        ("if (a := x): b = 1", "a b"),
        ("f(a := x)\ny = (b := x)\nz: int = (c := x)", "a b c y z"),
        ("while x: a = 1", "a"),
        ("def f():\n    global a, b\n    a = 1", "f a b"),
        ("def f():\n    a = 1", "f"),
    ],
)
def test_the_names_that_a_module_binds(text: str, names: str) -> None:
    assert _names(text) == set(names.split())


def test_what_a_name_is_bound_to() -> None:
    module = _module(
        "import a\nif TYPE_CHECKING:\n    import b as c\n    D = x.y\nE = x.y\nF: t = x.y\nE = f()\n"
        "class G: ...\ndef h(): ...\n"
    )
    assert module.names["a"] == (Import(0, "a", None, 1, whole=True),)
    assert module.names["c"] == (Import(0, "b", None, 3, typing_only=True),)
    assert module.names["D"] == (Value(4, "x.y", typing_only=True),)
    assert module.names["E"] == (Value(5, "x.y"), Value(7))
    assert module.names["F"] == (Value(6),)
    assert isinstance(module.names["G"][0], Class)
    assert isinstance(module.names["h"][0], Function)


def test_the_lines_of_what_is_bound_by_the_way() -> None:
    module = _module("\nfor a in x: pass\nwith x as b: pass\ntry: pass\nexcept E as c: pass\n")
    assert module.names == {"a": (Value(2),), "b": (Value(3),), "c": (Value(5),)}
    assert _module("def f():\n    global a\n").names["a"] == (Value(2),)
    assert _module("\nx(a := 1)\n").names["a"] == (Value(2),)


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("import a.b", [("a", Import(0, "a.b", None, 1, whole=True))]),
        ("import a.b as c", [("c", Import(0, "a.b", None, 1))]),
        ("from .a import b as c", [("c", Import(1, "a", "b", 1))]),
        ("from .. import b", [("b", Import(2, "", "b", 1))]),
        ("from a import *", [("*", Import(0, "a", "*", 1))]),
        ("from a import (b,\n c)", [("b", Import(0, "a", "b", 1)), ("c", Import(0, "a", "c", 2))]),
    ],
)
def test_what_an_import_binds(text: str, bound: list[tuple[str, Import]]) -> None:
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.Import | ast.ImportFrom)
    assert [*imports_of(node)] == bound
    stars = tuple(alias for name, alias in bound if name == "*")
    assert _module(text).stars == stars
    assert all(name in _names(text) for name, _ in bound if name != "*")


@pytest.mark.parametrize(
    ("text", "exports"),
    [
        ("__all__ = ['a', 'b']", {"a", "b"}),
        ("__all__ = ('a',)\n__all__ += ['b']", {"a", "b"}),
        ("__all__ = ['a'] + ['b']", {"a", "b"}),
        ("__all__ = ['a']\n__all__.append('b')", {"a", "b"}),
        ("__all__ = ['a']\n__all__.extend(['b'])", {"a", "b"}),
        ("__all__ = ['a', made()]", None),
        ("__all__ = made()", None),
        ("__all__ = ['a']\n__all__ += made()", None),
        ("__all__ = ['a']\nother.extend(['b'])", {"a"}),
        ("__all__ = []", None),
        ("a = ['a']", None),
        ("__all__: list = ['a']", {"a"}),
    ],
)
def test_what_a_module_exports(text: str, exports: set[str] | None) -> None:
    assert _module(text).exports == exports


@pytest.mark.parametrize(
    ("text", "dynamic"),
    [
        ("globals()['a'] = 1", True),
        ("x = globals()['a']", False),
        ("globals().update(a=1)", True),
        ("exec('a = 1')", True),
        ("x = globals()", True),
        ("f('x', globals())", True),
        ("x = f('x', globals())", False),
        ("sys.modules[__name__] = x", True),
        ("sys.modules['y'] = x", False),
        ("def f():\n    globals()['a'] = 1", True),
        ("def __setattr__(a, b):\n    globals()[a] = b", False),
        ("a = 1", False),
    ],
)
def test_a_module_that_makes_names_at_run_time(text: str, dynamic: bool) -> None:  # noqa: FBT001
    assert _module(text).dynamic is dynamic


@pytest.mark.parametrize(
    ("body", "looks_up"),
    [
        ("if name in TABLE:\n        return 'x'\n    raise AttributeError", True),
        ("if name == 'x':\n        return 1\n    raise AttributeError", True),
        ("if name not in TABLE:\n        raise AttributeError", True),
        ("if name in TABLE:\n        return 'x'", False),
        ("if name != 'x':\n        raise AttributeError", False),
        ("if other in TABLE:\n        raise AttributeError", False),
        ("if name in globals():\n        raise AttributeError", False),
        ("'Find name in x.'\n    raise AttributeError('no name in x')", False),
    ],
)
def test_a_module_that_only_looks_names_up(body: str, looks_up: bool) -> None:  # noqa: FBT001
    text = f"x = 1\ndef __getattr__(name):\n    {body}\n"
    strings, only = lazy_names(text.encode())
    assert only is looks_up
    assert ("x" in strings) is ("'x'" in body)
    assert _module(text).lazy
    assert not _module("def getattr(name): ...").lazy
    assert lazy_names(text.replace("__getattr__", "other").encode())[1] is False
    assert lazy_names(text.replace("(name)", "(self, name)").encode())[1] is False


def test_what_is_no_python_has_no_summary() -> None:
    assert summarize(b"def (") is None
    assert summarize(b"x = " + b"(" * 5000 + b"1") is None


# ---- classes ---------------------------------------------------------------------------------------


def _class(text: str) -> Class:
    (binding,) = _module(text).names["C"]
    assert isinstance(binding, Class)
    return binding


def test_what_a_class_is() -> None:
    cls = _class(
        "\n@a.b(1)\n@c\nclass C(x.Y, Z[int], made(), metaclass=m.M, k=1):\n    d = 1\n\n    e = 2\n"
    )
    assert (cls.name, cls.line, cls.end) == ("C", 4, 7)
    assert cls.bases == ("x.Y", "Z", "?")
    assert cls.decorators == ("a.b", "c")
    assert cls.metaclass == "m.M"
    assert _class("class C: ...").metaclass is None


@pytest.mark.parametrize(
    ("body", "attributes"),
    [
        ("a = b = 1", "a b"),
        ("a: int = 1", "a"),
        ("a.b: int = 1", ""),
        ("a, *b = x", "a b"),
        ("__slots__ = ('a', 'b')", "__slots__ a b"),
        ("import a.b, c as d\n    from e import f as g", "a d g"),
        ("class D: x = 1", "D"),
        ("if x:\n        a = 1\n    else:\n        b = 1", "a b"),
        ("def f(self): self.a = self.b.c = 1", "f a"),
        ("def f(self): self.a += 1", "f"),
        ("def f(self): self.a, self.b = x", "f a b"),
        ("def f(me): me.a = 1; self.b = 1", "f a"),
        ("def f(*a): self.b = 1", "f"),
        ("def f(self):\n        def g(): self.a = 1", "f a"),
        ("def f(self): setattr(self, 'a', 1)", "f a"),
        ("def f(self): setattr(x, 'a', 1)", "f"),
        ("def f(self): object.__setattr__(self, 'a', 1)", "f a"),
        ("def f(self): super().__setattr__('a', 1)", "f a"),
        ("def f(self): self.register_buffer('a', x); self.add_module('b', y)", "f a b"),
        ("def f(self): self.register_buffer(name='a', tensor=x)", "f a"),
        ("def f(self): x.register_buffer('a', x)", "f"),
        ("def f(self): self.other('a')", "f"),
        ("def f(self): replace_parameter(self, 'a', x)", "f a"),
        ("def f(self): g(self, 'a')", "f a"),
        ("def f(self): g(x, self, 'a')", "f a"),
        ("def f(self): hasattr(self, 'a'); getattr(self, 'b'); delattr(self, 'c')", "f"),
        ("def f(self): g(self, 3)", "f"),
    ],
)
def test_every_attribute_that_an_instance_may_have(body: str, attributes: str) -> None:
    cls = _class(f"class C:\n    {body}\n")
    assert cls.attributes == set(attributes.split())
    assert not cls.dynamic


@pytest.mark.parametrize(
    "body",
    [
        "def __getattr__(self, name): ...",
        "def __getattribute__(self, name): ...",
        "def f(self): self.__dict__.update(x)",
        "def f(self): fill(self.__dict__)",
        "def f(self): vars(self)[x] = 1",
        "def f(self): setattr(self, name, 1)",
        "def f(self): setattr(self)",
        "def f(self): super().__setattr__(name, 1)",
        "def f(self): self.register_parameter(name, 1)",
        "def f(self): set_weight(self, name)",
        "locals().update(x)",
        "exec(x)",
    ],
)
def test_a_class_that_may_have_more(body: str) -> None:
    assert _class(f"class C:\n    {body}\n").dynamic


@pytest.mark.parametrize(
    "body",
    [
        "def f(self): g(self, name)",
        "def f(self): vars(x)[y] = 1",
        "def f(self): return dict(self.__dict__.items())",
        "def f(self): x.__dict__ = 1",
        "def f(): setattr(self, name, 1)",
        "x = made()",
    ],
)
def test_a_class_that_has_no_more(body: str) -> None:
    assert not _class(f"class C:\n    {body}\n").dynamic


@pytest.mark.parametrize(
    ("field", "required"),
    [
        ("int", True),
        ("int = 1", False),
        ("int = field()", True),
        ("int = Field(...)", True),
        ("int = Field(3)", False),
        ("int = Field(default=3)", False),
        ("int = dataclasses.field(default_factory=list)", False),
        ("int = field(factory=list)", False),
        ("int = Field(**more)", False),
        ("int = Field(gt=3)", True),
        ("int = PrivateAttr()", True),
        ("int = made()", False),
        ("Annotated[int, Field(default=3)]", False),
        ("Annotated[int, Field(gt=3)]", True),
        ("ClassVar[int]", None),
        ("typing.ClassVar", None),
        ("KW_ONLY", None),
    ],
)
def test_which_fields_a_class_needs(field: str, required: bool | None) -> None:  # noqa: FBT001
    cls = _class(f"class C:\n    a: {field}\n")
    assert cls.fields == ({} if required is None else {"a": required})
    assert cls.attributes == {"a"}


def test_methods_and_classes_inside_a_class() -> None:
    cls = _class(
        "class C:\n    def f(self): ...\n    async def f(self, a): ...\n    class D:\n        b = 1\n"
    )
    assert [one.text() for one in cls.methods["f"]] == ["(self)", "(self, a)"]
    assert cls.nested["D"].attributes == {"b"}
