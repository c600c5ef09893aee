"""hybrid-int4-fp8 on a GPU: is the patched checkpoint as good as its bf16 twin, and is a fault seen?

usage: python hybrid.py PLAIN PATCHED [--work FOLDER]

PLAIN and PATCHED are site roots with the same vLLM, the second one after
``vllm-mods apply hybrid-int4-fp8 --target PATCHED``. Everything else that vLLM needs is this
Python's. Prints a table, and exits with 1 if something in it is not as it must be. Each model
takes about half a minute; no network is used.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
# FP8 rounds the activations too, so that hybrid and twin differ; one kernel of vLLM differs as
# much from another. A model with other weights has a mean of 0.55.
MEAN, LARGEST = 0.15, 0.6


def engine(site: str, model: Path, result: Path, *options: str, **environ: str) -> str:
    """Run one model in one vLLM; return everything it said."""
    paths = [site, *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, str(HERE / "hybrid_engine.py"), str(model), str(result), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1"} | environ,
    )
    said = done.stdout + done.stderr
    result.with_suffix(".log").write_text(said)
    return said


def difference(one: Path, other: Path) -> tuple[float, float, int]:
    """Return mean, largest and number of differences between prompt log probabilities."""
    mine, theirs = (json.loads(path.read_text())["logprobs"] for path in (one, other))
    pairs = [
        abs(a - b) for m, t in zip(mine, theirs, strict=True) for a, b in zip(m, t, strict=True)
    ]
    return sum(pairs) / len(pairs), max(pairs), len(pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plain")
    parser.add_argument("patched")
    parser.add_argument("--work", type=Path)
    options = parser.parse_args()
    work = options.work or Path(tempfile.mkdtemp(prefix="hybrid-"))
    models = work / "models"
    make = [sys.executable, str(HERE / "hybrid_model.py"), str(models)]
    if not models.is_dir():
        subprocess.run([*make, "--hidden", "1024", "--layers", "4"], check=True)
    failed = []

    def demand(what: str, *, holds: bool) -> None:
        print(f"{'ok  ' if holds else 'FAIL'}  {what}", flush=True)
        if not holds:
            failed.append(what)

    refused = engine(options.plain, models / "hybrid", work / "refused.json")
    demand(
        "vLLM as it is refuses the checkpoint for want of a place for weight_scale_inv",
        holds="weight_scale_inv" in refused and not (work / "refused.json").exists(),
    )
    said = {
        name: engine(options.patched, models / name, work / f"{name}.json")
        for name in ("twin", "hybrid", "fault", "other")
    }
    for name in said:
        if not (work / f"{name}.json").exists():
            demand(f"{name} runs: {said[name][-2000:]}", holds=False)
            return 1
    far = {
        n: difference(work / f"{n}.json", work / "twin.json") for n in ("hybrid", "fault", "other")
    }
    for name, (mean, largest, count) in far.items():
        print(f"      {name:7} against twin: mean {mean:.3f}, max {largest:.2f}, n {count}")
    told = json.loads((work / "hybrid.json").read_text())
    kinds = sorted({" ".join(names) for names in told["methods"].values()})
    print(f"      vLLM {told['vllm']}: {'; '.join(kinds)}")
    for line in sorted(set(re.findall(r"(?:Using|Selected) \w*Kernel\b.*", said["hybrid"]))):
        print(f"      {line[:100]}")
    demand("the log names the FP8 layers", holds="Hybrid INT4+FP8: 18 FP8 layers" in said["hybrid"])
    loaded = "Hybrid INT4+FP8: block FP8 weights are loaded"
    demand("the log says that their weights are in", holds=loaded in said["hybrid"])
    fp8 = {n for n, names in told["methods"].items() if names[0] == "Fp8LinearMethod"}
    demand("10 layers of the model are FP8, fused ones counted once", holds=len(fp8) == 10)
    mean, largest, _ = far["hybrid"]
    demand(
        f"the hybrid is within mean {MEAN} and max {LARGEST}",
        holds=mean <= MEAN and largest <= LARGEST,
    )
    demand(
        "a model with other weights is not",
        holds=far["other"][0] > MEAN and far["other"][1] > LARGEST,
    )
    demand(
        "scales doubled in one FP8 layer of ten: twice as far from the twin as the hybrid, at least",
        holds=far["fault"][0] > 2 * mean,
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
