"""hybrid-int4-fp8 on the shape it was written for: a Qwen3.5-MoE with INT4 experts and an MTP head.

usage: python hybrid_moe.py PATCHED [--work FOLDER] [--gpus N] [--flashqla]

PATCHED is a site root after ``vllm-mods apply hybrid-int4-fp8 --target PATCHED`` (with ``--flashqla``
also of ``flashqla``). The checkpoints are random and are made on the spot (`moe_model.py`). The engines
run beside each other on one GPU; those whose result is in FOLDER are not run again. No network is
used. Prints a table, and exits with 1 if something is not as it must be.

The bf16 twin is no measure by itself: with 16 experts the rounding of FP8 flips routers. What vLLM's
own block FP8 is away from it is the measure, and the hybrid has to be nearer to that than both
are to the twin.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hybrid import difference, engine

HERE = Path(__file__).resolve().parent
FP8_LAYERS = 3 * 3 + 4 + 4 * 3  # as the checkpoint names them: GDN, attention, shared experts
SLACK = 1.25
# name: checkpoint, options beside the kernels that every run has
RUNS: dict[str, tuple[str, tuple[str, ...]]] = {
    "twin": ("twin", ()),
    "fp8": ("fp8", ()),
    "hybrid": ("hybrid", ()),
    "other": ("other", ()),
    "graphs": ("hybrid", ("--graphs",)),
    "mtp": ("hybrid", ("--mtp",)),
    "graphs and mtp": ("hybrid", ("--graphs", "--mtp")),
}
SEVERAL = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
FLASHQLA = {"flashqla": ("hybrid", ("--gdn", "flashqla"))}


class Judge:
    """Say what holds and what does not, and count what does not."""

    def __init__(self) -> None:
        self.failed = 0

    def demand(self, what: str, *, holds: bool) -> None:
        print(f"{'ok  ' if holds else 'FAIL'}  {what}", flush=True)
        self.failed += not holds

    def ended(self) -> int:
        return 1 if self.failed else 0


def run_all(
    options: argparse.Namespace, work: Path, runs: dict[str, tuple[str, tuple[str, ...]]]
) -> tuple[dict[str, Path], dict[str, str]]:
    """Run the engines; return where each wrote its result and what it said."""
    models = work / "models"
    if not models.is_dir():
        subprocess.run([sys.executable, str(HERE / "moe_model.py"), str(models)], check=True)
    results = {name: work / f"{name.replace(' ', '-')}-{options.gpus}.json" for name in runs}

    def run(name: str) -> str:
        model, more = runs[name]
        if results[name].exists():
            return results[name].with_suffix(".log").read_text()
        gdn = () if "--gdn" in more else ("--gdn", "triton")
        return engine(
            options.patched,
            models / model,
            results[name],
            *("--gpus", str(options.gpus), *gdn, *more),
            **(SEVERAL if options.gpus > 1 else {}),
        )

    # engines that share several GPUs can wait for each other for ever while graphs are captured
    with ThreadPoolExecutor(4 if options.gpus == 1 else 1) as pool:
        return results, dict(zip(runs, pool.map(run, runs), strict=True))


def compare(judge: Judge, results: dict[str, Path]) -> None:
    """Hold the log probabilities of the prompts, and of what was generated, against each other."""

    def far(one: str, other: str) -> float:
        mean, largest, count = difference(results[one], results[other])
        print(f"      {one:14} against {other}: mean {mean:.3f}, max {largest:.2f}, n {count}")
        return mean

    own = far("fp8", "twin")
    judge.demand("other weights are at least twice as far", holds=far("other", "twin") > 2 * own)
    for name in sorted(results.keys() - {"twin", "fp8", "other"}):
        mean, beside = far(name, "twin"), far(name, "fp8")
        what = f"{name}: as far from the twin as vLLM's own FP8 is, and nearer to that"
        judge.demand(what, holds=mean <= SLACK * own and beside < own)
    for name, result in results.items():
        told = json.loads(result.read_text())
        steps = [
            abs(a - b)
            for one, two in zip(told["generated"], told["again"], strict=True)
            for a, b in zip(one, two, strict=True)
        ]
        mean = sum(steps) / len(steps)
        print(
            f"      {name:14} generated against read again: mean {mean:.3f}, max {max(steps):.2f}"
        )
        what = f"{name}: a token has the probability that it has when read"
        judge.demand(what, holds=mean <= own)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patched")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--flashqla", action="store_true")
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="hybrid-moe-"))
    runs = RUNS | (FLASHQLA if options.flashqla else {})
    results, said = run_all(options, work, runs)
    judge = Judge()
    for name, result in results.items():
        if not result.exists():
            judge.demand(f"{name} runs: {said[name][-2000:]}", holds=False)
    if judge.ended():
        return 1
    compare(judge, results)
    told = json.loads(results["hybrid"].read_text())
    kinds = sorted({" ".join(names) for names in told["methods"].values()})
    print(f"      vLLM {told['vllm']}: {'; '.join(kinds)}")
    named = f"Hybrid INT4+FP8: {FP8_LAYERS} FP8 layers"
    loaded = "Hybrid INT4+FP8: block FP8 weights are loaded"
    for name, (model, _) in runs.items():
        if model in ("hybrid", "other"):
            what = f"{name}: the log names the layers and says that they are in"
            judge.demand(what, holds=loaded in said[name] and named in said[name])
    return judge.ended()


if __name__ == "__main__":
    raise SystemExit(main())
