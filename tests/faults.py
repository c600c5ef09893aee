"""Fail, or die, at the n-th call that changes a file system.

``at`` wraps the functions of ``os`` in this process; use it in a child made by ``in_child``.
"""

from __future__ import annotations

import gc
import mmap
import os
import signal
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CHANGING = (
    "open",
    "write",
    "link",
    "replace",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "utime",
    "chown",
    "fchown",
    "chmod",
    "fchmod",
    "setxattr",
    "removexattr",
    "fsync",
)
NEED_SPACE = ("open", "write", "link", "mkdir", "setxattr")
DONE, REFUSED, NOT_RESTORED, OTHER = 0, 3, 4, 9


def at(
    number: int,
    fault: Callable[[], None],
    names: tuple[str, ...] = CHANGING,
    *,
    sync: bool = False,
    tell: Callable[[int], None] | None = None,
) -> None:
    """From now on run ``fault`` just before the ``number``-th changing call of this process.

    Half of what is to be written is, if that call is a write. Only with ``sync`` are files synced.
    ``tell`` is told the number of each.
    """
    calls = 0

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            calls += 1
            if tell is not None:
                tell(calls)
            if calls == number:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                fault()
            # a sync changes nothing that another process could see, and is slow
            return None if name == "fsync" and not sync else real(*args, **kwargs)

        setattr(os, name, wrapped)

    for name in names:
        wrap(name)


def calls(work: Callable[[], object], names: tuple[str, ...] = CHANGING) -> int:
    """Return how many changing calls ``work`` makes, carried out in a forked child without a fault."""
    seen = mmap.mmap(-1, 4)

    def tell(number: int) -> None:
        seen[:] = number.to_bytes(4)

    def counted() -> None:
        at(0, kill, names, tell=tell)
        work()

    code = in_child(counted)
    assert code == DONE, code
    return int.from_bytes(seen[:])


def from_then_on(number: int, error: OSError, names: tuple[str, ...] = NEED_SPACE) -> None:
    """Let every call of these kinds fail from the ``number``-th one on, as on a full disk."""
    calls = 0

    def wrap(name: str) -> None:
        real = getattr(os, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            if name == "open" and not args[1] & os.O_CREAT:
                return real(*args, **kwargs)
            calls += 1
            if calls >= number:
                raise error
            return None if name == "fsync" else real(*args, **kwargs)

        setattr(os, name, wrapped)

    for name in names:
        wrap(name)


def power_cut(number: int, folders: Sequence[Path], names: tuple[str, ...] = CHANGING) -> None:
    """Die at the ``number``-th changing call, as by a power cut that takes all that it may.

    Names, links and removals are there in the order they were made, as journalling file systems
    keep them; of a file that was written and not synced since, the content is not.
    """
    unsynced: set[tuple[int, int]] = set()
    write, sync = os.write, os.fsync

    def noted_write(descriptor: int, data: bytes) -> int:
        info = os.fstat(descriptor)
        unsynced.add((info.st_dev, info.st_ino))
        return write(descriptor, data)

    def noted_sync(descriptor: int) -> None:
        info = os.fstat(descriptor)
        unsynced.discard((info.st_dev, info.st_ino))
        sync(descriptor)

    def cut() -> None:
        for path in [path for folder in folders for path in folder.rglob("*")]:
            info = path.lstat()
            if (info.st_dev, info.st_ino) in unsynced:
                path.write_bytes(b"")
        kill()

    os.write, os.fsync = noted_write, noted_sync  # type: ignore[assignment]
    at(number, cut, names, sync=True)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raising(error: BaseException) -> Callable[[], None]:
    def fault() -> None:
        raise error

    return fault


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child. Return minus the signal it died of, or one of the codes."""
    from vllm_mods.base.errors import NotRestored, Refused

    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        gc.disable()  # what the parent left to collect may remove files, and its calls would count
        code = OTHER
        try:
            work()
            code = DONE
        except Refused:
            code = REFUSED
        except NotRestored:
            code = NOT_RESTORED
        except BaseException:  # noqa: BLE001  (told to the parent by the exit code)
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
