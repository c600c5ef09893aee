"""The first process of the sandbox: it runs the command, ends it at its limits, and returns the files that it wrote.

Standard input has a job (a line of JSON, a tar) and stays open: when it ends, so does every process in here. Standard
output gets one line of JSON, then the contents of the files that it lists.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import time
from typing import Any

_LAYER = "/"
_NOBODY = 65534
_TICK_SECONDS = 0.1
_TAIL_BYTES = 64 << 10
_SURELY = 16  # times its limit: so much of a disk is taken for the command's own, whoever wrote it
_NOT_DUMPABLE = 4, 0  # prctl: nothing in here may trace this process, or use its descriptors
_SKIPPED = {"__pycache__", ".git"}


def main() -> int:
    """Run the job on standard input."""
    if os.getpid() != 1:
        sys.stderr.write("supervise.py runs only as the first process of a sandbox\n")
        return 70
    job = json.loads(sys.stdin.buffer.readline())
    if _LAYER not in job["places"]:  # else it is a container's root, without capabilities
        give_up_root()
    ctypes.CDLL(None).prctl(*_NOT_DUMPABLE, 0, 0, 0)
    unpack_input()
    os.makedirs(job["cwd"], exist_ok=True)
    os.chdir(job["cwd"])
    places = job["places"]
    before = state(places)
    time.sleep(0.02)  # a write after this has another time of change
    answer = run(job, before)
    answer["written"], answer["gone"], answer["odd"] = [], [], []
    if answer["failure"] is None:
        after = state(places)
        changed = sorted(row for row in after.items() if before.get(row[0]) != row[1])
        sizes = [(path, mark[2]) for path, mark in changed if stat.S_ISREG(mark[0])]
        answer["odd"] = [path for path, mark in changed if not stat.S_ISREG(mark[0])]
        answer["gone"] = sorted(before.keys() - after.keys())
        if sum(size for _, size in sizes) > job["bytes"]:
            answer["failure"] = "bytes"
        elif len(changed) > job["files"]:
            answer["failure"] = "files"
        else:
            answer["written"] = sizes
    with open(1, "wb", closefd=False) as out:
        out.write(json.dumps(answer).encode() + b"\n")
        out.writelines(content(path, size) for path, size in answer["written"])
    return 0


def give_up_root() -> None:
    """Become another user than root for good."""
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        os.setresuid(_NOBODY, _NOBODY, _NOBODY)


def unpack_input() -> None:
    """Write the files of a tar, whose names start at the root."""
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        for member in archive:
            place = f"/{member.name}"
            os.makedirs(os.path.dirname(place), exist_ok=True)
            data = archive.extractfile(member)
            with open(place, "wb") as file:
                shutil.copyfileobj(data, file)  # type: ignore[arg-type]  # each is a file
            os.chmod(place, member.mode)


def run(job: dict[str, Any], marks: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Run the command to its end or a limit, end every other process, and say how it went. ``marks`` are of the files before."""
    environ = {**os.environ, **job["environ"]}
    environ["VLLM_MODS_PATH"] = os.environ.get("PATH", os.defpath)
    environ["PATH"] = f"{job['programs']}:{environ['VLLM_MODS_PATH']}"

    def limit() -> None:
        wanted = (
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, job["bytes"]),
            (resource.RLIMIT_DATA, job["memory"]),
            (resource.RLIMIT_NPROC, job["processes"]),
        )
        for kind, most in wanted:
            hard = resource.getrlimit(kind)[1]
            bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (bound, bound))

    reading, writing = os.pipe()
    in_memory = [place for place in job["places"] if place != _LAYER]
    bounds = Bounds(job, in_memory, marks)  # before it can write anything
    try:
        process = subprocess.Popen(
            job["argv"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=writing,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=limit,  # noqa: PLW1509  (there is one thread)
        )
    except OSError as error:
        why = f"{job['argv'][0]}: {error.strerror}"
        return {"failure": None, "code": 127, "output": why, "unreached": 0, "environ": {}}
    os.close(writing)
    failure, code, output = watch(job, process.pid, reading, bounds)
    process.returncode = code
    return {
        "failure": failure,
        "code": code,
        "output": output.decode("utf-8", "replace"),
        "unreached": sends_without_route(),
        "environ": environ,
    }


def watch(job: dict[str, Any], pid: int, out: int, bounds: Bounds) -> tuple[str | None, int, bytes]:
    """Wait for a process; return the limit that it went past, its exit code, and the end of what it printed."""
    end = time.monotonic() + job["seconds"]
    look = time.monotonic()
    sources, tail, printed = [0, out], b"", 0
    failure = code = None
    while code is None and failure is None:
        ready = select.select(sources, [], [], _TICK_SECONDS)[0]
        if 0 in ready and not os.read(0, 1):
            os._exit(75)  # whoever started this is gone
        if out in ready:
            chunk = os.read(out, 1 << 16)
            sources = sources if chunk else [0]
            printed += len(chunk)
            tail = (tail + chunk)[-_TAIL_BYTES:]
        code = ended(pid)
        if printed > job["output"]:
            failure = "output"
        elif time.monotonic() > end:
            failure = "seconds"
        elif time.monotonic() > look:
            failure = bounds.exceeded()
            look = time.monotonic() + _TICK_SECONDS
    with contextlib.suppress(OSError):  # there is none
        os.kill(-1, signal.SIGKILL)  # every process of the sandbox but this one
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    failure = failure or bounds.exceeded()
    os.set_blocking(out, False)
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(out, 1 << 16):
            tail = (tail + chunk)[-_TAIL_BYTES:]
    return failure, 0 if code is None else code, tail


def ended(child: int) -> int | None:
    """Return the exit code of a process that ended, None while it runs; collect all others that ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
            if pid == 0:
                return None
    return None


def usage(places: list[str]) -> tuple[int, int]:
    """Return the bytes and the files that lie in folders, each of which is a file system."""
    systems = [os.statvfs(place) for place in places]
    blocks = sum((one.f_blocks - one.f_bfree) * one.f_frsize for one in systems)
    return blocks, sum(one.f_files - one.f_ffree for one in systems)


class Bounds:
    """What the processes in here may use, beside what was in use before them."""

    def __init__(
        self, job: dict[str, Any], in_memory: list[str], marks: dict[str, tuple[int, ...]]
    ) -> None:
        self.job, self.in_memory, self.marks = job, in_memory, marks
        self.used, self.disk = usage(in_memory), usage([_LAYER])

    def exceeded(self) -> str | None:
        """Return the limit that they are past, None if none."""
        job, now = self.job, usage(self.in_memory)
        written, made = self.on_disk() if _LAYER in job["places"] else (0, 0)
        memory, processes = processes_in_here()
        memory += now[0] - self.used[0]
        past = {
            "bytes": written + now[0] - self.used[0] > job["bytes"],
            "files": made + now[1] - self.used[1] > job["files"],
            "memory": memory > job["memory"],
            "processes": processes > job["processes"],
        }
        return next((name for name in past if past[name]), None)

    def on_disk(self) -> tuple[int, int]:
        """Return the bytes and files that they have on the disk, which others write to, too: it is looked at where those could be theirs."""
        now = usage([_LAYER])
        written, made = now[0] - self.disk[0], now[1] - self.disk[1]
        if written <= self.job["bytes"] and made <= self.job["files"]:
            return 0, 0
        if written > _SURELY * self.job["bytes"]:  # they may hide what they write
            return written, made
        changed = [one for path, one in state([_LAYER]).items() if self.marks.get(path) != one]
        return sum(mark[2] for mark in changed), len(changed)


def processes_in_here() -> tuple[int, int]:
    """Return the memory and the number of the processes in here, but for this one."""
    memory = processes = 0
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            processes += 1
            with contextlib.suppress(OSError), open(f"/proc/{name}/statm") as file:
                memory += int(file.read().split()[1]) * resource.getpagesize()
    return memory, processes


def state(places: list[str]) -> dict[str, tuple[int, ...]]:
    """Return what changes with any write, of all files in the file systems of folders but bytecode and repositories."""
    marks: dict[str, tuple[int, ...]] = {}
    waiting = list(places)
    while waiting:
        folder = waiting.pop()
        if not os.access(folder, os.R_OK | os.X_OK):
            with contextlib.suppress(OSError):  # a folder of the system
                os.chmod(folder, 0o755)  # noqa: S103  (as it was, for nobody else)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # while processes run
            device = os.lstat(folder).st_dev
            for name in os.listdir(folder):
                path = os.path.join(folder, name)
                info = os.lstat(path)
                if not stat.S_ISDIR(info.st_mode):
                    if not name.endswith(".pyc"):
                        marks[path] = (info.st_mode, info.st_ino, info.st_size, info.st_ctime_ns)
                elif name not in _SKIPPED and path not in places and info.st_dev == device:
                    waiting.append(path)
    return marks


def content(path: str, size: int) -> bytes:
    """Return the bytes of a file that no process can change any more."""
    os.chmod(path, 0o600)
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        data = file.read(size)
    return data.ljust(size, b"\0")


def sends_without_route() -> int:
    """Return how often something was to be sent and there was no way: ``OutNoRoutes`` of ip(7)."""
    try:
        with open("/proc/net/snmp") as file:
            rows = [line.split() for line in file if line.startswith("Ip:")]
    except OSError:
        return 0
    return int(rows[1][rows[0].index("OutNoRoutes")]) if len(rows) == 2 else 0


if __name__ == "__main__":
    sys.exit(main())
