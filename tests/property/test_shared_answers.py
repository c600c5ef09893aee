"""An answer that one release takes over from another is the one that it would have been given alone."""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from mod_making import diff_of, lock_with, mod, variant
from release_shelf import ReleaseInMemory, Shelf
from sampling import examples

from vllm_mods.base.model import Expectation, Mod
from vllm_mods.formats.mod_lock import LockedTree
from vllm_mods.grid.work import Subject, Task

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
        expects=draw(st.sampled_from([(), (Expectation(BESIDE, "load", "(a)"),)])),
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


@settings(max_examples=examples(150), deadline=None)
@given(libraries(), st.lists(files, min_size=2, max_size=6), st.booleans())
def test_a_shared_answer_is_the_fresh_one(
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
        )
        for version, one in zip(VERSIONS, contents, strict=False)
    ]
    subjects = tuple(Subject((one.name,)) for one in mods)
    with tempfile.TemporaryDirectory() as cache:
        sharing = Shelf(mods, trees, cache, store=True)
        for tree in trees:
            task = Task(tree.spec, subjects)
            fresh = Shelf(mods, trees, cache, store=False).run(task)
            assert sharing.run(task) == fresh
