"""A filter of system calls for a process that runs somebody else's code."""

import ctypes
import json
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

from vllm_mods.base import own_process

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The architecture as the kernel's audit names it, and which of the numbers below are its own."""
_CALLS = {
    "read": (0, 63), "write": (1, 64), "close": (3, 57), "fstat": (5, 80), "lseek": (8, 62),
    "mmap": (9, 222), "munmap": (11, 215), "mprotect": (10, 226), "mremap": (25, 216),
    "madvise": (28, 233), "brk": (12, 214), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sigaltstack": (131, 132), "setitimer": (38, 103),
    "sched_yield": (24, 124), "futex": (202, 98), "clock_gettime": (228, 113),
    "clock_getres": (229, 114), "getrandom": (318, 278), "getpid": (39, 172), "gettid": (186, 178),
    "getrusage": (98, 165), "exit": (60, 93), "exit_group": (231, 94),
}  # fmt: skip
_EQUAL = 0x15
_ARCHITECTURE, _NUMBER = (0x20, 0, 0, 4), (0x20, 0, 0, 0)  # are loaded
_ALLOW, _REFUSE = (0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x00050001)  # EPERM
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2


def lock(seconds: int, memory: int, output: int) -> None:
    """Allow so much computing, memory and writing to a file, and nothing else of the kernel from now on.

    Only stdin to stderr are left. Anything but computing, memory and these is ``EPERM``: no file is opened,
    made or removed, no process started or signalled, nothing connected, no limit lifted, by root neither. Raises ``OSError``
    where the kernel has no such filter.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    for what, most in (
        (resource.RLIMIT_FSIZE, output),
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CORE, 0),
    ):
        own_process.limit(what, most)
    machine = platform.machine()
    if machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError(f"no filter of system calls is known for {machine}")
    os.closerange(3, 1 << 16)
    arch, column = _ARCHITECTURES[machine]
    allowed = [numbers[column] for numbers in _CALLS.values()]
    last = len(allowed)
    steps = [
        _ARCHITECTURE,
        (_EQUAL, 1, 0, arch),
        _REFUSE,
        _NUMBER,
        *((_EQUAL, last - i, 0, number) for i, number in enumerate(allowed)),
        _REFUSE,
        _ALLOW,
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    text = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(text)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for given in ((_NO_NEW_PRIVILEGES, 1, 0), (_SECCOMP, _FILTER, ctypes.addressof(program))):
        words = [ctypes.c_ulong(one) for one in (*given, 0, 0)]
        if prctl(ctypes.c_int(words[0].value), *words[1:]):
            raise OSError(ctypes.get_errno(), "the kernel does not support filters of system calls")


def serve(load: Callable[[], list[str]], answer: Callable[[Any], Iterator[Any]]) -> None:
    """Answer the case on stdin, an object of JSON, by lines of JSON on stdout, behind the fence.

    ``load`` imports what is needed, which later is too late, and returns what is not installed: the first line says it, before
    ``answer`` runs any code of somebody else. Where there is no fence, that line says why, and is all.
    """
    case = json.load(sys.stdin)
    missing = load()
    try:
        lock(case["seconds"], case["memory"], case["output"])
    except OSError as error:
        why = "templates run only in a sandbox of the kernel, which is not available"
        _write_line({"error": f"{why}: {error}"})
        return
    _write_line({"missing": missing})
    for line in answer(case):
        _write_line(line)


def _write_line(line: Any) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
