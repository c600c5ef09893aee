"""The variant that is ported, the tree that it was written for, and what the new one is called and has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, lock_of, lock_with, mod, variant

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import LockedTree, WrittenFor
from vllm_mods.formats.receipt import FileHash
from vllm_mods.planning.planner import plan
from vllm_mods.porting import variant as variants

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

OLD, NEW = "A = 1\nB = 2\n", "A = 1\nB = 3\n"
PATCH = diff_of("vllm/a.py", OLD, NEW)
FIRST = variant(PATCH, name="first", vllm=">=0.17,<0.19")
SECOND = variant(PATCH, name="second", vllm=">=0.21,<0.23")
BOTH = mod(FIRST, SECOND)


def seen(name: str, *releases: str, in_range: bool = True, before: str = "1" * 64) -> LockedTree:
    """Return what a lock says of releases that a variant was seen on."""
    files = (FileHash("vllm/a.py", before, "2" * 64),)
    return LockedTree(
        vllm=releases,
        in_range=in_range,
        variant=name,
        verdict="applies",
        files=files,
        hunks=(),
        beside=(),
        witness=(),
    )


def locked(of: Mod, *trees: LockedTree) -> Mod:
    lock = mod_lock.parse(lock_with(of, trees[0]), "mod.lock")
    return of._replace(lock=mod_lock.dump(lock._replace(trees=trees)))


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.18.0", "first"),
        ("0.21.1", "second"),
        ("0.15.0", "first"),
        ("0.19.0", "second"),  # as far from both, and the newer one
        ("0.20.9", "second"),
        ("0.25.0", "second"),
        (None, "second"),
    ],
)
def test_the_variant_whose_range_names_a_version_or_begins_nearest_is_ported(
    version: str | None, name: str
) -> None:
    assert variants.nearest(BOTH, version, None).id == name


def test_of_several_variants_that_name_a_version_the_last_is_ported() -> None:
    of = mod(FIRST, SECOND._replace(vllm=">=0.17"))
    assert variants.nearest(of, "0.18.0", None).id == "second"


def test_a_variant_is_near_to_the_releases_that_a_lock_has_seen_it_on() -> None:
    lock = mod_lock.parse(locked(BOTH, seen("first", "0.19.5", "0.24.0")).lock or b"", "mod.lock")
    assert variants.nearest(BOTH, "0.25.0", lock).id == "first"
    assert variants.recorded(lock, FIRST) == ("0.19.5", "0.24.0")
    assert variants.recorded(lock, SECOND) == ()
    assert variants.recorded(None, FIRST) == ()
    beyond = mod_lock.Lock(*lock)._replace(trees=(seen("first", "0.24.0", in_range=False),))
    assert variants.recorded(beyond, FIRST) == ()
    assert [version for version, _ in variants.states(beyond, FIRST)] == ["0.24.0"]


class Shelf:
    """Releases, as far as porting asks for them."""

    def __init__(self, *versions: str, yanked: tuple[str, ...] = ()) -> None:
        self.versions, self.yanked = versions, yanked

    def files(self) -> list[Any]:
        return [
            SimpleNamespace(version=one, yanked="" if one in self.yanked else None)
            for one in self.versions
        ]

    def open(self, name: str) -> MemoryTree:
        return MemoryTree({}, version=name, spec=f"pypi:{name}")


@pytest.mark.parametrize(
    ("version", "opened"), [("0.18.9", "0.18.0"), ("0.17.5", "0.17.0"), (None, "0.18.0")]
)
def test_the_base_is_the_recorded_release_that_is_nearest(version: str | None, opened: str) -> None:
    of = locked(BOTH, seen("first", "0.17.0"), seen("first", "0.18.0"), seen("second", "0.21.0"))
    shelf: Any = Shelf()
    assert variants.base_tree(of, FIRST, version, shelf).version == opened


@pytest.mark.parametrize("made_on", ["0.19.1", "0.19.1rc1.dev46", "a folder"])
def test_a_variant_that_was_made_on_a_folder_is_of_the_release_of_its_version(made_on: str) -> None:
    of = locked(BOTH, seen("second", "0.21.0"))
    written = (WrittenFor("first", made_on, "0" * 64, (), ()),)
    lock = mod_lock.parse(of.lock or b"", "mod.lock")._replace(written=written)
    of = of._replace(lock=mod_lock.dump(lock))
    shelf: Any = Shelf()
    if made_on == "0.19.1":
        assert variants.base_tree(of, FIRST, "0.21.0", shelf).version == made_on
    else:
        with pytest.raises(UsageError, match="names no release for it"):
            variants.base_tree(of, FIRST, "0.21.0", shelf)


def test_a_base_that_nothing_records_has_to_be_named() -> None:
    shelf: Any = Shelf()
    other = locked(BOTH, seen("second", "0.21.0"))
    for of, why in (
        (BOTH, "is missing"),
        (other, "names no release for it"),
        (other._replace(digest="0" * 64), "is out of date, because the mod has changed"),
    ):
        with pytest.raises(UsageError, match=rf"is unknown: mod\.lock {why}") as caught:
            variants.base_tree(of, FIRST, "0.18.0", shelf)
        assert caught.value.hint == (
            "vllm-mods port mod --from TREE --library /lib  # TREE is a vLLM where the variant applies; `vllm-mods matrix mod --update-lock --library /lib` records one"
        )


EVERY = ("0.18.0", "0.20.0", "0.19.1", "0.19.0", "0.20.0rc1", "0.21.0", "0.22.0")


@pytest.mark.parametrize(
    ("base", "target", "versions"),
    [
        ("0.18.0", "0.21.0", ["0.19.0", "0.20.0"]),
        ("0.21.0", "0.18.0", ["0.20.0", "0.19.0"]),
        ("0.18.0+cu129", "0.20.0", ["0.19.0"]),
        ("0.18.0", "0.19.0", []),
        ("0.19.0", "0.19.0", []),
    ],
)
def test_the_final_releases_between_two_come_from_the_base_on(
    base: str, target: str, versions: list[str]
) -> None:
    shelf: Any = Shelf(*EVERY, yanked=("0.19.1",))
    ends = (shelf.open(one) for one in (base, target))
    assert [one.version for one in variants.between(shelf, *ends)] == versions


def test_nothing_lies_between_trees_that_are_no_releases() -> None:
    shelf: Any = Shelf(*EVERY)
    release, folder = shelf.open("0.18.0"), MemoryTree({}, version="0.22.0")
    for ends in ((release, folder), (folder, release), (None, release), (None, folder)):
        assert [*variants.between(shelf, *ends)] == []


CHANGE = FileChange("vllm/a.py", OLD.encode(), NEW.encode())


def test_a_base_has_to_be_what_the_lock_has_for_its_release() -> None:
    tree = MemoryTree({"vllm/a.py": OLD.encode()})
    own = BOTH._replace(lock=lock_of(plan([mod(FIRST, digest=BOTH.digest)], tree).mods[0]))
    variants.check_base(own, FIRST, [CHANGE], tree)
    other = locked(BOTH, seen("first", "0.19.1"))
    with pytest.raises(
        Refused, match=r"memory states version 0\.19\.1, but mod\.lock of mod has other hashes"
    ):
        variants.check_base(other, FIRST, [CHANGE], tree)
    # of another release, or another variant, the lock says nothing
    variants.check_base(other, FIRST, [CHANGE], MemoryTree({}, version="0.20.0"))
    variants.check_base(other, SECOND, [CHANGE], tree)
    variants.check_base(BOTH, FIRST, [CHANGE], tree)


def test_one_of_several_states_of_a_release_is_enough() -> None:
    tree = MemoryTree({"vllm/a.py": OLD.encode()})
    (good,) = mod_lock.parse(
        lock_of(plan([mod(FIRST, digest=BOTH.digest)], tree).mods[0]), "mod.lock"
    ).trees
    variants.check_base(locked(BOTH, seen("first", "0.19.1"), good), FIRST, [CHANGE], tree)


def test_what_a_variant_changes_is_what_its_patches_do() -> None:
    tree = MemoryTree({"vllm/a.py": OLD.encode()})
    assert variants.changes_of(BOTH, FIRST, tree) == (CHANGE,)
    with pytest.raises(
        Refused, match=r"variant `first` of mod cannot be ported from vLLM 0\.19\.1"
    ):
        variants.changes_of(BOTH, FIRST, MemoryTree({"vllm/a.py": b"C = 1\n"}))


@pytest.mark.parametrize(
    ("version", "taken", "name"),
    [
        ("0.21.0", [], "0.21"),
        ("0.21.0+cu129", ["0.21"], "0.21.0+cu129"),
        ("0.21.0", ["0.21", "0.21.0"], "0.21.0-2"),
        ("0.21.0", ["0.21", "0.21.0", "0.21.0-2"], "0.21.0-3"),
        ("1", [], "1"),
        (None, [], "ported"),
        (None, ["ported"], "ported-2"),
    ],
)
def test_a_variant_is_called_by_its_release_as_long_as_nothing_is(
    tmp_path: Path, version: str | None, taken: list[str], name: str
) -> None:
    of = mod(*(variant(PATCH, name=one) for one in taken), directory=str(tmp_path))
    assert variants.default_name(of, version) == name
    (tmp_path / name).mkdir()
    assert variants.default_name(of, version) != name


def test_names_have_an_end(tmp_path: Path) -> None:
    names = ["0.21", "0.21.0", *(f"0.21.0-{n}" for n in range(2, 100))]
    of = mod(*(variant(PATCH, name=one) for one in names), directory=str(tmp_path))
    with pytest.raises(UsageError, match=r"mod has too many variants for 0\.21\.0") as caught:
        variants.default_name(of, "0.21.0")
    assert caught.value.hint == "--as ID"
    few = of._replace(variants=of.variants[:-1])
    assert variants.default_name(few, "0.21.0") == "0.21.0-99"


def test_each_file_is_cut_into_the_patch_that_had_it() -> None:
    old = variant(diff_of("vllm/a.py", OLD, NEW), diff_of("vllm/b.py", OLD, NEW), name="first")
    cuts = [
        FileChange(path, OLD.encode(), NEW.encode())
        for path in ("vllm/moved.py", "vllm/new.py", "vllm/a.py")
    ]
    cuts.append(FileChange("vllm/same.py", OLD.encode(), OLD.encode()))
    cut = variants.patches(old, cuts, "0.21", 3, {"vllm/moved.py": "vllm/b.py"})
    assert {source: data.count(b"\n+++ ") for source, data in cut.items()} == {
        "0.21/0.patch": 2,
        "0.21/1.patch": 1,
    }
    assert cut["0.21/1.patch"].startswith(b"diff --git a/vllm/moved.py b/vllm/moved.py\n")
    assert cut["0.21/0.patch"].index(b"vllm/a.py") < cut["0.21/0.patch"].index(b"vllm/new.py")
