"""What keeps files from being replaced though their modes allow it: mounts, attributes, limits. Reads only."""

import errno
import fcntl
import os
import re
import sys
from collections.abc import Iterable

from vllm_mods.base.errors import Refused

_MOUNTS = "/proc/self/mountinfo"
# FS_IOC_GETFLAGS of linux/fs.h, and the two flags that chattr(1) calls by these letters
_GET_FLAGS = 0x40086601 if os.uname().machine.startswith(("ppc", "mips", "sparc")) else 0x80086601
_FLAGS = {"i": 0x10, "a": 0x20}
_HINTS = {
    errno.ENOSPC: "df -h {root}  # free some space, then run the command again",
    errno.EDQUOT: "quota -s  # free some space, then run the command again",
    errno.EROFS: "the file system is mounted read-only: findmnt -T {root}",
    errno.EACCES: "run as the owner of the tree: stat -c %U {root}",
    errno.EPERM: "run as the owner of the tree, or root: stat -c %U {root}",
    errno.EBUSY: "findmnt -T {root}  # is something mounted there?",
    errno.EIO: "the disk fails: dmesg | tail",
    errno.EMFILE: "ulimit -Hn 65536; ulimit -n 65536  # as root; of a container: --ulimit nofile=65536",
    errno.ENFILE: "sysctl fs.file-nr  # the system has no more open files to give",
    errno.EAGAIN: "ulimit -u; cat /sys/fs/cgroup/pids.max  # there may be no more processes or threads",
}


def check(files: Iterable[str], folders: Iterable[str]) -> None:
    """Raise ``Refused`` if a file or folder to be replaced or removed, or a folder whose entries change, cannot be.

    ``files`` are absolute paths without links of what is there, and of folders that are to go;
    ``folders`` of those around them.
    """
    mounts = _mount_points()
    for place in files:
        _refuse(place, _mounted(place, mounts) or _attributes(place))
    for place in folders:
        _refuse(place, _read_only(place) or _attributes(place))


def hint(error: OSError, place: str, root: str) -> str:
    """Return the command that helps after an error at a place: by what is in the way there, else by its number."""
    if error.errno in {errno.EPERM, errno.EBUSY, errno.EROFS, errno.EACCES}:
        obstacle = _mounted(place, _mount_points())
        for path in (place, os.path.dirname(place)):
            obstacle = obstacle or _attributes(path) or _read_only(path)
        if obstacle is not None:
            return obstacle[1]
    return _HINTS.get(error.errno or 0, "ls -la {root}").format(root=root)


def refusal(root: str, error: OSError, outcome: str = "nothing was changed") -> Refused:
    """Say what was in the way of reading or writing a tree."""
    place = error.filename2 or error.filename or root
    return Refused(f"{place}: {error.strerror}; {outcome}", hint=hint(error, str(place), root))


def _refuse(place: str, obstacle: tuple[str, str] | None) -> None:
    if obstacle is not None:
        what, help_ = obstacle
        raise Refused(f"{place} {what}; nothing was changed", hint=help_)


def _mount_points() -> frozenset[str]:
    """Return where something is mounted (proc_pid_mountinfo(5)); nothing where /proc is not."""
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            names = [line.split(" ")[4] for line in file]
    except OSError:
        return frozenset()
    return frozenset(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), one) for one in names)


def _mounted(place: str, mounts: frozenset[str]) -> tuple[str, str] | None:
    if place not in mounts:
        return None
    why = "is a mount point: it can be neither replaced nor removed"
    return why, f"umount {place}  # or start the container without that volume"


def _read_only(place: str) -> tuple[str, str] | None:
    try:
        flags = os.statvfs(place).f_flag
    except OSError:
        return None  # what is not there is no obstacle
    obstacle = ("is on a file system that is mounted read-only", f"findmnt -T {place}")
    return obstacle if flags & os.ST_RDONLY else None


def _attributes(place: str) -> tuple[str, str] | None:
    """Look for the attributes that even root's writes heed; file systems without any have none."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        flags = int.from_bytes(fcntl.ioctl(descriptor, _GET_FLAGS, bytes(8))[:4], sys.byteorder)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    letters = "".join(letter for letter, flag in _FLAGS.items() if flags & flag)
    obstacle = (f"has the attribute +{letters} (lsattr)", f"chattr -{letters} {place}")
    return obstacle if letters else None
