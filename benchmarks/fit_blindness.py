"""Does fit see faults? Mutates correct patches and counts, per kind, what it catches.

A correct patch is upstream's own change of one file between two neighbouring releases, on a
tree that is the newer release otherwise. Each mutant has one fault on a line that the patch
adds, or in what that line uses (``fit_kinds``): a release that moved on. Only faults count that
a person could decide from the tree alone. What is refused is found by an error, the rest of what is
found by a note that names the fault. Kinds that the pair's own lines give too few of are
taken from its other files.

    python benchmarks/fit_blindness.py --trees trees/0.22.1 trees/0.23.0 --per-kind 8
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import os
import random
import time
import warnings
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from fit_kinds import Code, kinds
from fit_mutations import Index, Mutant, mutants

from vllm_mods.base.model import FileChange, Level
from vllm_mods.base.tree import TreeView
from vllm_mods.fit import AtOrigin, fit
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.world import SummaryCache
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from vllm_mods.base.tree import Tree

_FIRST = frozenset(
    (
        "drop a parameter",
        "drop a parameter and its uses",
        "misspell a keyword",
        "one argument too many",
        "remove an assignment to an attribute",
        "rename an import",
    )
)
ALONE = "vllm/model_executor/layers/brand_new_helpers.py"


class Older(TreeView):
    """The newer release with some files as an older one, or a later one, has them."""

    def __init__(
        self, tree: Tree, files: Mapping[str, bytes | None], kept: Mapping[str, bytes]
    ) -> None:
        super().__init__(tree)
        self.files, self.kept = files, kept
        self.remote = False

    def read(self, path: str) -> bytes | None:
        if path in self.files:
            return self.files[path]
        return self.kept[path] if path in self.kept else self.below.read(path)

    def layers(self) -> tuple[Tree, Mapping[str, bytes | None]]:
        lowest, changed = self.below.layers()
        return lowest, {**changed, **self.files}

    def paths(self, under: str = "vllm") -> Iterable[str]:
        every = self.kept if self.kept and under == "vllm" else self.below.paths(under)
        return (
            p for p in dict.fromkeys((*every, *self.files)) if self.files.get(p, b"") is not None
        )


def code_of(tree: Tree) -> Code:
    index = Index()
    paths = sorted(path for path in tree.paths("vllm") if path.endswith(".py"))
    files = {path: tree.read(path) or b"" for path in paths}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trees = {path: ast.parse(data) for path, data in files.items()}
    for path, module in trees.items():
        index.add(path, module)
    code = Code(files=files, index=index, trees=trees)
    code.fill()
    return code


def found(tree: Tree, change: FileChange, cache: SummaryCache, origin: Tree) -> dict[str, Level]:
    """Return what fit says of single lines: errors, and the notes that name a fault."""
    every = fit((change,), tree, cache=cache, origin=AtOrigin(origin, (change,))).findings
    return {
        f"{f.code}: {f.message}": f.level
        for f in every
        if f.level is Level.ERROR or f.code not in {"fit-unknown", "fit-duplicate"}
    }


def sample(
    old: Tree, code: Code, per_kind: int, seed: int, wanted: str
) -> list[tuple[FileChange, Mutant]]:
    """Choose the mutants of one pair, at random and the same everywhere for one seed."""
    chooser = random.Random(seed)
    pool: dict[str, list[tuple[FileChange, Mutant]]] = defaultdict(list)
    changed = [path for path in code.files if old.read(path) != code.files[path]]
    others = [path for path in code.files if old.read(path) == code.files[path]]
    chooser.shuffle(changed)
    chooser.shuffle(others)
    for path in [*changed, *others[:90]]:
        before, after = old.read(path), code.files[path]
        change = FileChange(path=path, before=before, after=after)
        every = frozenset(range(1, after.count(b"\n") + 2))
        lines = added_lines(before, after) if path in changed else every
        code.full = {kind for kind, several in pool.items() if len(several) >= 2 * per_kind}
        found = list(kinds(path, after, lines, code))
        if path in changed and len(_FIRST & code.full) < len(_FIRST):
            found += [m for m in mutants(before, after, lines, code.index) if m.decidable]
        for mutant in found:
            if mutant.kind not in code.full:
                pool[mutant.kind].append((change, mutant))
    chosen: list[tuple[FileChange, Mutant]] = []
    for kind in sorted(pool):
        if wanted in kind:
            chosen += chooser.sample(pool[kind], min(per_kind, len(pool[kind])))
    return chosen


def asked_for() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", required=True, help="releases, oldest first")
    parser.add_argument("--per-kind", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only the kinds that have this in their name")
    parser.add_argument("--show", action="store_true", help="print what was found, too")
    parser.add_argument("--output", help="a JSON file of each fault with all that was found of it")
    return parser.parse_args()


def main() -> int:
    options = asked_for()
    # Syntax trees have no cycles, and looking for some doubles the time.
    gc.disable()
    made: Counter[str] = Counter()
    caught: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    answers: list[dict[str, object]] = []
    for one, other in pairwise(options.trees):
        start = time.perf_counter()
        old, new = open_tree(one), open_tree(other)
        code = code_of(new)
        chosen = sample(old, code, options.per_kind, options.seed, options.kind)
        print(f"{len(chosen)} mutants: {time.perf_counter() - start:.0f} s", flush=True)
        cache = SummaryCache()
        clean_of: dict[tuple[str, bool], dict[str, Level]] = {}
        for change, mutant in sorted(chosen, key=lambda pair: pair[0].path):
            moved = {path: data for path, data in mutant.tree.items() if path != "NEW"}
            path, before, clean = change.path, change.before, change.after
            if "NEW" in mutant.tree:
                path, clean = ALONE, None
            if mutant.tree:  # the patch brings the whole file, for a release that moved on
                before = None
            tree = Older(new, {**moved, path: before}, code.files)
            # The same patch on the same release without the fault, or not moved on.
            right = Older(new, {path: before}, code.files)
            key = (path, before is None)
            if key not in clean_of:
                sound = FileChange(path=path, before=before, after=clean)
                clean_of[key] = {} if clean is None else found(right, sound, cache, right)
            faulty = FileChange(path=path, before=before, after=mutant.after)
            said = found(tree, faulty, cache, right)
            news = said.keys() - clean_of[key].keys()
            told = {text: said[text].value for text in sorted(news)}
            place = f"{path}:{mutant.line}"
            answers.append({"kind": mutant.kind, "at": place, "what": mutant.what, "told": told})
            made[mutant.kind] += 1
            caught[mutant.kind] += bool(news)
            refused[mutant.kind] += any(said[text] is Level.ERROR for text in news)
            if not any(said[text] is Level.ERROR for text in news):
                how = "noted" if news else "missed"
                print(f"    {how}: {mutant.kind}: {path}:{mutant.line} {mutant.what}")
            elif options.show:
                print(f"    {mutant.kind}: {mutant.what}: {min(news)}")
        gc.collect()
        names = f"{os.path.basename(one)} -> {os.path.basename(other)}"
        print(f"{names}: {time.perf_counter() - start:.0f} s", flush=True)
    if options.output:
        Path(options.output).write_text(json.dumps(answers, indent=1))
    return table(made, refused, caught)


def table(made: Counter[str], refused: Counter[str], caught: Counter[str]) -> int:
    print(f"{'kind':46} {'made':>5} {'refused':>8} {'rate':>7} {'told':>6} {'rate':>7}")
    for kind in [*sorted(made), ""]:
        many, no, yes = (one[kind] if kind else one.total() for one in (made, refused, caught))
        name = kind or f"all {len(made)} kinds"
        print(f"{name:46} {many:5} {no:8} {no / many:7.1%} {yes:6} {yes / many:7.1%}")
    return 0 if refused.total() >= 0.65 * made.total() else 1


if __name__ == "__main__":
    raise SystemExit(main())
