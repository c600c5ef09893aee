"""Does fit see faults? Mutates correct patches and counts, per kind, what it catches.

A correct patch is upstream's own change of one file between two neighbouring releases, on a
tree that is the newer release otherwise. Each mutant has one fault on a line that the patch
adds. "decidable" are those that a person could decide from the tree alone: what is meant has
one definition in it (see ``fit_mutations``); the rate of these is the one that counts.

    python benchmarks/fit_blindness.py --trees trees/0.22.1 trees/0.23.0 --per-kind 40
"""

from __future__ import annotations

import argparse
import ast
import gc
import os
import random
import time
import warnings
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

from fit_mutations import Index, Mutant, mutants

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.world import SummaryCache
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm_mods.base.model import Tree


class Older:
    """The newer release with one file as the older one has it."""

    def __init__(self, tree: Tree, path: str, data: bytes | None) -> None:
        self.tree, self.path, self.data = tree, path, data
        self.spec, self.version = tree.spec, tree.version
        self.remote, self.pristine = False, tree.pristine

    def read(self, path: str) -> bytes | None:
        return self.data if path == self.path else self.tree.read(path)

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return (p for p in self.tree.paths(under) if self.data is not None or p != self.path)

    def is_released(self, path: str, data: bytes) -> bool | None:
        return self.tree.is_released(path, data)


def index_of(tree: Tree) -> Index:
    index = Index()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in tree.paths("vllm"):
            if path.endswith(".py"):
                index.add(path, ast.parse(tree.read(path) or b""))
    return index


def errors(tree: Tree, change: FileChange, cache: SummaryCache) -> set[str]:
    found = fit((change,), tree, cache=cache).findings
    return {f"{f.code}: {f.message}" for f in found if f.level is Level.ERROR}


def sample(old: Tree, new: Tree, per_kind: int, seed: int) -> list[tuple[FileChange, Mutant]]:
    """Choose the mutants of one pair, decidable and other ones alike."""
    index = index_of(new)
    found: dict[tuple[str, bool], list[tuple[FileChange, Mutant]]] = defaultdict(list)
    for path in sorted(p for p in new.paths("vllm") if p.endswith(".py")):
        before, after = old.read(path), new.read(path)
        if after is None or before == after:
            continue
        change = FileChange(path=path, before=before, after=after)
        for mutant in mutants(before, after, added_lines(before, after), index):
            found[mutant.kind, mutant.decidable].append((change, mutant))
    # Chosen by position, so that the sample is the same everywhere for one seed.
    chooser = random.Random(seed)
    chosen: list[tuple[FileChange, Mutant]] = []
    for key in sorted(found):
        chosen += chooser.sample(found[key], min(per_kind, len(found[key])))
    return chosen


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", required=True, help="releases, oldest first")
    parser.add_argument("--per-kind", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decidable", action="store_true", help="leave the others out")
    options = parser.parse_args()
    # Syntax trees have no cycles, and looking for some doubles the time.
    gc.disable()
    made: Counter[tuple[str, bool]] = Counter()
    caught: Counter[tuple[str, bool]] = Counter()
    for one, other in pairwise(options.trees):
        start = time.perf_counter()
        old, new = open_tree(one), open_tree(other)
        cache = SummaryCache()
        clean: dict[str, set[str]] = {}
        for change, mutant in sample(old, new, options.per_kind, options.seed):
            if options.decidable and not mutant.decidable:
                continue
            tree = Older(new, change.path, change.before)
            if change.path not in clean:
                clean[change.path] = errors(tree, change, cache)
            faulty = FileChange(path=change.path, before=change.before, after=mutant.after)
            key = (mutant.kind, mutant.decidable)
            made[key] += 1
            if errors(tree, faulty, cache) - clean[change.path]:
                caught[key] += 1
            elif mutant.decidable:
                print(f"    missed: {mutant.kind}: {change.path}:{mutant.line} {mutant.what}")
        gc.collect()
        names = f"{os.path.basename(one)} -> {os.path.basename(other)}"
        print(f"{names}: {time.perf_counter() - start:.0f} s", flush=True)
    return table(made, caught)


def table(made: Counter[tuple[str, bool]], caught: Counter[tuple[str, bool]]) -> int:
    print(f"{'kind':38} {'decidable':>9} {'caught':>7} {'rate':>7}   {'others':>6} {'caught':>7}")
    all_made = all_caught = 0
    for kind in sorted({kind for kind, _ in made}):
        many, few = made[kind, True], caught[kind, True]
        all_made, all_caught = all_made + many, all_caught + few
        rate = f"{few / many:.1%}" if many else "-"
        print(
            f"{kind:38} {many:9} {few:7} {rate:>7}   {made[kind, False]:6} {caught[kind, False]:7}"
        )
    share = all_caught / all_made if all_made else 0.0
    print(f"{'all':38} {all_made:9} {all_caught:7} {share:7.1%}")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    raise SystemExit(main())
