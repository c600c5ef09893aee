"""Names followed through the modules of a tree."""

from __future__ import annotations

import ast

import pytest
from memory_tree import MemoryTree

from vllm_mods.serving.source import ModuleSources, SourcePlace, as_class, last_name, text_of

FILES = {
    "vllm/__init__.py": "from vllm.a import *\n",
    "vllm/a.py": """\
import vllm.deep.d as whole
import vllm.deep
import other
from os import path
from . import deep as package
from .deep import d
from .deep.d import Deep as Renamed, gone
from vllm.deep.again import Deep as Again
from .deep.d import *

if TYPE_CHECKING:
    Both = 1
    OnlyTyping = 2
else:
    Both = 3
if x:
    Either = 1
else:
    Either = 2
try:
    Tried = 1
    from .deep.d import Deep as Kept
except ImportError:
    Tried = 2
    Handled = 3
else:
    Fine = 4
First = Second = 5
Typed: int = 6
Bare: int
a.b = 7


class Cls:
    member = 1
    typed: int = 2

    def method(self): ...

    async def later(self): ...


class Sub(Cls, Renamed, Unknown):
    def method(self): ...


class Ring(Ring): ...


class Deepest(Sub, Cls): ...


def function(): ...


async def later(): ...
""",
    "vllm/deep/__init__.py": "Inside = 1\n",
    "vllm/deep/d.py": "class Deep:\n    def method(self): ...\n    x = 1\n\n\nStarred = 2\n_hidden = 3\n",
    "vllm/deep/again.py": "from vllm.deep.d import Deep\n",
    "vllm/loop.py": "from vllm.loop import Self\nfrom vllm.loop import *\n",
    "vllm/broken.py": "def (\n",
}
SOURCES = ModuleSources(MemoryTree({path: text.encode() for path, text in FILES.items()}))


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("whole.Deep", "vllm/deep/d.py", "class Deep:"),
        ("vllm.deep.Inside", "vllm/deep/__init__.py", "Inside = 1"),
        ("package.d.Deep", "vllm/deep/d.py", "class Deep:"),
        ("package.Inside", "vllm/deep/__init__.py", "Inside = 1"),
        ("d.Deep.x", "vllm/deep/d.py", "x = 1"),
        ("Renamed", "vllm/deep/d.py", "class Deep:"),
        ("Again.method", "vllm/deep/d.py", "def method(self):"),
        ("Kept", "vllm/deep/d.py", "class Deep:"),
        ("Starred", "vllm/deep/d.py", "Starred = 2"),
        ("Both", "vllm/a.py", "Both = 3"),
        ("OnlyTyping", "vllm/a.py", "OnlyTyping = 2"),
        ("Either", "vllm/a.py", "Either = 2"),
        ("Tried", "vllm/a.py", "Tried = 1"),
        ("Handled", "vllm/a.py", "Handled = 3"),
        ("Fine", "vllm/a.py", "Fine = 4"),
        ("First", "vllm/a.py", "First = Second = 5"),
        ("Second", "vllm/a.py", "First = Second = 5"),
        ("Typed", "vllm/a.py", "Typed: int = 6"),
        ("Cls.member", "vllm/a.py", "member = 1"),
        ("Cls.typed", "vllm/a.py", "typed: int = 2"),
        ("Cls.later", "vllm/a.py", "async def later(self):"),
        ("function", "vllm/a.py", "def function():"),
        ("later", "vllm/a.py", "async def later():"),
    ],
)
def test_where_a_name_leads(name: str, path: str, text: str) -> None:
    place = SOURCES.find("vllm/a.py", name)
    assert place is not None
    assert (place.path, ast.unparse(place.node).split("\n")[0].removesuffix(" ...")) == (path, text)


@pytest.mark.parametrize(
    "name",
    [
        "",
        None,
        "gone",
        "nothing",
        "other",
        "path",
        "os.path",
        "a",
        "package",
        "vllm.deep",
        "whole.gone",
        "Cls.gone",
        "First.x",
        "function.x",
        "Cls.member.x",
        "nothing.x",
        "other.x",
    ],
)
def test_a_name_that_leads_nowhere(name: str | None) -> None:
    assert SOURCES.find("vllm/a.py", name) is None
    assert SOURCES.value("vllm/a.py", name) is None


@pytest.mark.parametrize(
    ("name", "runtime", "typing"), [("Both", 3, 1), ("OnlyTyping", 2, 2), ("Either", 2, 2)]
)
def test_what_a_type_checker_sees_is_something_else(name: str, runtime: int, typing: int) -> None:
    for asks, value in ((False, runtime), (True, typing)):
        for path in ("vllm/a.py", "vllm/__init__.py"):
            place = SOURCES.find(path, name, typing=asks)
            assert place is not None
            assert ast.literal_eval(getattr(place.node, "value", "")) == value


def test_values_are_those_that_are_assigned() -> None:
    assert ast.unparse(SOURCES.value("vllm/a.py", "Typed") or ast.Pass()) == "6"
    assert SOURCES.value("vllm/a.py", "Bare") is None
    assert SOURCES.value("vllm/a.py", "Cls") is None


def test_a_class_is_no_other_thing() -> None:
    cls = SOURCES.find_class("vllm/a.py", "Cls")
    assert cls is not None
    assert cls.node.name == "Cls"
    for name in ("function", "First", "gone", None):
        assert SOURCES.find_class("vllm/a.py", name) is None
    assert as_class(None) is None
    assert as_class(SourcePlace("x", ast.Pass())) is None


def test_bases_and_methods_come_in_search_order() -> None:
    def named(name: str) -> tuple[list[str], list[str]]:
        cls = SOURCES.find_class("vllm/a.py", name)
        assert cls is not None
        bases = [base.node.name for base in SOURCES.bases(cls)]
        return bases, [f"{at.path}:{at.node.name}" for at in SOURCES.methods(cls)]

    assert named("Sub")[0] == ["Sub", "Cls", "Deep"]
    assert named("Sub")[1] == ["vllm/a.py:method", "vllm/a.py:method", "vllm/deep/d.py:method"]
    assert named("Deepest")[0] == ["Deepest", "Sub", "Cls", "Deep"]
    assert named("Ring") == (["Ring"], [])


def test_files_are_those_of_vllm_alone() -> None:
    assert SOURCES.file_of("vllm.a") == "vllm/a.py"
    assert SOURCES.file_of("vllm.deep") == "vllm/deep/__init__.py"
    assert SOURCES.file_of("vllm") == "vllm/__init__.py"
    for name in ("vllm.gone", "vllm.broken", "other", "vllmx", ""):
        assert SOURCES.file_of(name) is None
    assert SOURCES.find("vllm/gone.py", "x") is None
    assert SOURCES.find("vllm/broken.py", "x") is None


def test_a_package_has_its_modules_as_names() -> None:
    place = SOURCES.find("vllm/deep/__init__.py", "d.Starred")
    assert place is not None
    assert place.path == "vllm/deep/d.py"
    assert SOURCES.find("vllm/deep/d.py", "again.Deep") is None


def test_a_name_that_is_imported_in_a_ring_ends() -> None:
    assert SOURCES.find("vllm/loop.py", "Self") is None
    assert SOURCES.find("vllm/loop.py", "Other") is None


def test_a_long_chain_of_classes_and_of_imports_is_followed_so_far() -> None:
    chain = {f"vllm/c{n}.py": f"from vllm.c{n + 1} import Name\n".encode() for n in range(40)}
    chain["vllm/c40.py"] = b"Name = 1\n"
    lines = [f"class C{n}(C{n - 1}): ..." for n in range(1, 41)]
    chain["vllm/classes.py"] = "\n".join(["class C0: ...", *lines]).encode()
    sources = ModuleSources(MemoryTree(chain))
    assert sources.find("vllm/c8.py", "Name") is not None
    assert sources.find("vllm/c7.py", "Name") is None
    last = sources.find_class("vllm/classes.py", "C40")
    assert last is not None
    assert [base.node.name for base in sources.bases(last)] == [f"C{n}" for n in range(40, 8, -1)]


@pytest.mark.parametrize(
    ("code", "name"),
    [("a.b.c", "c"), ("a", "a"), ("a.b(1)", "b"), ("a[1]", ""), ("1", ""), ("a().b", "b")],
)
def test_the_last_name_of_an_expression(code: str, name: str) -> None:
    assert last_name(ast.parse(code, mode="eval").body) == name


@pytest.mark.parametrize(("code", "text"), [("'a'", "a"), ("b'a'", None), ("a", None), ("1", None)])
def test_the_text_of_an_expression(code: str, text: str | None) -> None:
    assert text_of(ast.parse(code, mode="eval").body) == text
    assert text_of(None) is None
