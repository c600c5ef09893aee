"""A cold plan: every bundled mod on real releases without its lock, beside the same with LibCST's scopes.

    python benchmarks/cold_plan.py [--releases 0.17.0 0.21.0 0.27.0 0.33.0] [--rounds N] [--trees DIR]

CPU seconds of one process. The trees' files are read before, so that neither network nor disk
counts. ``--trees`` is a folder with sources as they come out of sdists, each in a folder named by
its version; without it they come from the package index. Then ``check`` of a mod without a lock on
the last release, in times of a bare ``python -c pass`` of the same rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from apply import TOOL, lay_out, unknown_mod

from vllm_mods.base.tree import Tree, TreeView
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats import syntax_tree
from vllm_mods.library.catalog import Library
from vllm_mods.placing import scopes
from vllm_mods.planning import planner
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from vllm_mods.base.model import Mod

RELEASES = ("0.17.0", "0.21.0", "0.27.0", "0.33.0")

# As they are before ``as_before`` puts others in their places.
KEPT = (scopes.read_scopes, scopes.read_strictly, syntax_tree.module)


class Kept(TreeView):
    """A tree whose answers are kept: whatever was asked once costs nothing."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.files: dict[str, bytes | None] = {}
        self.listings: dict[str, list[str]] = {}

    def read(self, path: str) -> bytes | None:
        if path not in self.files:
            self.files[path] = self.below.read(path)
        return self.files[path]

    def paths(self, under: str = "vllm") -> Iterable[str]:
        if under not in self.listings:
            self.listings[under] = list(self.below.paths(under))
        return self.listings[under]


def cells(mods: Iterable[Mod], trees: Iterable[Tree]) -> tuple[float, list[str]]:
    """Plan every mod on every tree, nothing kept of before; return CPU seconds and verdicts."""
    for kept in KEPT:
        kept.cache_clear()
    cache = SummaryCache()
    start = time.process_time()
    verdicts = [
        planner.plan([mod], tree, cache=cache).mods[0].verdict.value
        for tree in trees
        for mod in mods
    ]
    return time.process_time() - start, verdicts


def as_before(work: Callable[[], tuple[float, list[str]]]) -> tuple[float, list[str]]:
    """Do some work with LibCST's scopes."""
    now = scopes.read_scopes
    scopes.read_scopes = scopes.read_strictly
    try:
        return work()
    finally:
        scopes.read_scopes = now


def spent(command: list[str]) -> tuple[float, float]:
    """Return the CPU and the wall seconds of a command."""
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, time.perf_counter() - start


def check_unknown(version: str, trees: Path | None, rounds: int) -> None:
    work = Path(tempfile.mkdtemp(prefix="vllm-mods-bench-"))
    try:
        site, library = work / "site", work / "library"
        if trees is None:
            lay_out(version, site)
        else:
            shutil.copytree(trees / version / "vllm", site / "vllm")
        unknown_mod(site, library)
        check = [TOOL, "check", "bench", "--library", str(library), "--target", str(site)]
        bare = [sys.executable, "-c", "pass"]
        took = [(spent(bare), spent(check)) for _ in range(rounds + 1)][1:]
        print(f"check, unknown tree of {version}, {rounds} rounds, medians:")
        for i, kind in enumerate(("CPU", "wall")):
            floor = statistics.median(one[0][i] for one in took)
            ours = statistics.median(one[1][i] for one in took)
            print(
                f"  {kind:4} {ours * 1000:6.0f} ms, bare interpreter {floor * 1000:4.0f} ms: {ours / floor:.1f} times"
            )
    finally:
        shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", nargs="+", default=RELEASES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--trees", type=Path)
    given = parser.parse_args()
    library = Library()
    mods = [mod._replace(lock=None) for mod in library.select(library.names())]
    trees = [
        Kept(open_tree(str(given.trees / version) if given.trees else f"pypi:{version}"))
        for version in given.releases
    ]
    _, verdicts = cells(mods, trees)  # reads what is needed, and imports
    before, now = [], []
    for _ in range(given.rounds):
        seconds, same = as_before(lambda: cells(mods, trees))
        assert same == verdicts
        before.append(seconds)
        now.append(cells(mods, trees)[0])
    old, new = statistics.median(before), statistics.median(now)
    print(f"{len(verdicts)} cells of {len(mods)} mods on {', '.join(given.releases)}, no lock")
    print(f"  scopes by LibCST, as before   {old:6.2f} CPU s   {len(verdicts) / old:6.1f} cells/s")
    print(f"  scopes by ast                 {new:6.2f} CPU s   {len(verdicts) / new:6.1f} cells/s")
    print(f"  ratio {old / new:.1f}")
    check_unknown(given.releases[-1], given.trees, max(given.rounds, 5))


if __name__ == "__main__":
    main()
