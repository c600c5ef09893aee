"""What fit of one file and of fifty costs, beside a bare ``ty check``.

The files are upstream's own changes between two neighbouring releases, each set one patch on a
tree that is the newer release otherwise. The bare run is ``ty check FILES`` in the newer release
as one would type it.

    python benchmarks/fit_cost.py --trees trees/0.26.0 trees/0.27.0 [--rounds N]

Prints the median CPU time of three fresh processes and their children, and the greatest memory.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
from pathlib import Path

# Long, and overridden or imported by many: the dear ones among single files.
ALONE = (
    "vllm/model_executor/layers/quantization/fp8.py",
    "vllm/model_executor/layers/linear.py",
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/config/vllm.py",
)


def used() -> tuple[float, float]:
    """Return the CPU time of this process and its children, and the greatest memory in MB."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(r.ru_utime + r.ru_stime for r in both), max(r.ru_maxrss for r in both) / 1024


def chosen(old: Path, new: Path, many: int) -> list[str]:
    """Choose files that both releases have and that differ, the same ones in each run."""
    paths = sorted(str(path.relative_to(new)) for path in new.glob("vllm/**/*.py"))
    random.Random(1).shuffle(paths)
    changed = (p for p in paths if (old / p).exists() and differ(old / p, new / p))
    return [path for path, _ in zip(changed, range(many), strict=False)]


def differ(one: Path, other: Path) -> bool:
    return one.read_bytes() != other.read_bytes()


def once(old: Path, new: Path, paths: list[str]) -> None:
    """Judge the files in this process, and print what it took as JSON."""
    from fit_blindness import Older

    from vllm_mods.base.model import FileChange
    from vllm_mods.fit import fit
    from vllm_mods.trees.open import open_tree

    before = {path: (old / path).read_bytes() for path in paths}
    changes = tuple(
        FileChange(path=path, before=data, after=(new / path).read_bytes())
        for path, data in before.items()
    )
    fit(changes, Older(open_tree(str(new)), before, {}))
    print(json.dumps(["fit", *used()]))


def bare(new: Path, paths: list[str]) -> None:
    from vllm_mods.fit.checker import program

    subprocess.run([program(), "check", *paths], cwd=new, capture_output=True, check=False)
    print(json.dumps(["bare", *used()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", nargs=2, required=True, type=Path, help="folders, older first")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--once", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    old, new = (path.resolve() for path in options.trees)
    if options.once:
        way, *paths = options.once
        bare(new, paths) if way == "bare" else once(old, new, paths)
        return
    print(f"{'files':42} {'':7} {'CPU s':>6} {'MB':>5} {'ratio':>6}")
    sets = {path: [path] for path in ALONE if differ(old / path, new / path)}
    sets |= {f"{many} files": chosen(old, new, many) for many in (10, 50)}
    for name, paths in sets.items():
        rows = {}
        for way in ("bare", "fit"):
            command = [sys.executable, __file__, "--trees", str(old), str(new), "--once"]
            runs = [
                json.loads(subprocess.run([*command, way, *paths], stdout=-1, check=True).stdout)
                for _ in range(options.rounds)
            ]
            rows[way] = statistics.median(run[1] for run in runs), max(run[2] for run in runs)
            assert way == runs[0][0], f"{way} was asked for, and {runs[0][0]} answered"
        for way, (seconds, memory) in rows.items():
            label = {"bare": "ty"}.get(way, way)
            ratio = seconds / rows["bare"][0]
            print(f"{name:42} {label:7} {seconds:6.2f} {memory:5.0f} {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
