"""Sixty mods on all releases, cold and warm: CPU, network, memory; beside sdists and `git apply --check`.

    python benchmarks/many_mods.py --trees DIR [--mods N] [--jobs N] [--seed S] [--keep DIR]

The mods are upstream's own changes: each is what one to three functions of one release became in the
next, for the releases before that one. ``--trees`` has sources of vLLM, each in a folder named by its
version; ``--keep`` says where the mods are written, to look at. Reads the package index.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from matrix import Run, forget_answers, measured, moved, sdists
from packaging.version import Version
from port_replay import functions, read, with_function

from vllm_mods.base import line_diff
from vllm_mods.formats import diff_writer
from vllm_mods.library.catalog import Library
from vllm_mods.port import outline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_mods.base.model import Mod

MANIFEST = """\
schema = 1
name = "{name}"
version = "1.0.0"
summary = "What {release} became in {other}"
license = "Apache-2.0"

[[variant]]
id = "one"
vllm = ">={since},<{other}"
patches = ["one.patch"]
"""


def changed(trees: str, release: str, other: str, path: str) -> tuple[bytes, list[str]] | None:
    """Return a file of a release and the functions of it that the other has with another text."""
    before, after = read(trees, release, path), read(trees, other, path)
    if before is None or after is None or before == after:
        return None
    old, new = outline.read(before), outline.read(after)
    if old is None or new is None:
        return None
    ends = dict(functions(new))
    names = [name for name, one in functions(old) if name in ends and ends[name].lines != one.lines]
    return (before, names) if names else None


def patch(trees: str, release: str, other: str, wanted: int, chance: random.Random) -> bytes:
    """Return what some functions of a release became in the other, as one patch."""
    files = sorted(
        str(file.relative_to(Path(trees, release)))
        for file in Path(trees, release, "vllm").rglob("*.py")
    )
    chance.shuffle(files)
    made: list[bytes] = []
    for path in files:
        found = changed(trees, release, other, path)
        if found is None:
            continue
        before, names = found
        name = chance.choice(names)
        after = read(trees, other, path) or b""
        one = dict(functions(outline.read(after)))[name]  # type: ignore[arg-type]
        lines = line_diff.split(after)[one.start - 1 : one.end]
        made.append(diff_writer.file_diff(path, before, with_function(before, name, lines)))
        if len(made) == wanted:
            break
    return b"".join(made)


def write_mods(trees: str, folder: str, count: int, seed: int) -> None:
    """Write mods, spread evenly over the releases."""
    chance = random.Random(seed)
    releases = sorted((v for v in os.listdir(trees) if is_release(trees, v)), key=Version)
    for at in range(count):
        place = at * (len(releases) - 1) // count
        release, other = releases[place : place + 2]
        home = Path(folder, "patches", f"backport-{at:02}")
        home.mkdir(parents=True)
        (home / "one.patch").write_bytes(patch(trees, release, other, 1 + at % 3, chance))
        since = releases[max(0, place - 2)]
        said = MANIFEST.format(name=home.name, release=release, other=other, since=since)
        (home / "mod.toml").write_text(said)


def is_release(trees: str, name: str) -> bool:
    return name[0].isdigit() and name.count(".") == 2 and Path(trees, name, "vllm").is_dir()


def git_loop(trees: str, mods: Sequence[Mod]) -> Iterator[int]:
    """Ask `git apply --check` for every patch on every extracted tree; yield the exit codes."""
    for version in filter(lambda name: is_release(trees, name), sorted(os.listdir(trees))):
        for mod in mods:
            sources = [
                f"{mod.directory}/{one.source}" for one in mod.variants[-1].patches if not one.root
            ]
            if sources:
                yield subprocess.run(
                    ["git", "apply", "--check", *sources],
                    cwd=f"{trees}/{version}",
                    env={**os.environ, "GIT_CEILING_DIRECTORIES": trees},
                    stderr=subprocess.DEVNULL,
                    check=False,
                ).returncode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", required=True)
    parser.add_argument("--mods", type=int, default=55)
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep")
    given = parser.parse_args()
    trees = os.path.abspath(given.trees)
    with tempfile.TemporaryDirectory() as scratch:
        folder = given.keep or f"{scratch}/library"
        if not os.path.isdir(folder):
            write_mods(trees, folder, given.mods, given.seed)
        library = Library(folder)
        mods = library.select(library.names())
        cache = f"{scratch}/cache"
        command = [sys.executable, "-m", "vllm_mods", "matrix", "--library", folder]
        command += ["--jobs", given.jobs, "--vllm", ">=0.14"]
        rows = {"matrix, cold": measured(command, cache, (0, 1))}
        rows["matrix, nothing changed"] = measured(command, cache, (0, 1))
        forget_answers(cache)
        rows["matrix, no answer kept"] = measured(command, cache, (0, 1))
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        codes = list(git_loop(trees, mods))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rows[f"{len(codes)} times git apply --check"] = Run(time.perf_counter() - start, 0.0, cpu)
        seconds, size = sdists(mods)
        rows[f"downloading the sdists ({size:.0f} MB)"] = Run(seconds, 0.0)
        print(f"{len(mods)} mods; {given.jobs} jobs; {moved(mods):.1f} MB moved by a cold run")
        print(f"{'':48}{'s':>8}{'CPU s':>8}{'peak MiB':>10}")
        for name, row in rows.items():
            print(f"{name:48}{row.seconds:8.2f}{row.cpu:8.2f}{row.peak:10.0f}")


if __name__ == "__main__":
    main()
