"""Does fit find fault with code that upstream shipped?

For each pair of neighbouring releases, upstream's own change of ``vllm/**.py`` is handed to
``fit`` as one patch on the older release, and the findings in ``vllm/model_executor``,
``vllm/v1`` and ``vllm/entrypoints`` are counted. The other folders change along: half a
release would be an inconsistent tree, and fit would be right to say so. Each error printed
is one to be explained: by a real fault of the release, or by one of fit.

    python benchmarks/fit_false_alarms.py --trees trees/0.19.0 trees/0.19.1 pypi:0.20.0
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

from vllm_mods.fit import fit
from vllm_mods.fit.world import Cache
from vllm_mods.model import FileChange, Level
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from vllm_mods.model import Finding, Tree

FOLDERS = ("vllm/model_executor/", "vllm/v1/", "vllm/entrypoints/")


def changes_between(old: Tree, new: Tree) -> tuple[FileChange, ...]:
    """Return upstream's change of every Python file, as one patch."""
    paths = {path for tree in (old, new) for path in tree.paths("vllm") if path.endswith(".py")}
    found = (
        FileChange(path=path, before=old.read(path), after=new.read(path)) for path in sorted(paths)
    )
    return tuple(change for change in found if change.before != change.after)


def judge(old: Tree, new: Tree, cache: Cache) -> tuple[int, int, tuple[Finding, ...]]:
    """Return how many files and added lines were judged, and what was found in the folders."""
    changes = changes_between(old, new)
    inside = [c for c in changes if c.path.startswith(FOLDERS)]
    lines = sum(len((c.after or b"").splitlines()) for c in inside)
    found = tuple(f for f in fit(changes, old, cache=cache) if (f.path or "").startswith(FOLDERS))
    return len(inside), lines, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs="+", required=True, help="releases, oldest first")
    parser.add_argument("--show-notes", action="store_true")
    options = parser.parse_args()
    print(f"{'pair':24} {'files':>6} {'lines':>8} {'errors':>6} {'notes':>6} {'time':>7} {'MB':>5}")
    # Syntax trees have no cycles, and looking for some doubles the time.
    gc.disable()
    cache = Cache()
    total: Counter[str] = Counter()
    pairs = clean = 0
    for one, other in pairwise(options.trees):
        start = time.perf_counter()
        files, lines, found = judge(open_tree(one), open_tree(other), cache)
        seconds = time.perf_counter() - start
        errors = [finding for finding in found if finding.level is Level.ERROR]
        names = f"{os.path.basename(one)} -> {os.path.basename(other)}"
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(
            f"{names:24} {files:6} {lines:8} {len(errors):6} {len(found) - len(errors):6}"
            f" {seconds:6.1f}s {memory:5}",
            flush=True,
        )
        for finding in errors:
            print(f"    {finding.code}: {finding.message}", flush=True)
        if options.show_notes:
            for finding in found:
                if finding.level is Level.NOTE:
                    print(f"    note {finding.message}", flush=True)
        total.update(finding.code for finding in errors)
        gc.collect()
        pairs += 1
        clean += not errors
    print(f"{pairs} pairs, {clean} without any error; errors by code: {dict(total)}")
    return 0 if not total else 1


if __name__ == "__main__":
    raise SystemExit(main())
