"""Any registry of text patchers: its mods together make the whole, and each with what it requires what its entries do."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any
from unittest import mock

from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st
from memory_tree import MemoryTree
from sampling import examples

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import FileChange
from vllm_mods.library import mod_folder
from vllm_mods.making import each_entry, recording
from vllm_mods.making.compose import Wanted
from vllm_mods.making.folder import LauncherFolder
from vllm_mods.making.recording import Limits, Recording
from vllm_mods.planning import planner

if TYPE_CHECKING:
    from vllm_mods.base.model import Mod
    from vllm_mods.making.scratch_copy import ScratchCopy

FILES = {
    "vllm/a.py": "# A\n\nA = 1\nB = 1\nC = 1\n",
    "vllm/b.py": "# B\n\nD = 1\nE = 1\n",
}
Entry = tuple[str, str, str, str]
"""A file, old and new text, and ``must`` (or the program ends), ``may`` (it is left out), ``all`` (each there is)."""
words = st.sampled_from(
    ["A = 1", "B = 1", "C = 1", "A = 2", "B = 2", "D = 1", "E = 1", "E = 2", "= 1"]
)
more = st.sampled_from(["", "\nX = 1", "\nY = 7", "  # X", "\nB = 2"])
entries = st.tuples(
    st.sampled_from(sorted(FILES)),
    words,
    st.tuples(words, more).map("".join),
    st.sampled_from(["must", "may", "may", "all"]),
).filter(lambda one: one[1] != one[2] and (one[1] != "= 1") == (one[2][0] != "="))
registries = st.lists(entries, min_size=3, max_size=7, unique_by=lambda one: one[:3])


def does(registry: list[Entry], kept: list[int]) -> dict[str, str]:
    """Do what such a program does. Raises ``Refused`` as a recording does."""
    files = dict(FILES)
    for i in kept:
        path, old, new, how = registry[i]
        count = files[path].count(old)
        if count != 1 and how == "must":
            raise Refused(f"{i}: {count} anchors")
        if count == 1 or (count and how == "all"):
            files[path] = files[path].replace(old, new)
    return {path: text for path, text in files.items() if text != FILES[path]}


def recorder(registry: list[Entry]) -> Any:
    lines = [
        {"point": "edit.py:1:0:list", "index": i, "names": [], "texts": one[:3]}
        for i, one in enumerate(registry)
    ]
    log = "".join(json.dumps(one) + "\n" for one in lines).encode()

    def record_on(_: ScratchCopy, argv: Any, name: str, files: Any, limits: Limits) -> Recording:
        del argv, name, files
        chosen: Any = limits.chosen
        done = does(registry, chosen["keep"] if chosen else [*range(len(registry))])
        changes = tuple(
            FileChange(path=path, before=FILES[path].encode(), after=text.encode())
            for path, text in done.items()
        )
        return Recording(changes, {}, (), (), "", frozenset(), everywhere=False, points=log)

    return record_on


def loaded(one: each_entry.EntryMod) -> Mod:
    return mod_folder.load_files(one.name, one.files)


def planned(mods: list[Mod], tree: MemoryTree) -> dict[str, str]:
    plan = planner.plan(mods, tree)
    assert all(one.verdict.writes for one in plan.mods), plan.mods
    return {one.path: (one.after or b"").decode() for one in plan.changes}


@settings(max_examples=examples(120), deadline=None)
@given(registries)
@example([("vllm/a.py", "A = 1", "A = 2", "must"), ("vllm/a.py", "A = 2", "A = 3", "must")])
@example([("vllm/a.py", "A = 1", "A = 2", "may"), ("vllm/a.py", "= 1", "= 5", "all")])
@example([("vllm/a.py", "A = 1", "A = 1\nB = 2", "may"), ("vllm/a.py", "B = 2", "B = 1", "may")])
@example([("vllm/a.py", "A = 2", "A = 3", "may"), ("vllm/a.py", "A = 1", "A = 2", "may"),
          ("vllm/b.py", "D = 1", "D = 2", "may")])  # fmt: skip
def test_the_mods_of_a_registry_do_what_its_entries_do(registry: list[Entry]) -> None:
    tree = MemoryTree({path: text.encode() for path, text in FILES.items()}, "0.21.0")
    whole: dict[str, str] = {}
    with contextlib.suppress(Refused):
        whole = does(registry, [*range(len(registry))])
    assume(whole)
    source = LauncherFolder("mine", "mine", {"run.sh": b""})
    made, why = None, ""
    with mock.patch.object(recording, "record_on", recorder(registry)):
        try:
            made = each_entry.make(source, Wanted("mine"), tree, Limits(), lambda _: None)
        except Refused as error:
            why = error.message
    if made is None:
        event("refused: " + ("one does all" if "does all" in why else "other"))
        assert "entries" in why or "entry" in why
        return
    event(f"{len(made.mods)} mods, {sum(bool(one.requires) for one in made.mods)} that require")
    mods = {one.name: loaded(one) for one in made.mods}
    numbers = {name: int(name.rpartition("-")[2]) - 1 for name in mods}
    assert planned([*mods.values()], tree) == whole
    for name in mods:
        rests = {name}
        while more_ := {other for one in rests for other in mods[one].requires} - rests:
            rests |= more_
        ordered = sorted(rests, key=numbers.__getitem__)
        alone = does(registry, [numbers[one] for one in ordered])
        assert planned([mods[one] for one in ordered], tree) == alone
