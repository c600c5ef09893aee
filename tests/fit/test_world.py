"""What the names of a tree's modules mean, and what stands below and above its classes."""

from __future__ import annotations

import re

import pytest
from fit_tree import tree_of, world_of

from vllm_mods.fit.bodies import arities, definition, is_generator, scope_at
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.overrides import changed_methods, overrides_of
from vllm_mods.fit.results import abstract_methods
from vllm_mods.fit.search import (
    classes_in,
    classes_named,
    definers,
    files_mentioning,
    is_mentioned,
    python_files,
    subclasses,
    words_mentioned,
)
from vllm_mods.fit.shapes import Function, Lookup, Symbol
from vllm_mods.fit.world import SummaryCache, World, absolute, module_stem

A = "vllm/a.py"
FILES = {
    "vllm/__init__.py": "Inside = 1\n",
    A: """
        import os.path
        import torch
        import vllm.pack.one as renamed
        import vllm.pack
        from outside import thing
        from vllm import pack, gone, Inside
        from vllm.pack import one, Shown, _hidden
        from vllm.pack.one import Base as Again
        from vllm.pack._C import fast
        from .ring import Round

        Alias = Again
        Value = 3
        Called = made().x


        class Own:
            class Deep:
                x = 1


        def function(): ...
    """,
    "vllm/pack/__init__.py": "from .one import *\nfrom elsewhere import *\nfrom .two import _hidden\n",
    "vllm/pack/one.py": "class Base: ...\nShown = 1\n_private = 2\n",
    "vllm/pack/two.py": "_hidden = 1\n",
    "vllm/pack/built.abi3.so": "",
    "vllm/ring.py": "from vllm.ring import Round\n",
    "vllm/lazy.py": "def __getattr__(name):\n    if name in {'Named'}:\n        return 1\n    raise AttributeError\n",
    "vllm/table.py": "T = {'Named': 'a:B'}\n\n\ndef __getattr__(name):\n    if name in T:\n        return getattr(load(T), T[name])\n    raise AttributeError\n",
    "vllm/handed.py": "def __getattr__(name):\n    if name != 'x':\n        return getattr(load(), name)\n    raise AttributeError\n",
    "vllm/lazier.py": "def __getattr__(name):\n    return 'Named'\n",
    "vllm/filled.py": "globals().update(x)\n",
    "vllm/exports.py": "from vllm.exported import *\n",
    "vllm/exported.py": "__all__ = ['_a']\n_a = b = 1\n",
    "vllm/bare/file.py": "x = 1\n",
    "vllm/broken.py": "def (\n",
}


@pytest.fixture(scope="module")
def world() -> World:
    return world_of(FILES)


def _shown(lookup: Lookup) -> str:
    """Return what was found in a few letters."""
    words = [
        one.module or one.external or (f"{one.path}:{one.binding.line}" if one.binding else "?")
        for one in lookup.symbols
    ]
    return f"{lookup.exists} {' '.join(words)}".strip()


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Own", f"True {A}:17"),
        ("Own.Deep", f"True {A}:18"),
        ("function", f"True {A}:22"),
        ("Value", f"True {A}:13"),
        ("Alias", "True vllm/pack/one.py:1"),
        ("Called", f"True {A}:14"),
        ("Again", "True vllm/pack/one.py:1"),
        ("Shown", "True vllm/pack/one.py:2"),
        ("_hidden", "True vllm/pack/two.py:1"),
        ("one", "True vllm/pack/one.py"),
        ("one.Base", "True vllm/pack/one.py:1"),
        ("renamed", "True vllm/pack/one.py"),
        ("renamed.Base", "True vllm/pack/one.py:1"),
        ("vllm.pack.Base", "True vllm/pack/one.py:1"),
        ("pack._private", "None"),
        ("pack", "True vllm/pack/__init__.py"),
        ("Inside", "True vllm/__init__.py:1"),
        ("gone", "True ?"),
        ("thing", "True outside.thing"),
        ("thing.more", "True outside.thing.more"),
        ("torch.nn.Module", "True torch.nn.Module"),
        ("os.path", "True os.path"),
        ("fast", "True ?"),
        ("Round", "True ?"),
        ("__name__", "True ?"),
        ("nothing", "False"),
        ("function.x", "None"),
        ("Own.Gone", "None"),
    ],
)
def test_what_a_name_means(world: World, name: str, shown: str) -> None:
    assert _shown(world.resolve(A, name)) == shown


@pytest.mark.parametrize(
    ("path", "name", "shown", "why"),
    [
        ("vllm/pack/__init__.py", "Base", "True vllm/pack/one.py:1", ""),
        ("vllm/pack/__init__.py", "two", "True vllm/pack/two.py", ""),
        (
            "vllm/pack/__init__.py",
            "_private",
            "None",
            "vllm/pack/__init__.py imports * from elsewhere, which is not in the tree",
        ),
        ("vllm/lazy.py", "Named", "True ?", ""),
        ("vllm/lazy.py", "Other", "False", ""),
        ("vllm/table.py", "Named", "True ?", ""),
        ("vllm/table.py", "Other", "False", ""),
        ("vllm/handed.py", "Other", "None", "vllm/handed.py makes names in __getattr__"),
        ("vllm/lazier.py", "Named", "True ?", ""),
        ("vllm/lazier.py", "Other", "None", "vllm/lazier.py makes names in __getattr__"),
        ("vllm/filled.py", "x", "None", "vllm/filled.py creates names at run time"),
        ("vllm/exports.py", "_a", "True vllm/exported.py:2", ""),
        ("vllm/exports.py", "b", "False", ""),
        ("vllm/broken.py", "x", "None", "vllm/broken.py does not parse"),
        ("vllm/gone.py", "x", "None", "vllm/gone.py does not parse"),
        ("vllm/ring.py", "Round", "True ?", ""),
        ("vllm/bare/", "file", "True vllm/bare/file.py", ""),
        ("vllm/bare/", "gone", "False", ""),
    ],
)
def test_whether_a_module_has_a_name(
    world: World, path: str, name: str, shown: str, why: str
) -> None:
    assert (_shown(world.lookup(path, name)), world.lookup(path, name).why) == (shown, why)


@pytest.mark.parametrize(
    ("dotted", "shown", "why"),
    [
        ("vllm", "True vllm/__init__.py", ""),
        ("vllm.a", "True vllm/a.py", ""),
        ("vllm.pack", "True vllm/pack/__init__.py", ""),
        ("vllm.bare", "True vllm/bare/", ""),
        ("vllm.pack.built", "True ?", ""),
        ("vllm.gone", "False", ""),
        ("vllm._C", "None", "vllm._C is generated when vLLM is built"),
        ("vllm._version", "None", "vllm._version is generated when vLLM is built"),
        ("torch.nn", "None torch.nn", "torch is not in the tree"),
    ],
)
def test_where_a_module_is(world: World, dotted: str, shown: str, why: str) -> None:
    lookup = world.locate(dotted)
    assert (_shown(lookup), lookup.why) == (shown, why)
    assert lookup.module == (shown.split(" ")[1] if ".py" in shown or shown.endswith("/") else None)


@pytest.mark.parametrize(
    ("path", "level", "module", "whole"),
    [
        ("vllm/a/b.py", 0, "x.y", "x.y"),
        ("vllm/a/b.py", 1, "x", "vllm.a.x"),
        ("vllm/a/b.py", 2, "x", "vllm.x"),
        ("vllm/a/b.py", 3, "x", "x"),
        ("vllm/a/b.py", 4, "x", "x"),
        ("vllm/a/__init__.py", 1, "", "vllm.a"),
        ("vllm/a/b.py", 3, "", ""),
    ],
)
def test_a_module_that_is_named_from_where_one_stands(
    path: str, level: int, module: str, whole: str
) -> None:
    assert absolute(path, level, module) == whole


def test_the_last_word_of_a_module() -> None:
    assert [module_stem(path) for path in ("a/b.py", "a/b/__init__.py", "c.py")] == ["b", "b", "c"]


def test_changes_are_part_of_what_is_read_and_listed() -> None:
    world = world_of(
        FILES, {"vllm/new.py": "x = 1\n", "vllm/ring.py": None, "extra/m.py": "y = 1\n"}
    )
    assert world.read("vllm/new.py") == b"x = 1\n"
    assert world.read("vllm/ring.py") is None
    assert "vllm/new.py" in world.paths()
    assert "vllm/ring.py" not in world.paths()
    assert world.roots == {"vllm", "extra"}
    assert _shown(world.locate("extra.m")) == "True extra/m.py"
    assert _shown(world.locate("vllm.ring")) == "False"
    assert python_files(world)[0] == "extra/m.py"
    assert world.consulted >= {"vllm/new.py", "vllm/ring.py"}
    world.glance("vllm/lazy.py")
    assert "vllm/lazy.py" not in world.consulted


def test_files_are_found_by_the_words_in_them(world: World) -> None:
    assert [path for path, _ in files_mentioning(world, ("_private", "_hidden"))] == [
        A,
        "vllm/pack/__init__.py",
        "vllm/pack/one.py",
        "vllm/pack/two.py",
    ]
    for more in ((), [f"word{n}" for n in range(30)]):
        mentioned = dict(words_mentioned(world, frozenset(("_private", "_priv", *more))))
        assert mentioned == {"vllm/pack/one.py": {"_private"}}
    assert is_mentioned(world, "Shown", re.compile(rb"^Shown = ", re.MULTILINE))
    assert not is_mentioned(world, "Shown", re.compile(rb"def Shown"))


# ---- classes ---------------------------------------------------------------------------------------

CLASSES = {
    "vllm/__init__.py": "",
    "vllm/base.py": """
        from abc import ABC, abstractmethod
        import enum

        import torch.nn as nn


        class Base(ABC):
            size = 1

            @abstractmethod
            def run(self): ...

            @abstractmethod
            def stop(self): ...

            def help(self, a): ...


        class Open:
            @abstractmethod
            def run(self): ...


        class Colour(enum.Enum):
            RED = 1


        class Layer(nn.Module):
            scale = 1


        class Foreign(Base, other.Class): ...


        class Plain(dict):
            class Inner: ...
    """,
    "vllm/below.py": """
        from vllm.base import Base as Root, Plain

        Other = Root


        class Half(Root):
            def run(self): ...

            def help(self, a, b): ...

            def __private(self): ...

            def __init__(self): ...


        class Whole(Half):
            stop = None
            more = 1


        class Aliased(Other):
            def help(self): ...


        class Below(Plain): ...


        class Ring(Ring): ...


        class Both(Half, Aliased): ...
    """,
}


@pytest.fixture(scope="module")
def classes() -> World:
    return world_of(CLASSES)


def _class(world: World, name: str) -> Symbol:
    (symbol,) = classes_named(world, name)
    return symbol


def test_classes_of_a_module_nested_ones_dotted(classes: World) -> None:
    names = [name for name, _ in classes_in(classes, "vllm/base.py")]
    assert names == ["Base", "Open", "Colour", "Layer", "Foreign", "Plain", "Plain.Inner"]
    assert [*classes_in(classes, "vllm/gone.py")] == []
    assert classes_named(classes, "Gone") == ()
    assert _class(classes, "Inner").text == "Inner (vllm/base.py:36)"


@pytest.mark.parametrize(
    ("name", "names", "outside", "torch"),
    [
        ("Base", "Base", (), False),
        ("Whole", "Whole Half Base", (), False),
        ("Aliased", "Aliased Base", (), False),
        ("Both", "Both Half Aliased Base", (), False),
        ("Layer", "Layer", (), True),
        ("Foreign", "Foreign Base", ("other.Class",), False),
        ("Below", "Below Plain", (), False),
        ("Ring", "Ring", ("Ring",), False),
    ],
)
def test_the_line_of_a_class(
    classes: World, name: str, names: str, outside: tuple[str, ...], *, torch: bool
) -> None:
    line = lineage(classes, _class(classes, name))
    assert " ".join(one.cls.name for one in line.classes) == names
    assert (line.outside, line.torch, line.unknown) == (outside, torch, bool(outside))


def test_attributes_are_those_of_the_whole_line_and_of_what_is_known_outside(
    classes: World,
) -> None:
    def has(name: str, *attributes_: str) -> list[bool]:
        names = attributes(classes, lineage(classes, _class(classes, name)))
        return [one in names for one in attributes_]

    assert has("Whole", "more", "size", "help", "stop", "gone", "__class__") == [True] * 4 + [
        False,
        True,
    ]
    assert has("Whole", "__dict__", "__annotations__", "__name__", "__qualname__") == [True] * 4
    assert has("Layer", "scale", "register_buffer", "value") == [True, True, False]
    assert has("Colour", "RED", "value", "_name_", "keys") == [True, True, True, False]
    assert has("Below", "keys", "value") == [True, False]
    assert has("Base", "__dataclass_fields__", "register_buffer") == [False, False]


def test_a_dataclass_has_what_its_decorator_makes() -> None:
    world = world_of(
        {"vllm/x.py": "@a.dataclass\nclass A: ...\n@config\nclass B: ...\n@c\nclass C: ...\n"}
    )
    for name, has in (("A", True), ("B", True), ("C", False)):
        names = attributes(world, lineage(world, _class(world, name)))
        assert ({"__dataclass_fields__", "__post_init__", "__pydantic_fields__"} <= names) is has


def test_named_tuples_have_the_methods_of_one() -> None:
    world = world_of(
        {"vllm/x.py": "from typing import NamedTuple\nclass A(NamedTuple):\n    a: int\n"}
    )
    names = attributes(world, lineage(world, _class(world, "A")))
    assert {"_replace", "_fields", "count", "a"} <= names


def test_who_stands_below_a_class_under_whatever_name(classes: World) -> None:
    def below(name: str) -> list[str]:
        return sorted(one.cls.name for one in subclasses(classes, _class(classes, name)))

    assert below("Base") == ["Aliased", "Both", "Foreign", "Half", "Whole"]
    assert below("Half") == ["Both", "Whole"]
    assert below("Whole") == []
    assert below("Plain") == ["Below"]


def test_files_with_a_class_below_another_are_found_by_any_name_of_it() -> None:
    files = {
        "vllm/__init__.py": "",
        "vllm/base.py": "class Base: ...\n",
        "vllm/one.py": "from vllm.base import Base\n\nOther = Base\n\n\nclass A(Other): ...\n",
        "vllm/two.py": "import vllm.base\n\nOther = vllm.base.Base\n\n\nclass B(Other): ...\n",
        "vllm/three.py": "from vllm.base import Base as Root\n\n\nclass C(Root): ...\n",
        "vllm/four.py": "import vllm.base as b\n\n\nclass D(b.Base, metaclass=x): ...\n",
        "vllm/five.py": "from vllm.three import C\n\n\nclass E(\n    C[int],\n): ...\n",
        "vllm/six.py": "from vllm.base import Base\n\n\ndef f(x: Base): ...\n\n\nclass F: ...\n",
    }
    world = world_of(files)
    below = subclasses(world, _class(world, "Base"))
    assert sorted(one.cls.name for one in below) == ["A", "B", "C", "D", "E"]


def test_which_abstract_methods_a_class_leaves_open(classes: World) -> None:
    def left(name: str) -> dict[str, str]:
        methods = abstract_methods(classes, _class(classes, name))
        return {method: owner.cls.name for method, owner in methods.items()}

    assert left("Base") == {"run": "Base", "stop": "Base"}
    assert left("Half") == {"stop": "Base"}
    assert left("Whole") == {}
    assert left("Open") == {}
    assert left("Foreign") == {}
    meta = world_of(
        {
            "vllm/x.py": "class A(metaclass=abc.ABCMeta):\n    @abstractmethod\n    def f(self): ...\n"
        }
    )
    assert [*abstract_methods(meta, _class(meta, "A"))] == ["f"]


def test_who_defines_a_method(classes: World) -> None:
    assert [one.cls.name for one in definers(classes, "help")] == ["Base", "Half", "Aliased"]
    assert definers(classes, "gone") == ()


def test_what_a_class_overrides(classes: World) -> None:
    def overrides(name: str, *methods: str) -> list[str]:
        overridden = overrides_of(classes, _class(classes, name), frozenset(methods))
        return [
            f"{one.base.cls.name}.{one.overridden.name}{one.method.text()}" for one in overridden
        ]

    assert overrides("Half", "run", "help", "stop", "__init__", "__private") == [
        "Base.help(self, a, b)",
        "Base.run(self)",
    ]
    assert overrides("Both", "help") == []
    assert overrides("Base", "help") == []


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("def help(self): ...", "def help(self, x): ...", [("Aliased", "help", "help")]),
        ("def help(self): ...", "@made\n    def help(self): ...", [("Aliased", "help", "help")]),
        ("def help(self): ...", "def help(self): return 1", []),
        ("def help(self): ...", "def more(self): ...", [("Aliased", "more", "")]),
        ("class Aliased(Other):", "class Aliased(Root):", [("Aliased", "help", "")]),
        ("class Aliased(Other):", "class New(Other):", [("New", "help", "")]),
    ],
)
def test_which_methods_a_patch_changes(
    classes: World, old: str, new: str, changed: list[tuple[str, str, str]]
) -> None:
    path = "vllm/below.py"
    text = (classes.read(path) or b"").decode()
    assert text.count(old) == 1
    after = world_of(CLASSES, {path: text.replace(old, new)})
    seen = [
        (symbol.cls.name, " ".join(sorted(methods)), " ".join(sorted(narrowed)))
        for symbol, methods, narrowed in changed_methods(classes, after, path)
    ]
    assert seen == changed


# ---- what functions give ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "lengths", "generates"),
    [
        ("return 1, 2", {2}, False),
        ("if x:\n        return 1, 2\n    return (1,)", {1, 2}, False),
        ("return x", {None}, False),
        ("return", {None}, False),
        ("return 1, *x", {None}, False),
        ("pass", set(), False),
        ("def g():\n        return 1, 2, 3\n    return 1, 2", {2}, False),
        ("x = lambda: (yield)\n    return 1, 2", {2}, False),
        ("yield 1\n    return 1, 2", {None}, True),
        ("yield from x", {None}, True),
        ("def g(): yield", set(), False),
        ("class A:\n        def g(self): yield\n    return ()", {0}, False),
    ],
)
def test_how_many_values_a_function_returns(
    body: str, lengths: set[int | None], *, generates: bool
) -> None:
    world = world_of({"vllm/x.py": f"def f():\n    {body}\n"})
    (symbol,) = world.lookup("vllm/x.py", "f").symbols
    assert isinstance(symbol.binding, Function)
    node = definition(world, symbol.path, symbol.binding)
    assert node is not None
    assert arities(node) == lengths
    assert is_generator(node) is generates
    assert arities(None) == {None}
    assert definition(world, "vllm/x.py", symbol.binding._replace(line=9)) is None
    assert definition(world, "vllm/gone.py", symbol.binding) is None


def test_the_classes_and_functions_around_a_line() -> None:
    text = "x = 1\nclass A:\n    def f(self):\n        def g(): ...\n        return 1\n    y = 2\n"
    world = world_of({"vllm/x.py": text, "vllm/bad.py": "def ("})
    assert [scope_at(world, "vllm/x.py", line) for line in range(1, 8)] == [
        "",
        "A",
        "A.f",
        "A.f.g",
        "A.f",
        "A",
        "",
    ]
    assert scope_at(world, "vllm/bad.py", 1) == ""


@pytest.mark.parametrize(
    ("files", "lowest"),
    [
        ({"PKG-INFO": "Requires-Python: <3.15,>=3.10\n"}, (3, 10)),
        ({"PKG-INFO": "Name: x\n", "pyproject.toml": 'requires-python = ">=3.9,<4"\n'}, (3, 9)),
        ({"PKG-INFO": "Requires-Python: > 3.8\n"}, (3, 8)),
        ({"PKG-INFO": "Requires-Python: ~=3.8\n"}, None),
        (
            {
                "vllm-0.19.1.dist-info/METADATA": "Requires-Python: >=3.11\n",
                "PKG-INFO": "Requires-Python: >=3.10\n",
            },
            (3, 11),
        ),
        ({}, None),
    ],
)
def test_the_lowest_python_that_a_tree_allows(
    files: dict[str, str], lowest: tuple[int, int] | None
) -> None:
    tree = tree_of(files)
    tree.version = "0.19.1"
    assert World(tree, {}, SummaryCache()).python == lowest
