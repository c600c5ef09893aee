"""Ports of one mod over trees in memory."""

from __future__ import annotations

from pathlib import Path

from memory_tree import MemoryTree
from mod_making import diff_of, write_mod

from vllm_mods.library.mod_folder import load_mod
from vllm_mods.porting.job import Job, PortOutcome, run

PATH = "vllm/x.py"


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
