"""What a process that runs somebody else's code may no more: the kernel says no, whatever the code does."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import struct

_READ_WRITE = ("read", "write", "close", "fstat", "lseek")
_MEMORY = ("mmap", "munmap", "mprotect", "mremap", "madvise", "brk")
_ELSE = (
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "setitimer", "sched_yield", "futex",
    "clock_gettime", "clock_getres", "getrandom", "getpid", "gettid", "getrusage", "exit", "exit_group",
)  # fmt: skip
_NUMBERS = {
    "x86_64": (
        0xC000003E,
        (0, 1, 3, 5, 8),
        (9, 11, 10, 25, 28, 12),
        (13, 14, 15, 131, 38, 24, 202, 228, 229, 318, 39, 186, 98, 60, 231),
    ),
    "aarch64": (
        0xC00000B7,
        (63, 64, 57, 80, 62),
        (222, 215, 226, 216, 233, 214),
        (134, 135, 139, 132, 103, 124, 98, 113, 114, 278, 172, 178, 165, 93, 94),
    ),
}
"""The architecture as the kernel's audit names it, and the numbers of the calls above, in their order."""
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001  # EPERM
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
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None or struct.calcsize("P") != 8:
        raise OSError(f"no filter of system calls is known for {platform.machine()}")
    os.closerange(3, 1 << 16)
    arch, *calls = numbers
    allowed = [number for some in calls for number in some]
    last = len(allowed)
    steps = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, arch),
        (_RETURN, 0, 0, _REFUSE),
        (_LOAD, 0, 0, 0),
        *((_EQUAL, last - i, 0, number) for i, number in enumerate(allowed)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *step) for step in steps)
    text = ctypes.create_string_buffer(code, len(code))
    program = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(text)))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for given in ((_NO_NEW_PRIVILEGES, 1, 0), (_SECCOMP, _FILTER, ctypes.addressof(program))):
        words = [ctypes.c_ulong(one) for one in (*given, 0, 0)]
        if prctl(ctypes.c_int(words[0].value), *words[1:]):
            raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")
