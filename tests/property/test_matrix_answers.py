"""What a matrix answers, computed or kept, is what ``check`` says of the tree."""

from __future__ import annotations

import tempfile
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from mod_making import diff_of, lock_with, mod, variant
from release_shelf import ReleaseInMemory, Shelf
from sampling import examples

from vllm_mods.base.model import BinaryFile, Mod
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.matrices.work import Task, blank_cell, filled
from vllm_mods.planning.planner import plan

PATH, BESIDE, NEW = "vllm/m.py", "vllm/util.py", "vllm/new/m.py"
OLD = "from vllm.util import load\n\n\ndef run(a):\n    b = a\n    return b\n"
TEXTS = [
    OLD,
    f"import os\n\n{OLD}",
    OLD.replace("b = a", "b = load(a)"),
    OLD.replace("b = a", "b = 7"),
    "def other():\n    return 1\n",
]
UTILS = ["def load(a):\n    return a\n", "def load(a, b):\n    return a\n", "LOAD = 1\n"]
VERSIONS = ["0.19.1", "0.20.0", "0.20.1", "0.21.0", "0.22.0", "0.23.0"]
RANGES = [">=0.19", ">=0.20,<0.21", ">=0.21,<0.22", ">=0.9,<0.10", ">=0.30"]

files = st.fixed_dictionaries(
    {PATH: st.sampled_from(TEXTS), BESIDE: st.sampled_from(UTILS)},
    optional={
        NEW: st.sampled_from(TEXTS),
        "kernels-1.0.dist-info/METADATA": st.just("Name: kernels\n"),
        "vllm/nobody_reads.py": st.sampled_from(["A = 1\n", "A = 2\n"]),
    },
)


@st.composite
def variants(draw: st.DrawFn, name: str, after: str) -> Any:
    patch = diff_of(PATH, OLD, OLD.replace("b = a", after))
    more = diff_of("kernels/k.py", "K = 1\n", "K = 2\n")
    return variant(
        *draw(st.sampled_from([(patch,), (patch,), (patch, more)])),
        name=name,
        vllm=draw(st.sampled_from(RANGES)),
        python=draw(st.sampled_from([(), ("kernels>=2",), ("kernels==1.0",)])),
    )


@st.composite
def libraries(draw: st.DrawFn) -> tuple[Mod, ...]:
    first = mod(
        draw(variants("a", "b = load(a)")),
        draw(variants("b", "b = load(a, a)")),
        name="first",
        outside=("kernels/k.py",),
    )
    second = mod(
        variant(diff_of(BESIDE, UTILS[0], UTILS[1]), name="x", vllm=draw(st.sampled_from(RANGES))),
        name="second",
        requires=draw(st.sampled_from([(), ("first",)])),
    )
    if draw(st.booleans()):  # a lock that says of a version what its range does not
        state = LockedTree(("0.20.0",), draw(st.booleans()), "a", "applies", (), (), (), ())
        first = first._replace(lock=lock_with(first, state))
    return first, second


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(libraries(), st.lists(files, min_size=2, max_size=6), st.booleans())
def test_answers_for_several_mods_are_those_of_check(
    mods: tuple[Mod, ...],
    contents: list[dict[str, str]],
    pristine: bool,  # noqa: FBT001
) -> None:
    trees = [
        ReleaseInMemory(
            {"vllm/__init__.py": b"", **{path: text.encode() for path, text in one.items()}},
            version=version,
            spec=f"memory:{version}",
            pristine=pristine,
            identity=version,
        )
        for version, one in zip(VERSIONS, contents, strict=False)
    ]
    first, second = mods
    needed: dict[Mod, tuple[Mod, ...]] = {first: (first,)}
    needed[second] = (first, second) if second.requires else (second,)
    with tempfile.TemporaryDirectory() as cache:
        shelf = Shelf(mods, trees, cache, store=True)
        for tree in trees:
            check(shelf, tree, needed)


def check(shelf: Shelf, tree: ReleaseInMemory, needed: dict[Mod, tuple[Mod, ...]]) -> None:
    """Hold what is computed against ``check``, which asks a tree itself, and what is kept against that."""
    task = Task(tree.spec, tuple(one.name for one in needed))
    computed = shelf.run(task)
    for behind, answer in zip(needed.values(), computed, strict=True):
        planned = plan(behind, tree, origin=shelf.origins).mods[-1]
        blank = blank_cell(behind[-1], tree.spec, tree.version)
        assert answer._replace(packages=()) == filled(blank, planned)
    assert shelf.run(task) == computed


CLASS, ROOT, HEIR, CALLER = "vllm/kid.py", "vllm/root.py", "vllm/deep/heir.py", "vllm/caller.py"
ENVS, MODELS = "vllm/envs.py", "vllm/model_executor/models/kid.py"
KID = """\
from vllm.util import load
from vllm.root import Root


class Kid(Root):
    def go(self, a):
        return load(a)

    def stop(self):
        return None


def make(a):
    kid = Kid()
    return kid.go(a)
"""
EDITS = [
    ("def go(self, a):", "def go(self, a, b):"),  # heirs and callers have the old one
    ("def make(a):", "def make(a, b):"),
    ("return load(a)", "return self.far(a)"),  # a method of the class above
    ("return load(a)", "return load(a, b=1)"),  # a function behind another import
    ("return None", 'return os.environ["VLLM_KID"]'),  # a table of names
    ("return None", 'return "vllm.model_executor.models.kid:Kid"'),
    ("return None", "import vllm.gone\n        return vllm.gone"),
]
FOLLOWED = {
    CLASS: [KID, "import os\n\n" + KID, KID.replace("    def stop", "    # more\n    def stop")],
    BESIDE: [
        "def load(a):\n    return a\n",
        "def load(a, b):\n    return a\n",
        "from vllm.deep.load import load\n",
        "from vllm.deep import *\n",
        "def __getattr__(name):\n    return name\n",
    ],
    "vllm/deep/load.py": ["def load(a):\n    return a\n", "def load(a, *, b):\n    return a\n"],
    "vllm/deep/__init__.py": ["", "from .load import load\n", '__all__ = ["load"]\nload = None\n'],
    ROOT: [
        "class Root:\n    def far(self, a):\n        return a\n",
        "class Root:\n    def far(self):\n        return 1\n",
        "from abc import ABC, abstractmethod\n\n\nclass Root(ABC):\n    @abstractmethod\n    def near(self): ...\n",
        "from vllm.deep.load import Root\n",
    ],
    HEIR: [
        "from vllm.kid import Kid\n\n\nclass Heir(Kid):\n    def go(self, a):\n        return super().go(a)\n",
        "from vllm.kid import Kid\n\n\nclass Heir(Kid):\n    def go(self, a, b):\n        return 1\n",
        "from vllm.kid import make as go\n\ngo(1)\n",
    ],
    CALLER: [
        "from vllm.kid import make\n\n\ndef use():\n    return make(1)\n",
        "from vllm import kid\n\n\ndef use():\n    return kid.make(1, 2)\n",
        "from vllm.kid import Kid\n\n\ndef use(kid: Kid):\n    return kid.go(1)\n",
        "def use():\n    return 1\n",
    ],
    ENVS: ['environment_variables = {"VLLM_KID": 1}\n', 'environment_variables = {"VLLM_KIN": 1}\n'],
    MODELS: ["class Kid:\n    pass\n", "class Child:\n    pass\n"],
    "vllm/gone.py": [""],
    "other_dist/x.py": ["X = 1\n", "X = 1\nY = 1\n", "X = 3\n"],
}  # fmt: skip
followed = st.fixed_dictionaries(
    {CLASS: st.sampled_from(FOLLOWED[CLASS])},
    optional={path: st.sampled_from(texts) for path, texts in FOLLOWED.items() if path != CLASS},
)
besides = st.fixed_dictionaries({}, optional={"dist": st.sampled_from(["1.0", "2.0", "2.1"])})
built_for = st.sampled_from([None, "linux/arm64"])


@st.composite
def releases(draw: st.DrawFn) -> list[ReleaseInMemory]:
    """Return releases of which each is the one before but for a file or two."""
    files, packages, platform = draw(followed), draw(besides), draw(built_for)
    pristine, remote = draw(st.booleans()), draw(st.booleans())
    made = []
    for version in VERSIONS[: draw(st.integers(2, 6))]:
        for path in draw(st.lists(st.sampled_from(sorted(FOLLOWED)), max_size=2)):
            text = draw(st.sampled_from([None, *FOLLOWED[path]]))
            files = {**files, path: text} if text is not None else {**files}
            if text is None:
                files.pop(path, None)
        if draw(st.integers(0, 3)) == 0:
            packages, platform = draw(besides), draw(built_for)
        there = {path: text.encode() for path, text in files.items()}
        more: dict[str, Any] = {"packages": packages, "platform": platform}
        more |= {"version": version, "spec": f"memory:{version}", "pristine": pristine}
        more |= {"identity": version}
        made.append(ReleaseInMemory({"vllm/__init__.py": b"", **there}, remote=remote, **more))
    return made


@st.composite
def edits(draw: st.DrawFn, name: str) -> Any:
    texts = [KID]
    for old, new in draw(st.lists(st.sampled_from(EDITS), min_size=1, max_size=2)):
        texts.append(texts[-1].replace(old, new))
    patches = [diff_of(CLASS, KID, texts[-1])]
    package = draw(st.sampled_from(["", "", "dist"]))
    if draw(st.booleans()):
        patches.append(diff_of("other_dist/x.py", "X = 1\n", "X = 2\n"))
    built = [
        BinaryFile(f"{at}.so", "vllm/kid.so", "0" * 64, platform, b"\x7fELF")
        for at, platform in enumerate(draw(st.sampled_from([(), (), ("linux/amd64",)])))
    ]
    return variant(
        *patches,
        name=name,
        vllm=draw(st.sampled_from(RANGES)),
        package=package,
        package_version=draw(st.sampled_from([">=0", ">=2", "==1.0"])) if package else "",
        binary=tuple(built),
    )


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(st.tuples(edits("a"), edits("b")), releases())
def test_what_the_fit_follows_and_what_lies_beside_is_what_check_sees(
    variants: Any, trees: list[ReleaseInMemory]
) -> None:
    one = mod(*variants, name="one", outside=("other_dist/x.py",))
    with tempfile.TemporaryDirectory() as cache:
        shelf = Shelf((one,), trees, cache, store=True)
        for tree in trees:
            check(shelf, tree, {one: (one,)})
