"""How much of a check is the static fit: CPU time and memory, on a tree that no mod.lock vouches for.

    python benchmarks/fit_share.py [--release 0.23.0] [--rounds N]

Lays out the release's sdist, strips the bundled mod of its lock, and plans it in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from apply import MOD, lay_out


def once(site: str) -> None:
    """Plan the mod on a tree, in this process, and print what it took as JSON."""
    sys.modules["ty"] = None  # type: ignore[assignment]
    start = time.process_time()
    from vllm_mods import fit
    from vllm_mods.library.catalog import Library
    from vllm_mods.planning import planner
    from vllm_mods.trees.open import open_tree

    inside = 0.0
    real = fit.fit

    def timed(*arguments: object, **options: object) -> object:
        nonlocal inside
        begun = time.process_time()
        found = real(*arguments, **options)  # type: ignore[arg-type]
        inside += time.process_time() - begun
        return found

    fit.fit = timed  # type: ignore[assignment]
    mod = Library().load(MOD)._replace(lock=None)
    planned = planner.plan([mod], open_tree(site))
    total = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    verdict = planned.mods[0].verdict.value
    print(json.dumps({"verdict": verdict, "total": total, "fit": inside, "peak": peak}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="0.23.0")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--once", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        once(options.once)
        return
    if options.prepare:
        lay_out(options.release, options.prepare)
        return
    work = Path(tempfile.mkdtemp(prefix="vllm-mods-bench-"))
    try:
        # In a process of its own: a child's peak memory counts from its parent's size.
        subprocess.run(
            [sys.executable, __file__, "--release", options.release, "--prepare", str(work)],
            check=True,
        )
        command = [sys.executable, __file__, "--once", str(work)]
        runs = [
            json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            for _ in range(options.rounds)
        ]
    finally:
        shutil.rmtree(work)
    total = statistics.median(run["total"] for run in runs)
    inside = statistics.median(run["fit"] for run in runs)
    peak = max(run["peak"] for run in runs)
    print(f"{MOD} on {options.release}: {runs[0]['verdict']}; {options.rounds} rounds, medians")
    print(
        f"plan {total:.2f} s, of which fit {inside:.2f} s ({inside / total:.0%}); peak {peak:.0f} MiB"
    )


if __name__ == "__main__":
    main()
