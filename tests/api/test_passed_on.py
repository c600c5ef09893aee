"""What a caller says of access reaches whoever opens: from where, beside what, and whom it tells."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from mod_making import mod, variant

import vllm_mods as vm
from vllm_mods.api import access, on_base
from vllm_mods.base.errors import Refused
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock
from vllm_mods.library.catalog import Library
from vllm_mods.matrices import run, work
from vllm_mods.trees import release

if TYPE_CHECKING:
    from vllm_mods.base.tree import Tree

TREE = MemoryTree({"vllm/__init__.py": b""}, version="0.20.0")
OTHERS = {"transformers": "5.0"}


def note(text: str) -> None:
    """Hear nothing."""


def progress(what: str, done: int, total: int | None) -> None:
    """See nothing."""


@pytest.fixture
def there() -> vm.Access:
    return vm.Access(offline=True, commits="clone", note=note, progress=progress)


Called = list[tuple[tuple[Any, ...], dict[str, Any]]]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, there: vm.Access) -> Called:
    """What was asked of those who open trees, images and releases."""
    calls: Called = []

    def opens(*given: Any, **named: Any) -> Tree:
        calls.append((given, named))
        return TREE

    monkeypatch.setattr(access, "open_tree", opens)
    there.__dict__["releases"] = SimpleNamespace(open=opens)
    return calls


def test_a_release_is_opened_beside_what_is_named(there: vm.Access, called: Called) -> None:
    assert there.open("pypi:0.20.0", verify=True, others=OTHERS) is TREE
    there.open("pypi:0.20.0")
    assert called == [
        (("0.20.0",), {"verify": True, "named": OTHERS}),
        (("0.20.0",), {"verify": False, "named": None}),
    ]


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ("site", {}),
        ("pypi:", {}),
        ("wheel:x.whl", {"verify": True}),
        ("git:clone@v1", {"others": OTHERS}),
        ("pypi:0.20.0", {"workspace": "/w"}),
        ("pypi:0.20.0", {"platform": "linux/arm64"}),
        ("image:registry:x/y:1", {"platform": "linux/arm64", "in_image": "/opt/x"}),
    ],
)
def test_any_other_tree_is_opened_as_the_caller_has_it(
    there: vm.Access, called: Called, spec: str, named: dict[str, Any]
) -> None:
    assert there.open(spec, **named) is TREE
    wanted = {"workspace": None, "verify": False, "others": None, **named}
    wanted = {"platform": None, "in_image": None, **wanted}
    wanted |= {"offline": True, "progress": progress, "note": note, "commits": "clone"}
    assert called == [((spec,), wanted)]


def test_releases_are_those_of_the_access(
    monkeypatch: pytest.MonkeyPatch, there: vm.Access
) -> None:
    monkeypatch.setattr(release, "Releases", lambda **named: named)
    assert there.releases == {  # type: ignore[comparison-overlap]
        "offline": True,
        "progress": progress,
        "note": note,
        "commits": "clone",
    }


def test_the_base_of_a_pairing_is_opened_for_each_place_and_told_of(
    monkeypatch: pytest.MonkeyPatch, there: vm.Access
) -> None:
    asked: Called = []

    def opens(*given: Any, **named: Any) -> None:
        asked.append((given, named))
        raise Refused("enough")

    monkeypatch.setattr(on_base, "open_base", opens)
    library = Library()
    wanted = library.pairing(library.pairing_names()[0])
    for place in (None, "linux/arm64"):
        with (
            pytest.raises(Refused, match="enough"),
            on_base.on_bases(library, wanted, "x/y:1", [place], epoch=0, access=there),
        ):
            pass
    assert asked == [
        (("x/y:1",), {"progress": progress, "note": note, "platform": place})
        for place in (None, "linux/arm64")
    ]


class Enough(Exception):
    """What is to be known is known."""


def test_a_matrix_is_made_as_the_caller_wants_it(
    monkeypatch: pytest.MonkeyPatch, there: vm.Access
) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", "/cache")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    asked: Called = []

    def made(*given: Any, **named: Any) -> None:
        asked.append((given, named))
        raise Enough

    monkeypatch.setattr(run, "compute", made)
    lock = mod_lock.dump(Lock("one", "1.0.0", "d", ()))
    plain = mod(variant(package="transformers", package_version=">=4"))
    one = plain._replace(lock=lock)

    def heard(*_: object) -> None:
        """Hear nothing."""

    terms = {"jobs": 2, "kept": False, "others": OTHERS, "progress": heard}
    for more in ({}, {"strict": True}, {"jobs": None}):
        with pytest.raises(Enough):
            vm.matrix([one], ["site"], access=there, **{**terms, **more})  # type: ignore[arg-type]
    for (workshop, specs, _, progress), _ in asked:
        assert (specs, progress) == (("site",), heard)
        setting = workshop.setting
        strict = setting.strict
        assert setting == work.Setting(
            mods=(plain if strict else one,),
            cache_dir=setting.cache_dir,
            offline=True,
            store=False,
            strict=strict,
            commits="clone",
            others=OTHERS,
            named=frozenset({"site"}),
        )
        assert setting.cache_dir.startswith("/cache")
    assert [(given[0].setting.strict, given[2]) for given, _ in asked] == [
        (False, 2),
        (True, 2),
        (False, 3),
    ]
