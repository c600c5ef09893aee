"""The tree that a variant was written for: the first release of its range that takes all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from small_plans import PATH

from vllm_mods.base.errors import DiffError, Unreachable
from vllm_mods.formats import mod_lock
from vllm_mods.planning import lock_entries, written
from vllm_mods.planning.known_trees import WORKSPACE
from vllm_mods.planning.origins import Origins
from vllm_mods.planning.patching import parts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Mod

MADE = variant(diff_of(PATH, "a = 1\n", "a = 2\n"), vllm=">=0.18,<0.30")


class Shelf:
    """Releases by their version; ``opened`` are those that were asked for."""

    def __init__(self, texts: Mapping[str, str | None], yanked: tuple[str, ...] = ()) -> None:
        self.texts, self.yanked = texts, yanked
        self.opened: list[str] = []

    def versions(self) -> frozenset[str]:
        return frozenset(self.texts) - frozenset(self.yanked)

    def whole(self, name: str) -> MemoryTree:
        return self.open(name)

    def open(self, name: str) -> MemoryTree:
        self.opened.append(name)
        text = self.texts[name]
        if text is None:
            raise Unreachable(f"{name} cannot be had")
        return MemoryTree({PATH: text.encode()}, version=name)


def found(shelf: Shelf, made: Mod | None = None) -> str | None:
    made = made or mod(MADE)
    tree = Origins(shelf)(made, made.variants[0])
    return None if tree is None else tree.version


def test_the_first_release_of_the_range_that_takes_all_of_it_is_the_origin() -> None:
    shelf = Shelf(
        {"0.20.0": "a = 1\n", "0.19.0": "a = 1\n", "0.9.0": "a = 1\n", "0.18.0": "a = 0\n"}
    )
    assert found(shelf) == "0.19.0"
    assert shelf.opened == ["0.18.0", "0.19.0"]
    two = mod(variant(MADE.patches[0].data, diff_of("vllm/y.py", "b\n", "c\n")))
    assert found(shelf, two) is None


def test_releases_are_asked_in_the_order_of_their_versions() -> None:
    shelf = Shelf({"0.10.0": "a = 1\n", "0.9.0": "a = 1\n", "0.9.0rc1": "a = 1\n"})
    assert found(shelf, mod(MADE._replace(vllm=">=0.8,<0.30"))) == "0.9.0rc1"
    assert found(shelf, mod(MADE._replace(vllm=">=0.9,<0.30"))) == "0.9.0"


def test_yanked_releases_and_those_out_of_range_are_not_asked() -> None:
    shelf = Shelf({"0.19.0": "a = 1\n", "0.30.0": "a = 1\n"}, yanked=("0.19.0",))
    assert found(shelf) is None
    assert shelf.opened == []


def test_only_the_beginning_of_a_long_range_is_asked() -> None:
    shelf = Shelf({f"0.{minor}.0": "a = 0\n" for minor in range(18, 39)} | {"0.39.0": "a = 1\n"})
    assert found(shelf) is None
    assert shelf.opened == [f"0.{minor}.0" for minor in range(18, 30)]


def test_a_release_that_cannot_be_read_ends_the_search_and_is_noted() -> None:
    shelf = Shelf({"0.18.0": None, "0.19.0": "a = 1\n"})
    origins = Origins(shelf)
    assert not origins.missed
    assert origins(mod(MADE), MADE) is None
    assert origins.missed


def test_each_variant_is_looked_for_once_and_each_release_opened_once() -> None:
    shelf = Shelf({"0.19.0": "a = 1\n"})
    origins = Origins(shelf)
    other = MADE._replace(id="other", vllm=">=0.20")
    made = mod(MADE, other)
    assert [origins(made, MADE) is None for _ in range(3)] == [False] * 3
    assert shelf.opened == ["0.19.0"]
    assert origins(made, other) is None
    assert origins(made._replace(digest="f" * 64), MADE) is not None
    assert shelf.opened == ["0.19.0"]


def test_of_three_releases_one_is_opened_again_only_for_what_was_not_read_of_it() -> None:
    versions = ("0.18.0", "0.19.0", "0.20.0")
    shelf = Shelf({version: f"a = {version[2:4]}\n" for version in versions})
    diffs = [diff_of(PATH, f"a = {n}\n", "b\n") for n in (18, 19, 20)]
    made = mod(*(variant(d, vllm=f"=={v}", name=v) for d, v in zip(diffs, versions, strict=True)))
    origins = Origins(shelf)
    for one in (*made.variants, made.variants[2], made.variants[1], made.variants[0]):
        tree = origins(made, one)
        assert tree is not None
        assert tree.version == one.id
    assert shelf.opened == [*versions]
    first = origins(made, made.variants[0])
    assert first is not None
    assert (first.read(PATH), first.read("vllm/other.py")) == (b"a = 18\n", None)
    assert shelf.opened == [*versions, "0.18.0"]


def test_a_variant_without_patches_comes_from_nowhere() -> None:
    shelf = Shelf({"0.19.0": "a = 1\n"})
    assert found(shelf, mod(variant(vllm=">=0.18"))) is None
    assert shelf.opened == []


def test_a_bad_patch_is_an_error_here_too() -> None:
    with pytest.raises(DiffError):
        found(Shelf({"0.19.0": ""}), mod(variant(b"garbage")))


def test_what_the_lock_names_is_asked_first() -> None:
    shelf = Shelf({"0.18.0": "a = 1\n", "0.19.0": "a = 1\n", "0.20.0": "a = 1\n"})
    place = written.record(MADE, parts_of(mod(MADE), MADE, WORKSPACE), shelf.open("0.20.0"))
    assert place is not None
    shelf.opened.clear()
    lock = mod_lock.dump(lock_entries.of(mod(MADE), (), written=[place]))
    assert found(shelf, mod(MADE, lock=lock)) == "0.20.0"
    other = mod_lock.dump(lock_entries.of(mod(MADE), (), written=[place._replace(base="9")]))
    assert found(shelf, mod(MADE, lock=other)) == "0.18.0"
    assert shelf.opened == ["0.20.0", "0.18.0"]
    origins = Origins(shelf)
    assert origins(mod(MADE, lock=b"{"), MADE) is None
    assert origins.missed


IN = "def f():\n    a = 1\n    b = 1\n"
MOVED = f"import os\n\n\n{IN}"


def test_where_no_release_has_every_line_at_its_place_the_first_that_takes_it_will_do() -> None:
    patch = diff_of(PATH, IN, IN.replace("a = 1", "a = 2"), section="def f():")
    made = mod(variant(patch, vllm=">=0.18"))
    shelf = Shelf({"0.18.0": "c\n", "0.19.0": MOVED, "0.20.0": f"#\n{MOVED}", "0.21.0": None})
    origins = Origins(shelf)
    tree = origins(made, made.variants[0])
    assert tree is not None
    assert tree.version == "0.19.0"
    assert origins.missed
    assert origins.places(made) == ()


def test_a_variant_for_a_package_comes_from_nowhere() -> None:
    shelf = Shelf({"0.19.0": "a = 1\n"})
    made = mod(MADE._replace(package="ext", package_version=">=1"))
    assert found(shelf, made) is None
    assert Origins(shelf).places(made) == ()
    assert shelf.opened == []


def test_places_are_of_each_variant_in_its_origin_or_part_by_part_in_several_releases() -> None:
    patch, other = MADE.patches[0].data, diff_of("vllm/y.py", "b = 1\n", "b = 2\n")
    both = variant(patch, other, name="both", vllm=">=0.30,<0.40")
    none = variant(diff_of(PATH, "z\n", "zz\n"), name="none", vllm=">=0.18")
    made = mod(both, MADE, none, variant(name="bare", vllm=">=0"))
    shelf = Shelf({"0.18.0": "a = 0\n", "0.19.0": "a = 1\n", "0.30.0": "c\n", "0.31.0": None})
    places = Origins(shelf).places(made)
    assert [(place.variant, place.base) for place in places] == [
        ("both", "0.19.0"),
        ("one", "0.19.0"),
    ]
    assert [[hunk.patch for hunk in place.hunks] for place in places] == [
        ["both/0.patch"],
        ["one/0.patch"],
    ]
