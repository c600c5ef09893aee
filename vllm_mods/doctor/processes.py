"""Processes that run the code of a tree, as far as Linux tells."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING

from vllm_mods.doctor.facts import Process

if TYPE_CHECKING:
    from collections.abc import Iterator

PROC = "/proc"


def running(root: str, since: float | None, proc: str = PROC) -> tuple[Process, ...]:
    """Return the processes that have mapped a file of ``<root>/vllm``, such as its extensions.

    Python's own source files are not mapped, so a process that loaded none of vLLM's extensions is not
    seen, nor one that belongs to somebody else, nor one in a container: its paths are others. ``since`` is when the mods went in.
    """
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return tuple(_processes(root, since, boot, proc))


def _processes(root: str, since: float | None, boot: float, proc: str) -> Iterator[Process]:
    wanted = re.compile(re.escape(f" {root}/vllm/") + r".*")
    for pid in sorted((name for name in _names(proc) if name.isdigit()), key=int):
        match = wanted.search(_read(f"{proc}/{pid}/maps"))
        if match is None or _space(proc, pid) != _space(proc, "self"):
            continue
        # pid (comm) state …: the name may hold spaces and parentheses (proc(5))
        head, _, tail = _read(f"{proc}/{pid}/stat").rpartition(")")
        fields = tail.split()
        if len(fields) < 20:
            continue  # it has just ended
        started = boot + int(fields[19]) / os.sysconf("SC_CLK_TCK")
        yield Process(
            pid=int(pid),
            name=head.partition("(")[2],
            file=match[0].strip().removesuffix(" (deleted)"),
            stale=since is not None and started < since,
        )


def _space(proc: str, pid: str) -> str | None:
    """Return the mount namespace of a process, None where it may not be known."""
    try:
        return os.readlink(f"{proc}/{pid}/ns/mnt")
    except OSError:
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str:
    """Return a file of ``/proc``, empty where it may not be read or is gone by now."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""
