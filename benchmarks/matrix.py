"""The matrix of the bundled mods: cold, warm, nothing changed; beside `patch --dry-run` and sdists.

    python benchmarks/matrix.py [--trees DIR] [--jobs N]

``--trees`` is a folder with sources as they come out of sdists, each in a folder named by its
version; without it the shell loop over extracted trees is left out. Reads the package index.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.model import Mod, PatchFile, Variant
from vllm_mods.base.versions import in_range
from vllm_mods.library.catalog import Library
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.matrices.run import compute
from vllm_mods.matrices.work import Setting, Task, Workshop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.base.tree import Tree

FILES = tuple(
    f"vllm/config/{name}.py"
    for name in ("cache", "lora", "load", "device", "scheduler", "parallel", "speculative", "model")
)
STEPS = (1, 2, 4, 8)


class Run(NamedTuple):
    """A command: wall seconds, the peak of the memory that all its processes take together, their CPU seconds."""

    seconds: float
    peak: float
    cpu: float = 0.0


def measured(command: Sequence[str], cache: str, codes: Sequence[int] = (0,)) -> Run:
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, "VLLM_MODS_CACHE": cache}
    )
    peak = 0
    ticks: dict[int, int] = {}
    while process.poll() is None:
        family = _family(process.pid)
        peak = max(peak, sum(map(_share, family)))
        ticks.update((pid, spent) for pid in family if (spent := _ticks(pid)))
        time.sleep(0.05)
    seconds = time.perf_counter() - start
    assert process.returncode in codes, f"{' '.join(command)}: exit code {process.returncode}"
    return Run(seconds, peak / 1024, sum(ticks.values()) / os.sysconf("SC_CLK_TCK"))


def _family(top: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    parent = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended
            parents.setdefault(parent, []).append(int(entry))
    found = [top]
    for pid in found:
        found += parents.get(pid, [])
    return found


def _ticks(pid: int) -> int:
    """Return the CPU time of a process that is still there; nobody waits for those of a forkserver."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13]))
    except OSError:
        return 0


def _share(pid: int) -> int:
    """Return the KiB of a process, what it shares divided among those that share it."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def forget_answers(cache: str) -> None:
    shutil.rmtree(os.path.join(cache, "answers"), ignore_errors=True)


class MeteredWorkshop(Workshop):
    """A worker that writes down, in the cache, what it has moved."""

    def run(self, task: Task) -> tuple[Cell, ...]:
        outcome = super().run(task)
        note = Path(self.setting.cache_dir, f"moved-{os.getpid()}")
        note.write_text(str(received(self)))
        return outcome


def received(workshop: Workshop) -> int:
    """Return the bytes that a worker has moved."""
    assert workshop.releases.http is not None
    return workshop.releases.http.received


def moved(mods: tuple[Mod, ...], spec: str | None = None, jobs: int = 1) -> float:
    """Return the MB that a cold run moves, all its processes taken together."""
    with tempfile.TemporaryDirectory() as cache:
        workshop = MeteredWorkshop(Setting(mods, cache))
        compute(workshop, choose_releases(mods, workshop.releases.files(), spec), jobs)
        others = set(Path(cache).glob("moved-*")) - {Path(cache, f"moved-{os.getpid()}")}
        notes = [int(note.read_text()) for note in others]
        return (received(workshop) + sum(notes)) / 1e6


def dry_run_loop(trees: str, mods: tuple[Mod, ...]) -> tuple[float, int]:
    """Time `patch --dry-run` of the variant in range, on every extracted tree; return the count."""
    lines = [
        f"patch -p1 -s -f --dry-run -d {trees}/{version} -i {mod.directory}/{patch.source} || true"
        for version in sorted(os.listdir(trees))
        if os.path.isdir(f"{trees}/{version}/vllm")
        for mod in mods
        for variant in mod.variants
        if in_range(version, variant.vllm)
        for patch in variant.patches
    ]
    start = time.perf_counter()
    subprocess.run(["bash", "-c", "\n".join(lines)], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start, len(lines)


def sdists(mods: tuple[Mod, ...], count: int = 3) -> tuple[float, float]:
    """Return the seconds and the MB of all sdists, from those of a few that are spread over them."""
    with tempfile.TemporaryDirectory() as cache:
        releases = Workshop(Setting(mods, cache)).releases
        specs = choose_releases(mods, releases.files(), None)
        versions = {spec.removeprefix("pypi:") for spec in specs}
        files = [
            file for file in releases.files() if file.kind == "sdist" and file.version in versions
        ]
        assert releases.http is not None
        some = files[:: max(1, len(files) // count)][:count]
        before = releases.http.received
        start = time.perf_counter()
        for file in some:
            with tempfile.TemporaryFile() as target:
                releases.http.download(file.url, target)
        scale = len(files) / len(some)
        size = (releases.http.received - before) / 1e6
        return (time.perf_counter() - start) * scale, size * scale


def made(tree: Tree, name: str, paths: Sequence[str]) -> Mod:
    """Make a mod that adds a line behind the first `import` or `from` line of each file."""
    patch = b""
    for path in paths:
        lines = (tree.read(path) or b"").splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if line.startswith((b"import ", b"from ")))
        before = b"".join(b" " + line for line in lines[at - 2 : at])
        head = f"--- a/{path}\n+++ b/{path}\n@@ -{at - 1},3 +{at - 1},4 @@\n".encode()
        patch += head + before + b"+import os as added_by_%b\n" % name.encode() + b" " + lines[at]
    one = Variant(id="one", vllm=">=0.1", patches=(PatchFile(source="one.patch", data=patch),))
    return Mod(
        name=name, version="1", summary="", license="", directory="", digest=name, variants=(one,)
    )


def cost(mods: tuple[Mod, ...], specs: Sequence[str], cache: str) -> float:
    """Return the CPU seconds of one process for some mods on some trees, nothing kept of before."""
    workshop = Workshop(Setting(mods, cache, store=False))
    workshop.releases.files()
    start = time.process_time()
    for spec in specs:
        outcome = workshop.run(Task(spec, tuple(mod.name for mod in mods)))
        assert all(one.verdict.ok for one in outcome), outcome
    return time.process_time() - start


def growth(mods: tuple[Mod, ...], cache: str) -> None:
    workshop = Workshop(Setting(mods, cache))
    specs = choose_releases(mods, workshop.releases.files(), None)
    tree = workshop.open(specs[-1])
    hybrid = tuple(mod._replace(lock=None) for mod in mods if mod.name == "hybrid-int4-fp8")
    cost(hybrid, specs[:1], cache)  # imports
    single = tuple(made(tree, f"m{i}", [path]) for i, path in enumerate(FILES))
    cost(single, specs[-1:], cache)  # downloads
    print(f"{'n':24}" + "".join(f"{n:>8}" for n in STEPS) + "   CPU s of one process, no lock")
    rows = {
        "n releases, 1 mod": [cost(hybrid, specs[-n:], cache) for n in STEPS],
        "1 release, n mods": [cost(single[:n], specs[-1:], cache) for n in STEPS],
        "1 release, 1 mod, n files": [
            cost((made(tree, f"f{n}", FILES[:n]),), specs[-1:], cache) for n in STEPS
        ],
    }
    for name, values in rows.items():
        print(f"{name:26}" + "".join(f"{value:8.2f}" for value in values))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trees")
    parser.add_argument("--jobs", default=str(len(os.sched_getaffinity(0))))
    given = parser.parse_args()
    library = Library()
    mods = library.select(library.names())
    command = [sys.executable, "-m", "vllm_mods", "matrix", "--jobs", given.jobs]
    with tempfile.TemporaryDirectory() as cache:
        rows = {"matrix, cold": measured(command, cache)}
        rows["matrix, nothing changed"] = measured(command, cache)
        forget_answers(cache)
        rows["matrix, warm: no answer kept"] = measured(command, cache)
        forget_answers(cache)
        rows["matrix --strict, no answer kept, no lock used"] = measured(
            [*command, "--strict"], cache
        )
        if given.trees is not None:
            seconds, count = dry_run_loop(os.path.abspath(given.trees), mods)
            rows[f"{count} times patch --dry-run, extracted trees"] = Run(seconds, 0.0)
        seconds, size = sdists(mods)
        rows[f"downloading the sdists ({size:.0f} MB)"] = Run(seconds, 0.0)
        base = rows["matrix, warm: no answer kept"].seconds
        print(f"{len(mods)} mods; {given.jobs} jobs; {moved(mods):.1f} MB moved by a cold run")
        print(f"{'':48}{'s':>8}{'ratio':>8}{'peak MiB':>10}")
        for name, run in rows.items():
            peak = f"{run.peak:10.0f}" if run.peak else ""
            print(f"{name:48}{run.seconds:8.2f}{run.seconds / base:8.1f}{peak}")
        growth(mods, cache)


if __name__ == "__main__":
    main()
