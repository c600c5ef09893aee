"""A script recorded over releases: whatever they look like, each variant does on each of its releases what the script does."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings, strategies as st
from memory_tree import MemoryTree
from sampling import examples

from vllm_mods.base import versions
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.library import mod_folder
from vllm_mods.making import over_releases
from vllm_mods.making.compose import ModEffect, Wanted
from vllm_mods.planning import lock_entries, planner

HEADS = ["", "import os\n", "import os\nimport re\n"]
BODIES = [
    "def f():\n    a = 1\n    return a\n",
    "def f():\n    a = 1\n    b = 2\n    return a\n",
    "def g():\n    a = 1\n    return a\n\n\ndef f():\n    a = 5\n    return a\n",
    "def f():\n    return 7\n",
]
texts = st.tuples(st.sampled_from(HEADS), st.sampled_from(BODIES)).map("".join)
# a release may have the file in its old place, in its new one, in both or in none
releases = st.lists(
    st.fixed_dictionaries({}, optional={"vllm/old.py": texts, "vllm/new.py": texts}),
    min_size=1,
    max_size=7,
)


def effect_of(tree: Tree, *, asks_version: bool) -> ModEffect:
    """Do what a patcher does: take the first file that is there, replace its one anchor, fail without."""
    for path in ("vllm/new.py", "vllm/old.py"):
        before = tree.read(path)
        if before is not None:
            break
    else:
        raise Refused("none of the files is there")
    if before.count(b"a = 1") != 1:
        raise Refused("the anchor is gone")
    value = b"a = 3" if asks_version and (tree.version or "") < "0.22" else b"a = 2"
    change = FileChange(path=path, before=before, after=before.replace(b"a = 1", value))
    return ModEffect((change,))


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(releases, st.booleans())
@example([{"vllm/old.py": BODIES[0]}, {"vllm/old.py": BODIES[0], "vllm/new.py": BODIES[1]}], False)
@example([{"vllm/old.py": BODIES[0]}] * 3 + [{"vllm/old.py": BODIES[3]}] * 2, False)
@example([{"vllm/old.py": BODIES[0]}] * 5, True)
def test_each_variant_does_what_the_script_does(
    given_files: list[dict[str, str]],
    asks_version: bool,  # noqa: FBT001
) -> None:
    trees = {
        f"0.{20 + i}.0": MemoryTree(
            {"vllm/__init__.py": b"", **{path: text.encode() for path, text in files.items()}},
            version=f"0.{20 + i}.0",
        )
        for i, files in enumerate(given_files)
    }

    def run(tree: Tree) -> ModEffect:
        return effect_of(tree, asks_version=asks_version)

    does: dict[str, bytes | None] = {}
    for version, tree in trees.items():
        try:
            does[version] = effect_of(tree, asks_version=asks_version).changes[0].after
        except Refused:
            does[version] = None
    try:
        made = over_releases.make(Wanted("mine"), trees, run, lambda _: None)
    except Refused:
        assert not any(does.values())
        return
    mod = made.mod
    for (version, tree), row in zip(trees.items(), made.releases, strict=True):
        planned = planner.plan([mod], tree).mods[0]
        meant = [v.id for v in mod.variants if versions.in_range(version, v.vllm)]
        assert meant == ([row.variant] if row.variant else []), (row, does)
        if row.variant:
            assert planned.verdict.writes
            assert [change.after for change in planned.changes] == [does[version]]
        else:
            assert does[version] is None, (row, given_files)


def release(version: str, text: str) -> MemoryTree:
    files = {"vllm/__init__.py": b"", "vllm/old.py": text.encode()}
    return MemoryTree(files, version=version)


@pytest.mark.slow
def test_each_release_has_its_variant_or_says_why_not() -> None:
    texts = {
        "0.20.0": BODIES[0],
        "0.20.1": "x = 1\n" * 9 + BODIES[0].replace("return a", "return a + 1"),
        "0.21.0": BODIES[3],
        "0.22.0": "y = 1\n" * 9 + BODIES[0].replace("return a", "return a - 1"),
    }
    lines: list[str] = []

    def run(tree: Tree) -> ModEffect:
        new = FileChange("vllm/n.py", None, f"N = '{tree.version}'\n".encode())
        effect = effect_of(tree, asks_version=False)
        notes = ("it printed /tmp/x", f"on {tree.version}")
        return effect._replace(changes=(*effect.changes, new), env=(("VLLM_A", "1"),), notes=notes)

    trees = {version: release(version, text) for version, text in texts.items()}
    outcome = over_releases.make(Wanted("mine", vllm=None), trees, run, lines.append)
    assert outcome.releases == (
        ("0.20.0", "0.20.0", "applies", None),
        ("0.20.1", "0.20", "applies", None),
        ("0.21.0", None, "unsupported", "the anchor is gone"),
        ("0.22.0", "0.22", "applies", None),
    )
    assert sorted(name for name in outcome.files if "/n.py" in name) == [
        f"{name}/overlay/vllm/n.py" for name in ("0.20.0", "0.20", "0.22")
    ]
    assert outcome.files["0.22/overlay/vllm/n.py"] == b"N = '0.22.0'\n"
    mod = mod_folder.load_files("mine", outcome.files)
    assert [(one.id, one.vllm) for one in mod.variants] == [
        ("0.20.0", "==0.20.0"),
        ("0.20", "==0.20.1"),
        ("0.22", "==0.22.0"),
    ]
    assert (mod.summary, mod.env) == ("Changes to vLLM ==0.22.0", (("VLLM_A", "1"),))
    assert outcome.notes == ("it printed /tmp/x", "on 0.20.0", "on 0.20.1", "on 0.22.0")
    assert [line.partition(":")[0] for line in outcome.unknown] == [
        "summary",
        "license",
        "evidence",
    ]
    assert lines[:5] == [
        *(f"running the script on {version}, {n} of 4" for n, version in enumerate(texts, 1)),
        "a variant for 0.22.0",
    ]
    assert lines[-1] == "checking the mod on 0.22.0, 4 of 4"


def test_releases_on_which_a_script_does_the_same_share_a_variant() -> None:
    trees = {f"0.2{n}.0": release(f"0.2{n}.0", BODIES[0]) for n in range(3)}
    outcome = over_releases.make(
        Wanted("mine", vllm=">=0.20"),
        trees,
        lambda tree: effect_of(tree, asks_version=False),
        lambda _: None,
    )
    assert [row.variant for row in outcome.releases] == ["0.22"] * 3
    (own,) = mod_folder.load_files("mine", outcome.files).variants
    assert (own.id, own.vllm) == ("0.22", ">=0.20.0,<=0.22.0")
    assert b"# Made on vLLM 0.22.0.\n" in outcome.files["mod.toml"]
    assert sorted(outcome.files) == ["0.22/mine.patch", "mod.lock", "mod.toml"]


def test_the_lock_of_a_mod_made_over_releases_knows_each_of_them() -> None:
    texts = {"0.20.0": BODIES[0], "0.21.0": BODIES[3], "0.22.0": BODIES[1], "0.23.0": BODIES[0]}
    trees = {
        version: MemoryTree({"vllm/old.py": text.encode()}, version=version, pristine=True)
        for version, text in texts.items()
    }
    outcome = over_releases.make(
        Wanted("mine"), trees, lambda tree: effect_of(tree, asks_version=False), lambda _: None
    )
    mod = mod_folder.load_files("mine", outcome.files)
    locked = lock_entries.current(mod)
    assert locked is not None
    assert sorted(one for state in locked.trees for one in state.vllm) == [
        "0.20.0",
        "0.22.0",
        "0.23.0",
    ]
    assert {place.variant for place in locked.written} == {one.id for one in mod.variants}
    for version, tree in trees.items():
        planned = planner.plan_alone(mod, tree)
        assert planned.vouched is (version != "0.21.0")


def test_what_else_a_script_does_makes_a_variant_of_its_own() -> None:
    trees = {f"0.2{n}.0": release(f"0.2{n}.0", BODIES[0]) for n in range(3)}

    def run(tree: Tree) -> ModEffect:
        effect = effect_of(tree, asks_version=False)
        if tree.version == "0.20.0":
            return effect._replace(python=("einops",), failed=("x: no anchor",))
        return (
            effect._replace(templates={"c.j2": b"{{ x }}"}) if tree.version == "0.21.0" else effect
        )

    outcome = over_releases.make(Wanted("mine"), trees, run, lambda _: None)
    assert [row.variant for row in outcome.releases] == ["0.20", "0.21", "0.22"]
    assert outcome.failed == ("0.20.0: x: no anchor",)
    mod = mod_folder.load_files("mine", outcome.files)
    assert [(one.python, len(one.templates)) for one in mod.variants] == [
        (("einops",), 0),
        ((), 1),
        ((), 0),
    ]


def test_what_is_refused_everywhere_is_said_with_each_reason() -> None:
    trees = {
        "0.20.0": release("0.20.0", BODIES[3]),
        "0.21.0": MemoryTree({"vllm/__init__.py": b""}, version="0.21.0"),
    }
    with pytest.raises(Refused) as caught:
        over_releases.make(
            Wanted("mine"), trees, lambda tree: effect_of(tree, asks_version=False), lambda _: None
        )
    assert caught.value.message == (
        "the script makes no mod on any of 2 releases:\n  0.21.0: none of the files is there\n"
        "  0.20.0: the anchor is gone"
    )
    assert caught.value.hint == "name other releases with --vllm SPEC, or with an --image for each"


@pytest.mark.parametrize(
    ("covered", "spec"),
    [
        (["0.21.0"], "==0.21.0"),
        (["0.20.0", "0.21.0", "0.22.0"], ">=0.20.0,<=0.22.0"),
        (["0.20.0", "0.22.0"], ">=0.20.0,<=0.22.0,!=0.21.0"),
    ],
)
def test_a_range_names_its_releases_and_no_other(covered: list[str], spec: str) -> None:
    every = ["0.19.0", "0.20.0", "0.21.0", "0.22.0", "0.23.0"]
    assert over_releases.span(covered, every) == spec
    assert [one for one in every if versions.in_range(one, spec)] == covered
