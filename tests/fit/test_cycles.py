"""Cycles of imports that a patch closes."""

from __future__ import annotations

import pytest
from fit_tree import change, findings, tree_of, world_of

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit
from vllm_mods.fit.cycles import cycle_problems

ONE, TWO, THREE = "vllm/one.py", "vllm/two.py", "vllm/three.py"
FILES = {
    "vllm/__init__.py": '"""Shows\n\nfrom vllm.two import B\n"""\n',
    ONE: "import os\n\n\nclass A: ...\n\n\ndef late(): ...\n",
    TWO: "from vllm.three import C\n\n\nclass B(C): ...\n",
    THREE: "from .one import (\n    A,  # the base\n)\n\n\nclass C(A): ...\n",
}


def said(new: str, old: str = "import os\n", **files: str) -> list[tuple[str, Level, str]]:
    named = {f"vllm/{name}.py": text for name, text in files.items()}
    found = findings(ONE, (old, new), files={**FILES, **named})
    return [(f.code, f.level, f.message) for f in found if f.code == "fit-import"]


def test_a_cycle_in_which_every_module_asks_for_what_is_not_there_yet_is_an_error() -> None:
    ((code, level, message),) = said("import os\nfrom vllm.two import B\n")
    assert (code, level) == ("fit-import", Level.ERROR)
    assert "vllm/one.py -> vllm/two.py -> vllm/three.py): vllm/three.py:1 imports" in message
    assert message.startswith("vllm/one.py:2: ")
    assert "A from vllm.one, which has not defined that name yet" in message


def test_a_cycle_that_only_one_beginning_is_stuck_in_is_a_note() -> None:
    # two has all that one asks of it before it comes to its own import
    two = "class B: ...\n\n\nfrom vllm.one import A\n"
    ((_, level, message),) = said("import os\nfrom vllm.two import B\n", two=two)
    assert (level, message.endswith("if this file is imported first")) == (Level.NOTE, True)


@pytest.mark.slow
def test_a_cycle_is_nothing_where_no_name_is_asked_for_too_early() -> None:
    assert said("import os\n\ndef f():\n    from vllm.two import B\n") == []
    assert said("def late(): ...\nfrom vllm.two import B\n", "def late(): ...\n") == []
    assert said("import os\nimport vllm.two\n", three="import vllm.one\nclass C: ...\n") == []
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from vllm.one import A\n"
    assert said("import os\nfrom vllm.two import B\n", three=f"{guarded}class C: ...\n") == []
    made = "import os\nif os.name:\n    A = 1\nfrom vllm.two import B\n"
    assert said(made) == []


@pytest.mark.parametrize("text", ['"""Makes an A."""', "    # A is below"])
def test_a_text_that_names_what_is_asked_for_binds_nothing(text: str) -> None:
    (found,) = said(f"{text}\nfrom vllm.two import B\n")
    assert found[1] is Level.ERROR


def test_a_cycle_that_was_there_before_is_no_news() -> None:
    one = "from vllm.two import B\n\n\nclass A: ...\n"
    new = "from vllm.two import B\nfrom vllm.three import C\n"
    assert said(new, "from vllm.two import B\n", one=one) == []


@pytest.mark.slow
def test_submodules_of_a_package_that_is_being_loaded_are_there() -> None:
    files = {
        "vllm/__init__.py": "",
        "vllm/pack/__init__.py": "from vllm.pack import one\n",
        "vllm/pack/one.py": "import os\n",
        "vllm/pack/two.py": "from vllm.pack import one\n",
    }
    tree = tree_of(files)
    new = change(tree, "vllm/pack/one.py", ("import os\n", "from vllm.pack import two\n"))
    assert not [f for f in fit((new,), tree).findings if f.level is Level.ERROR]
    whole = FileChange("vllm/pack/three.py", None, b"from . import one, two\n")
    assert not [f for f in fit((whole,), tree).findings if f.level is Level.ERROR]


DEEP = "vllm/pack/one.py"
PACKED = {
    "vllm/__init__.py": "",
    "vllm/pack/__init__.py": "",
    DEEP: "import os\n\n\nclass A: ...\n",
    "vllm/pack/two.py": "",
}


def packed(new: str, two: str, package: str = "") -> list[str]:
    """Return what is said of a new import in a module of a package, and on which line."""
    files = {**PACKED, "vllm/pack/two.py": two, "vllm/pack/__init__.py": package}
    after = PACKED[DEEP].replace("import os\n", f"import os\n{new}\n")
    worlds = world_of(files), world_of(files, {DEEP: after})
    lines = frozenset(range(2, 3 + new.count("\n")))
    return [
        f"{problem.level.value} {problem.line}: {problem.message}"
        for problem in cycle_problems(*worlds, DEEP, lines)
    ]


ASKS = "from vllm.pack.one import A\n\n\nclass B: ...\n"
CYCLE = (
    "2: a cycle of imports (vllm/pack/one.py -> vllm/pack/two.py): vllm/pack/two.py:1 imports "
    "A from vllm.pack.one, which has not defined that name yet"
)


@pytest.mark.parametrize(
    ("new", "two", "level"),
    [
        ("from vllm.pack.two import B", ASKS, "error"),
        ("from .two import B", ASKS, "error"),
        ("from .two import B as C, D", ASKS.replace("vllm.pack.one", ".one"), "error"),
        ("from vllm.pack.two import (\n    B,  # that, and more\n)", ASKS, "error"),
        ("from vllm.pack.two import *", ASKS, "note"),
        ("import os.path, vllm.pack.two as two", ASKS, "note"),
        ("from vllm.pack import two", ASKS, "note"),
        ("from . import two", ASKS, "note"),
        ("from . import two", "from . import one\n", ""),
        ("from .two import B", ASKS.replace("import A", "import *"), ""),
        ("from .two import B", ASKS.replace("import A", "import gone"), ""),
        ("from .two import B", ASKS.replace("import A", "import os"), ""),
        ("from .two import B", f"def f():\n    {ASKS}", ""),
        ("from .two import B", f'"""\n{ASKS}"""\nB = 1\n', ""),
        ("def f():\n    from .two import B", ASKS, ""),
        ("from outside.two import B", ASKS, ""),
    ],
)
def test_a_cycle_in_a_package(new: str, two: str, level: str) -> None:
    first = " if this file is imported first" if level == "note" else ""
    assert packed(new, two) == ([f"{level} {CYCLE}{first}"] if level else [])


def test_a_cycle_through_the_package_itself() -> None:
    message = (
        "error 2: a cycle of imports (vllm/pack/one.py -> vllm/pack/__init__.py -> vllm/pack/two.py): "
        "vllm/pack/one.py:2 imports B from vllm.pack, which has not defined that name yet"
    )
    shown = "from vllm.pack.two import B\n"
    assert packed("from vllm.pack import B", ASKS, shown) == [message]
    assert packed("from vllm.pack import B", ASKS, "B = 1\nfrom vllm.pack.two import B\n") == []


def test_a_name_that_a_package_binds_is_not_the_module_of_that_name() -> None:
    assert packed("from vllm.pack import two", ASKS, "two = 1\n") == []
    assert len(packed("from vllm.pack import two", ASKS, "other = 1\n")) == 1
