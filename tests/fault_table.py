"""Break real commands at every system call that changes the disk, race two of them, print a table.

    python tests/fault_table.py [--sample N] [--interleavings N]

All calls, or a sample of N of each command and fault, drawn anew each time (``sampling``).

The kernel does it: strace (https://strace.io) kills the process at its n-th such call, before the
call is carried out, or lets that call fail; being killed after a call is being killed before the
next, the end of the process included. Then the recovery runs, and bytes, modes, owners, mtimes, link
counts and attributes of the whole tree have to be those of before or of after. Exits with 1 if
they ever are not.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mod_making import diff_of, write_mod
from sampling import SEED, few
from small_site import FILES, Snapshot, build, snapshot

from vllm_mods.cli import run
from vllm_mods.site.transaction import recover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANGING = (
    "openat,open,creat,write,pwrite64,writev,sendfile,copy_file_range,truncate,ftruncate,fallocate,"
    "link,linkat,symlink,symlinkat,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "mknod,mknodat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,"
    "setxattr,lsetxattr,fsetxattr,removexattr,lremovexattr,fremovexattr,exit_group"
)
# An open that makes nothing, the device that makes reading unbuffered, and what is printed.
HARMLESS = re.compile(r"(?:openat|open)\((?!.*O_CREAT)|\w+\([012],")
BUG = 70


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A tree in memory, the copy that it is reset from, and a library of two mods."""

    root: Path
    copy: Path
    library: Path

    def reset(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.copy, self.root, symlinks=True)

    def keep(self) -> None:
        """Make what the tree is now what it is reset to."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.root, self.copy, symlinks=True)

    def now(self) -> Snapshot:
        return snapshot(self.root)

    def command(self, text: str) -> list[str]:
        return [*text.split(), "--target", str(self.root)]


def lay_out(folder: Path) -> Stage:
    """Make the tree and the mods: ``one`` changes, adds and removes, ``two`` goes on top of it."""
    stage = Stage(root=folder / "site", copy=folder / "copy", library=folder / "library")
    build(stage.root)
    text = {path: data.decode() for path, data in FILES.items()}
    gone = "--- a/vllm/sub/c.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-C = 1\n"
    new = "--- /dev/null\n+++ b/vllm/new/deep/d.py\n@@ -0,0 +1 @@\n+D = 1\n"
    patches = {
        "one": diff_of("vllm/a.py", text["vllm/a.py"], "A = 2\n").decode() + gone + new,
        "two": diff_of("vllm/b.py", text["vllm/b.py"], "B = 2\n").decode(),
    }
    for name, patch in patches.items():
        write_mod(stage.library, name, patch.encode())
    os.environ["VLLM_MODS_LIBRARY"] = str(stage.library)
    os.environ["SOURCE_DATE_EPOCH"] = "1700000000"
    stage.keep()
    return stage


def silently(command: list[str]) -> int:
    """Run a command line in this process, a forked child or the parent, and say nothing."""
    null = os.open(os.devnull, os.O_WRONLY)
    streams = os.dup(1), os.dup(2)
    try:
        os.dup2(null, 1)
        os.dup2(null, 2)
        return run(command)
    finally:
        sys.stdout.flush()
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
            os.close(stream)
        os.close(null)


def in_child(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        code = BUG
        try:
            code = work()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def traced(command: list[str], *options: str) -> int:
    """Run a command in a child under strace with these options; return how the child ended."""
    wait, go = os.pipe()
    child = os.fork()
    if child == 0:
        code = BUG
        try:
            os.close(go)
            os.read(wait, 1)
            code = silently(command)
        finally:
            os._exit(code)
    os.close(wait)
    tracer = subprocess.Popen(
        ["strace", "-e", f"trace={CHANGING}", *options, "-p", str(child)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    try:
        for line in tracer.stderr:
            if "attached" in line:
                break
        else:
            os.kill(child, signal.SIGKILL)
            sys.exit("strace could not attach to a child: is ptrace allowed here?")
        os.write(go, b"x")
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(go)
        tracer.communicate()


def points(stage: Stage, command: list[str]) -> tuple[list[tuple[str, int]], Snapshot]:
    """Return the calls that change the disk, and what the tree is after them all.

    A call is named as strace counts: the n-th of its kind, n from 1.
    """
    with tempfile.NamedTemporaryFile("r") as log:
        code = traced(command, "-o", log.name)
        assert code == 0, f"{command} without a fault ended with {code}"
        calls = [line for line in log if re.match(r"\w+\(", line)]
    after = stage.now()
    stage.reset()
    counts: Counter[str] = Counter()
    found = []
    for call in calls:
        kind = call.partition("(")[0]
        counts[kind] += 1
        if not HARMLESS.match(call):
            found.append((kind, counts[kind]))
    return found, after


def broken(stage: Stage, command: list[str], fault: str, sample: int | None) -> Counter[str]:
    """Break a command with one fault at each changing call, or some; count what the tree was then."""
    before = stage.now()
    calls, after = points(stage, command)
    assert before != after
    seen: Counter[str] = Counter()
    if sample is not None:
        calls = few(calls, sample, f"{command[:-1]} {fault}")
    for kind, number in calls:
        code = traced(command, "-o", os.devnull, "-e", f"inject={kind}:{fault}:when={number}")
        if code == BUG:
            seen["bug"] += 1
        if in_child(lambda: recover(str(stage.root)) and 0) != 0:
            seen["not recovered"] += 1
        now = stage.now()
        if now == before:
            # The command that a user runs again has to get there now.
            again = in_child(lambda: silently(command))
            seen["before" if again == 0 and stage.now() == after else "lost"] += 1
        else:
            seen["after" if now == after else "lost"] += 1
        seen["points"] += 1
        stage.reset()
    return seen


# --- two at once ------------------------------------------------------------------------------


class Racer:
    """A forked command that asks before every step that has to do with files."""

    def __init__(self, command: list[str]) -> None:
        asked, self._asks = os.pipe()
        self._goes, go = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = BUG
            try:
                os.close(asked)
                os.close(go)
                sys.addaudithook(self._step)
                code = silently(command)
            finally:
                os._exit(code)
        os.close(self._asks)
        os.close(self._goes)
        self.asked, self.go = asked, go

    def _step(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event == "open" or event.startswith(("os.", "fcntl.")):
            os.write(self._asks, b"?")
            os.read(self._goes, 1)

    def waits(self) -> bool:
        """Wait until it asks; False if it has ended instead."""
        return os.read(self.asked, 1) == b"?"

    def takes_a_step(self) -> bool:
        """Let it, and wait for the next; False if it has ended, perhaps killed."""
        try:
            os.write(self.go, b"!")
        except BrokenPipeError:
            return False
        return self.waits()

    def end(self) -> int:
        os.close(self.asked)
        os.close(self.go)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def race(commands: list[list[str]], draw: random.Random, *, kill: bool) -> list[int]:
    """Run commands at once, one step of a random one after the other; return how each ended.

    A command gets a random number of steps in a row, so that one of them may well get far. With
    ``kill``, the first dies at a random step.
    """
    racers = [Racer(command) for command in commands]
    running = [racer for racer in racers if racer.waits()]
    dies = draw.randrange(1, 150) if kill else 0
    taken = 0
    while running:
        racer = draw.choice(running)
        for _ in range(draw.choice((1, 1, 2, 5, 20, 80))):
            if racer is racers[0]:
                taken += 1
                if taken == dies:
                    os.kill(racer.pid, signal.SIGKILL)
            if not racer.takes_a_step():
                running.remove(racer)
                break
    return [racer.end() for racer in racers]


def races(stage: Stage, count: int) -> Counter[str]:
    """Race pairs of commands; what they leave has to be what they leave one after the other."""
    seen: Counter[str] = Counter()
    draw = random.Random(f"{SEED} races")
    pairs = [
        (before, [stage.command(one), stage.command(other)], kill)
        for before, one, other in (
            ([], "apply one", "apply two"),
            ([], "apply one", "apply one"),
            (["apply one"], "apply two", "revert one"),
            (["apply one two"], "revert", "revert two"),
        )
        for kill in (False, True)
    ]
    pristine = stage.copy.with_name("pristine")
    shutil.copytree(stage.copy, pristine)
    for number, (before, commands, kill) in enumerate(pairs):
        shutil.rmtree(stage.copy)
        shutil.copytree(pristine, stage.copy)
        stage.reset()
        for text in before:
            assert in_child(lambda text=text: silently(stage.command(text))) == 0  # type: ignore[misc]
        stage.keep()
        allowed = list(outcomes(stage, commands))
        for _ in range(count // len(pairs) + (number < count % len(pairs))):
            codes = race(commands, draw, kill=kill)
            seen["races"] += 1
            seen["killed"] += codes[0] == -signal.SIGKILL
            seen["refused"] += 3 in codes
            seen["bug"] += BUG in codes
            if in_child(lambda: recover(str(stage.root)) and 0) != 0:
                seen["not recovered"] += 1
            seen["lost"] += stage.now() not in allowed
            stage.reset()
    return seen


def outcomes(stage: Stage, commands: list[list[str]]) -> Iterator[Snapshot]:
    """Yield what none, each alone, and both in either order leave."""
    yield stage.now()
    for order in (commands[:1], commands[1:], commands, commands[::-1]):
        for command in order:
            in_child(lambda command=command: silently(command))  # type: ignore[misc]
        yield stage.now()
        stage.reset()


def main() -> int:
    parser = argparse.ArgumentParser(description="Break real commands and print what came of it.")
    parser.add_argument("--sample", type=int, help="how many calls of each command and fault")
    parser.add_argument("--interleavings", type=int, default=1000)
    options = parser.parse_args()
    if shutil.which("strace") is None:
        sys.exit("strace is missing: apt-get install strace")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
    print(f"VLLM_MODS_TEST_SEED={SEED} draws the same")
    lost = 0
    row = "{:<28}{:>12}{:>8}{:>11}{:>10}{:>6}{:>6}"
    print(row.format("command", "fault", "points", "as before", "as after", "bugs", "lost"))
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        stage = lay_out(Path(folder))
        for text, first in (
            ("apply one two", None),
            ("revert one", "apply one two"),
            ("revert", "revert one"),
        ):
            if first is not None:
                assert in_child(lambda first=first: silently(stage.command(first))) == 0  # type: ignore[misc]
                stage.keep()
            # what a command imports must not be among its calls
            silently(stage.command(text))
            stage.reset()
            for fault in ("signal=SIGKILL", "error=ENOSPC", "error=EACCES", "error=EIO"):
                seen = broken(stage, stage.command(text), fault, options.sample)
                bad = seen["lost"] + seen["not recovered"]
                lost += bad + seen["bug"]
                name = fault.partition("=")[2]
                shown = seen["points"], seen["before"], seen["after"], seen["bug"], bad
                print(row.format(text, name, *shown), flush=True)
        shutil.rmtree(stage.root)
        build(stage.root)
        stage.keep()
        seen = races(stage, options.interleavings)
    bad = seen["lost"] + seen["not recovered"]
    lost += bad + seen["bug"]
    print(
        f"two at once: {seen['races']} interleavings, one refused in {seen['refused']}, one killed in "
        f"{seen['killed']}, bugs {seen['bug']}, lost {bad}"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
