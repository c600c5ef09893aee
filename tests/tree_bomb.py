"""A git repository of a few kilobytes whose commit has ten times as many files with each level of folders."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_BY_ME = ("-c", "user.name=me", "-c", "user.email=me@example.org")


def write(folder: Path, depth: int, under: str = "vllm") -> None:
    """Write it with 10 to the power of ``depth`` files below ``under``, and a last commit without them."""

    def run(*words: str, given: str = "") -> str:
        done = subprocess.run(
            ["git", "-C", str(folder), *_BY_ME, *words],
            input=given, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    run("init", "-q")
    blob = run("hash-object", "-w", "--stdin", given="x = 1\n")
    kind, of = "100644 blob", blob
    for _ in range(depth):
        rows = "".join(f"{kind} {of}\tf{n}.py\n" for n in range(10))
        kind, of = "040000 tree", run("mktree", given=rows)
    plain = f"100644 blob {blob}\t__init__.py\n"
    parent = ""
    for rows in (f"{plain}{kind} {of}\tmany\n", plain):
        top = run("mktree", given=f"040000 tree {run('mktree', given=rows)}\t{under}\n")
        parent = run("commit-tree", top, *(("-p", parent) if parent else ()), "-m", "m")
    run("update-ref", "HEAD", parent)
