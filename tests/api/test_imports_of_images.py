"""``import`` with several images: a release of each, and a script to run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from memory_tree import MemoryTree

from vllm_mods.api import import_mod
from vllm_mods.api.import_mod import ImportTerms
from vllm_mods.base.errors import UsageError

IMAGES = {"image:new": "0.22.0", "image:old": "0.9.2", "image:other": "0.22.0", "image:own": None}


def imported(*images: str) -> import_mod._ModImport:
    def opened(spec: str) -> MemoryTree:
        return MemoryTree({"vllm/__init__.py": b""}, IMAGES[spec], spec)

    access: Any = SimpleNamespace(open=opened)
    return import_mod._ModImport("mine", ImportTerms(images=images), access, print, None)


def test_images_are_taken_by_their_releases_oldest_first() -> None:
    found = imported("new", "old").releases()
    assert {name: tree.spec for name, tree in found.items()} == {
        "0.9.2": "image:old",
        "0.22.0": "image:new",
    }
    assert [*found] == ["0.9.2", "0.22.0"]


@pytest.mark.parametrize("images", [("new", "other"), ("new", "own")])
def test_two_of_one_release_are_refused(images: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="two of the images have the same vLLM, or one image"):
        imported(*images).releases()


def test_what_has_no_script_goes_in_one_image() -> None:
    with pytest.raises(UsageError, match=r"mine has no run\.sh: use only one --image"):
        imported("new", "old").open_tree()
    tree = imported("old").open_tree()
    assert tree is not None
    assert tree.spec == "image:old"
