"""Sixty mods on all releases, cold and warm: CPU, network, memory; beside sdists and `git apply --check`.

    python benchmarks/many_mods.py --trees DIR [--mods N] [--jobs N] [--seed S] [--vllm SPEC] [--keep DIR]

The mods are upstream's own changes: each is what one to three functions of one release became in the
next, for the releases before that one. What the matrix says of each is held against `git apply --check`. ``--trees`` has sources of vLLM, each in a folder named by its
version; ``--keep`` says where the mods are written, to look at. Reads the package index. By hand the same
is to download each release's sdist whole, to unpack it, and to ask `git apply --check` for each mod.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from matrix import Run, forget_answers, measured, moved
from packaging.version import Version
from port_replay import functions, read, with_function

from vllm_mods.base import line_diff
from vllm_mods.formats import diff_writer
from vllm_mods.library.catalog import Library
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.matrices.work import Setting, Workshop
from vllm_mods.porting import outline

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        one = dict(functions(outline.read(after)))[name]
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


Cells = dict[tuple[str, str], bool]


def by_hand(mods: Sequence[Mod], spec: str, scratch: str) -> tuple[dict[str, Run], float, Cells]:
    """Do without the tool: have each release's sdist, unpack it, ask `git apply --check` for every mod.

    Returns the three rows, the MB of the sdists, and what git says of each mod on each release; releases that
    have no sdist, and rebuilt wheels, are left out.
    """
    releases = Workshop(Setting(tuple(mods), f"{scratch}/index")).releases
    names = {one.removeprefix("pypi:") for one in choose_releases((), releases.files(), spec)}
    sdists = [one for one in releases.files() if one.kind == "sdist" and one.version in names]
    fetch = [["curl", "-sSfL", "-o", f"{scratch}/{one.filename}", one.url] for one in sdists]
    unpack = [["tar", "-xzf", f"{scratch}/{one.filename}", "-C", scratch] for one in sdists]
    rows = {f"{len(sdists)} times curl of an sdist": timed(fetch, scratch)}
    rows[f"{len(sdists)} times tar -xzf"] = timed(unpack, scratch)
    size = sum(os.path.getsize(f"{scratch}/{one.filename}") for one in sdists) / 1e6
    sources = {
        mod.name: [
            f"{mod.directory}/{one.source}" for one in mod.variants[-1].patches if not one.root
        ]
        for mod in mods
    }
    check = {name: ["git", "apply", "--check", *found] for name, found in sources.items() if found}
    start = timed([], scratch)
    said: Cells = {}
    for sdist in sdists:
        ends: list[bool] = []
        folder = f"{scratch}/{sdist.filename.removesuffix('.tar.gz')}"
        one = timed([*check.values()], folder, ends)
        start = Run(start.seconds + one.seconds, 0.0, start.cpu + one.cpu)
        cells = ((name, f"pypi:{sdist.version}") for name in check)
        said.update(zip(cells, ends, strict=True))
    rows[f"{len(said)} times git apply --check"] = start
    return rows, size, said


def timed(commands: Sequence[Sequence[str]], folder: str, ends: list[bool] | None = None) -> Run:
    """Run commands one after the other. They have to end well, or ``ends`` is given which of them do."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "GIT_CEILING_DIRECTORIES": os.path.dirname(folder)},
            stderr=None if ends is None else subprocess.DEVNULL,
            check=ends is None,
        )
        if ends is not None:
            ends.append(done.returncode == 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(time.perf_counter() - began, 0.0, cpu)


def beside_git(command: Sequence[str], cache: str, said: Cells) -> None:
    """Print how often `git apply --check` says yes and no to the cells of each verdict."""
    out = subprocess.run(
        [*command, "--json"],
        env={**os.environ, "VLLM_MODS_CACHE": cache},
        stdout=subprocess.PIPE,
        check=False,
    ).stdout
    counts: dict[str, Counter[bool]] = {}
    for cell in json.loads(out)["cells"]:
        if (of := (cell["mod"], cell["tree"])) in said:
            counts.setdefault(cell["verdict"], Counter())[said[of]] += 1
    print(f"{'verdict':16}{'git apply --check: yes':>24}{'no':>8}")
    for verdict, count in sorted(counts.items()):
        print(f"{verdict:16}{count[True]:24}{count[False]:8}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees", required=True)
    parser.add_argument("--mods", type=int, default=55)
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vllm", default=">=0.14")
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
        command += ["--jobs", given.jobs, "--vllm", given.vllm]
        rows = {"matrix, cold": measured(command, cache, (0, 1))}
        rows["matrix, nothing changed"] = measured(command, cache, (0, 1))
        forget_answers(cache)
        rows["matrix, no answer kept"] = measured(command, cache, (0, 1))
        print(f"{len(mods)} mods on {given.vllm}; {given.jobs} jobs")
        ours = moved(mods, given.vllm, int(given.jobs))
        print(f"moved by a cold run: {ours:.1f} MB")
        theirs, size, said = by_hand(mods, given.vllm, scratch)
        print(f"moved by hand: {size:.1f} MB, {size / ours:.0f} times as much")
        rows |= theirs
        beside_git(command, cache, said)
        total = Run(
            sum(one.seconds for one in theirs.values()),
            0.0,
            sum(one.cpu for one in theirs.values()),
        )
        rows["all of that by hand"] = total
        base = rows["matrix, cold"]
        print(f"{'':40}{'s':>8}{'ratio':>8}{'CPU s':>8}{'ratio':>8}{'peak MiB':>10}")
        for name, row in rows.items():
            peak = f"{row.peak:10.0f}" if row.peak else ""
            print(
                f"{name:40}{row.seconds:8.2f}{row.seconds / base.seconds:8.2f}"
                f"{row.cpu:8.2f}{row.cpu / base.cpu:8.2f}{peak}"
            )


if __name__ == "__main__":
    main()
