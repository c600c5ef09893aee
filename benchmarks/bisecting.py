"""Time ``vllm-mods bisect`` beside ``git bisect run git apply --check``, in one run on one repository.

    python benchmarks/bisecting.py [--commits 2000] [--rounds 3] [TREE …]

Makes a repository out of real releases: 0.21.0 as one commit, then release by release every file
that is another in the next one, in an order shuffled once, spread over so many commits. Then one
variant of a bundled mod is followed through it by both. The trees are the source archives of 0.21.0
to 0.24.0 from the package index; others, as extracted folders, can be given instead, oldest first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from vllm_mods.library.catalog import Library
from vllm_mods.trees.open import open_tree

TREES = [f"pypi:vllm-{version}.tar.gz" for version in ("0.21.0", "0.22.0", "0.23.0", "0.24.0")]
CASES = (("hybrid-int4-fp8", "0.20"), ("flashqla", "0.19"))
TOOL = str(Path(sys.executable).parent / "vllm-mods")
START = "v0.21.0"
SEED = 7


def files(spec: str) -> dict[str, bytes]:
    """Return what a release has below ``vllm/``."""
    tree = open_tree(spec)
    return {path: tree.read(path) or b"" for path in sorted(tree.paths("vllm"))}


def make(repository: Path, specs: list[str], count: int) -> tuple[int, int]:
    """Make the repository with its tags; return its number of commits and of files at the start."""
    states = [files(spec) for spec in specs]
    shuffle = random.Random(SEED).shuffle
    changes: list[tuple[str, bytes | None]] = []
    for before, after in pairwise(states):
        paths = sorted(
            path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
        )
        shuffle(paths)
        changes += [(path, after.get(path)) for path in paths]
    count = min(count, len(changes))
    steps: list[list[tuple[str, bytes | None]]] = [
        changes[len(changes) * i // count : len(changes) * (i + 1) // count] for i in range(count)
    ]
    first: list[tuple[str, bytes | None]] = [*states[0].items()]
    subprocess.run(["git", "init", "-q", "-b", "main", str(repository)], check=True)
    with subprocess.Popen(
        ["git", "-C", str(repository), "fast-import", "--quiet"], stdin=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        for number, step in enumerate([first, *steps]):
            message = f"Change {len(step)} files (#{10_000 + number})\n".encode()
            process.stdin.write(
                b"commit refs/heads/main\ncommitter a <a@b> %d +0000\ndata %d\n%s"
                % (1_700_000_000 + 600 * number, len(message), message)
            )
            for path, data in step:
                if data is None:
                    process.stdin.write(b"D %s\n" % path.encode())
                else:
                    process.stdin.write(
                        b"M 100644 inline %s\ndata %d\n" % (path.encode(), len(data))
                    )
                    process.stdin.write(data + b"\n")
            if number == 0:
                process.stdin.write(
                    b"reset refs/tags/%s\nfrom refs/heads/main\n\n" % START.encode()
                )
    assert process.returncode == 0
    subprocess.run(["git", "-C", str(repository), "gc", "-q"], check=True)
    return count, len(states[0])


def ours(repository: Path, mod: str, variant: str) -> tuple[float, str, int]:
    """Return the seconds, the commit found and how many trees were planned."""
    command = [TOOL, "bisect", mod, "--variant", variant, "--repo", str(repository), "--json"]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--good", START, "--bad", "main"], capture_output=True, check=True
    )
    seconds = time.perf_counter() - start
    answer = json.loads(done.stdout)
    return seconds, answer["after"]["commit"], answer["planned"]


def theirs(clone: Path, patches: list[str]) -> tuple[float, str]:
    """Return the seconds and the commit that ``git bisect run`` names."""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    git("checkout", "-q", "main")
    start = time.perf_counter()
    git("bisect", "start", "main", START)
    git("bisect", "run", "git", "apply", "--check", *patches)
    seconds = time.perf_counter() - start
    found = git("rev-parse", "refs/bisect/bad").strip()
    git("bisect", "reset")
    return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trees", nargs="*", default=TREES)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repository, clone = Path(folder) / "repository", Path(folder) / "clone"
        count, there = make(repository, options.trees, options.commits)
        subprocess.run(["git", "clone", "-q", str(repository), str(clone)], check=True)
        print(
            f"{count:,} commits on {there:,} files; {options.rounds} rounds, medians; {os.cpu_count()} cores"
        )
        for name, variant in CASES:
            mod = Library().load(name)
            chosen = next(one for one in mod.variants if one.id == variant)
            patches = [os.path.join(mod.directory, patch.source) for patch in chosen.patches]
            mine = [ours(repository, name, variant) for _ in range(options.rounds)]
            other = [theirs(clone, patches) for _ in range(options.rounds)]
            fast, slow = (statistics.median(run[0] for run in runs) for runs in (mine, other))
            same = "the same commit" if mine[0][1] == other[0][1] else "another commit"
            print(
                f"{name} {variant}: bisect {fast:.2f} s ({mine[0][2]} plans), git bisect run "
                f"{slow:.2f} s, ratio {fast / slow:.2f}; {same}"
            )


if __name__ == "__main__":
    main()
