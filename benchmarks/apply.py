"""Time ``vllm-mods apply`` beside what one would run instead, in one run on the same trees.

    python benchmarks/apply.py [--rounds N]

Prints, per command, the median wall time, its ratio to a bare ``python3 -c pass`` taken in the
same rounds, and the peak memory of the process. Trees: 0.21.0, whose files mod.lock vouches for,
and 0.33.0, which a patch made on the spot meets without any lock. Both come from the package index.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KNOWN, UNKNOWN = "0.21.0", "0.33.0"
MOD = "hybrid-int4-fp8"
TOUCHED = "vllm/model_executor/layers/quantization/inc/inc.py"
TOOL = str(Path(sys.executable).parent / "vllm-mods")


def lay_out(version: str, folder: Path) -> None:
    """Write a release's Python tree with a dist-info, as an installation has it."""
    from vllm_mods.trees.open import open_tree

    tree = open_tree(f"pypi:vllm-{version}.tar.gz")
    record = []
    for path in sorted(tree.paths("vllm")):
        data = tree.read(path) or b""
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}\n")
    info = folder / f"vllm-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n")
    (info / "RECORD").write_text("".join(record) + f"{info.name}/RECORD,,\n")


def unknown_mod(site: Path, library: Path) -> None:
    """Make a mod without a lock for a file of the newest release: one line into one method."""
    folder = library / "patches" / "bench"
    folder.mkdir(parents=True)
    before = (site / TOUCHED).read_text()
    anchor = "    def get_quant_method("
    head, body = before.split(anchor, 1)
    signature, rest = body.split(":\n", 1)
    after = f"{head}{anchor}{signature}:\n        assert prefix is not None\n{rest}"
    (folder / "a").write_text(before)
    (folder / "b").write_text(after)
    patch = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "a", "b"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    lines = patch.splitlines(keepends=True)[2:]
    lines[:2] = [f"--- a/{TOUCHED}\n", f"+++ b/{TOUCHED}\n"]
    (folder / "x.patch").write_text("".join(lines))
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "bench"\nversion = "1"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.1"\npatches = ["x.patch"]\n'
    )


def prepare(work: Path) -> None:
    """Make both trees, the mod without a lock, and the known mod's patch for other tools."""
    from vllm_mods.library.catalog import Library

    lay_out(KNOWN, work / "known")
    lay_out(UNKNOWN, work / "unknown")
    unknown_mod(work / "unknown", work / "library")
    variant = next(v for v in Library().load(MOD).variants if v.id == "0.20")
    (work / "mod.patch").write_bytes(variant.patches[0].data)


def measure(command: list[str], cwd: Path) -> tuple[float, int]:
    """Return the wall time in seconds and the peak resident memory in MiB."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    took = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"exit code {child.returncode}: {' '.join(command)}")
    return took, usage.ru_maxrss // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--prepare", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.prepare:
        prepare(options.prepare)
        return
    rounds = options.rounds
    work = Path(tempfile.mkdtemp(prefix="vllm-mods-bench-"))
    try:
        # In a process of its own: a child's peak memory counts from its parent's size.
        subprocess.run([sys.executable, __file__, "--prepare", str(work)], check=True)
        known, unknown, library = work / "known", work / "unknown", work / "library"
        patch = work / "mod.patch"
        own = (TOOL, "apply", MOD, "--target", str(known))
        bench = ("bench", "--library", str(library), "--target", str(unknown))
        # what is timed, and what puts the tree back afterwards
        table: dict[str, tuple[list[str], list[str] | None]] = {
            "python3 -c pass": ([sys.executable, "-c", "pass"], None),
            "patch -p1": (
                ["patch", "-p1", "-s", "-i", str(patch)],
                ["patch", "-p1", "-R", "-s", "-i", str(patch)],
            ),
            "git apply": (["git", "apply", str(patch)], ["git", "apply", "-R", str(patch)]),
            "apply, known tree": ([*own], None),
            "apply again (in already)": ([*own], None),
            "revert": ([TOOL, "revert", "--target", str(known)], None),
            f"check, unknown tree of {UNKNOWN}": ([TOOL, "check", *bench], None),
            f"apply, unknown tree of {UNKNOWN}": (
                [TOOL, "apply", *bench],
                [TOOL, "revert", "--target", str(unknown)],
            ),
        }
        times: dict[str, list[float]] = {name: [] for name in table}
        memory = dict.fromkeys(table, 0)
        for i in range(rounds + 1):
            for name, (command, undo) in table.items():
                took, peak = measure(command, known)
                if undo:
                    measure(undo, known)
                if i:  # the first round warms the caches
                    times[name].append(took)
                    memory[name] = max(memory[name], peak)
        files = sum(1 for _ in unknown.rglob("*.py"))
        floor = statistics.median(times["python3 -c pass"])
        print(
            f"{rounds} rounds; Python {sys.version.split()[0]}; {UNKNOWN} has {files} Python files"
        )
        print(f"{'command'.ljust(36)} {'median ms':>10} {'ratio':>7} {'peak MiB':>9}")
        for name, taken in times.items():
            median = statistics.median(taken)
            print(f"{name.ljust(36)} {median * 1000:10.1f} {median / floor:7.1f} {memory[name]:9d}")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
