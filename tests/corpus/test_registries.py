"""Registries of text patchers: a mod for each entry, with what it requires; together the whole, alone what the entry does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree

from corpus.registries import REGISTRIES
from corpus.releases import RELEASES
from corpus.running import digest, effect
from vllm_mods.base.errors import Refused
from vllm_mods.library import mod_folder
from vllm_mods.making import each_entry
from vllm_mods.making.compose import Wanted
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits
from vllm_mods.planning import planner

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod

FILES = RELEASES["0.21.0"]


pytestmark = pytest.mark.usefixtures("namespaces")


def taken(files: dict[str, str]) -> each_entry.EachMade:
    source = LauncherFolder("mine", "mine", {path: text.encode() for path, text in files.items()})
    tree = MemoryTree(dict(FILES), "0.21.0", "pypi:0.21.0", pristine=True)
    return each_entry.make(source, Wanted("mine"), tree, Limits(seconds=60), lambda _: None)


def loaded(one: each_entry.EntryMod) -> Mod:
    return mod_folder.load_files(one.name, one.files)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", REGISTRIES)
def test_each_entry_becomes_a_mod(name: str) -> None:
    registry = REGISTRIES[name]
    if registry.mods is None:
        with pytest.raises(Refused, match=registry.why):
            taken(registry.files)
        return
    made = taken(registry.files)
    assert {one.name: one.requires for one in made.mods} == registry.mods
    assert len(made.idle) == registry.idle
    planned = planner.plan([loaded(one) for one in made.mods], MemoryTree(dict(FILES), "0.21.0"))
    assert {one.path: digest(one.after) for one in planned.changes} == effect(
        registry.files, "0.21.0", FILES
    )
