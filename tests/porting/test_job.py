"""A variant carried over release by release: what a release between has is asked of the target again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from mod_making import diff_of, write_mod

from vllm_mods.library.mod_folder import load_mod
from vllm_mods.porting.job import Job, PortOutcome, run

if TYPE_CHECKING:
    from pathlib import Path

PATH = "vllm/x.py"
BASE = "def load(path):\n    return open(path)\n"
MOD = BASE.replace("open(path)", "open(path).read()")
AGAIN = BASE.replace("open(path)", "open(path, 'rb')")


def ported(folder: Path, base: str, changed: str, *releases: str) -> PortOutcome:
    """Port a change over releases, the last of which is the target."""
    fast = load_mod(str(write_mod(folder, "fast", diff_of(PATH, base, changed))))
    first, *between, target = (
        MemoryTree({PATH: text.encode()}, version=f"0.2{n}.0")
        for n, text in enumerate((base, *releases))
    )
    roots = [str(folder)]
    job = Job(fast, fast.variants[0], first, "0.20.0", target, "new", ">=0.21", roots)
    return run(job, lambda: between)


def test_what_only_a_release_between_had_is_not_in_the_target(tmp_path: Path) -> None:
    outcome = ported(tmp_path, BASE, MOD, MOD, AGAIN)
    assert not outcome.carried
    assert outcome.left


def test_what_came_into_a_release_between_and_changed_since_is_left_to_a_person(
    tmp_path: Path,
) -> None:
    outcome = ported(tmp_path, BASE, MOD, MOD, MOD.replace("open(path)", "open(path, 'rb')"))
    assert outcome.left
    assert outcome.steps == ("0.21.0",)


def test_no_part_of_a_change_is_lost_on_the_way(tmp_path: Path) -> None:
    space = "\n\n\n"
    base = f"LIMIT = 1\n{space}{BASE}{space}DEPTH = 1\n"
    changed = base.replace("= 1", "= 2")
    took = base.replace("LIMIT = 1", "LIMIT = 2")
    back = base.replace("LIMIT = 1", "LIMIT = 1 + 7")
    assert not ported(tmp_path, base, changed, took, back).clean
