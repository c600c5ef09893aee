"""Where and as whom a program is run: the situations that a release has to work in, and Pythons for it."""

from __future__ import annotations

import functools
import glob
import json
import os
import shutil
import subprocess
from typing import NamedTuple

NOBODY = 65534


class Python(NamedTuple):
    """An interpreter of this machine: ``minor`` as 3.12, ``base`` the folder it is installed in."""

    path: str
    minor: str
    version: str
    base: str


class Situation(NamedTuple):
    """How a command is started.

    ``script`` is run by bash as root in a mount namespace of its own before the command, which is ``"$@"``
    there; ``user`` says that the tree belongs to an ordinary user, whom the command runs as.
    """

    name: str
    script: str = ""
    flags: tuple[str, ...] = ()
    unset: tuple[str, ...] = ()
    environ: tuple[tuple[str, str], ...] = ()
    network: bool = True
    user: bool = False
    umask: int = 0o022


# What a container has: no git, no network, and a /dev/shm that no code may be loaded from. What is tried
# may lie in there itself, and stays as it is.
_SEALED = """
mount --make-rprivate /
mount --bind "$WORK" "$WORK"
mount -o remount,bind,noexec /dev/shm
for git in $(type -ap git); do mount --bind /dev/null "$git"; done
"""
SITUATIONS = (
    Situation("root"),
    Situation("umask 077", umask=0o077),
    Situation(
        "a user with umask 077, a read-only HOME and cache",
        user=True,
        umask=0o077,
        environ=(("HOME", "/usr"), ("XDG_CACHE_HOME", "/usr"), ("TMPDIR", "/nowhere")),
    ),
    Situation(
        "no git, no network, no HOME",
        unset=("HOME",),
        environ=(("PATH", "/nowhere"),),
        network=False,
    ),
    Situation("TMPDIR noexec", script="mount -t tmpfs -o noexec none /mnt; export TMPDIR=/mnt"),
    Situation(
        "the C locale",
        unset=("LANG",),
        environ=(("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")),
    ),
    Situation("python -I -O -W error", flags=("-I", "-O", "-W", "error")),
    Situation("a container", script=_SEALED, network=False),
    Situation("a container's user", script=_SEALED, network=False, user=True),
)
BY_NAME = {one.name: one for one in SITUATIONS}


@functools.cache
def pythons() -> tuple[Python, ...]:
    """Return the interpreters that can be had here, each once, Debian's beside others."""
    folders = [
        *os.environ.get("PATH", "").split(os.pathsep),
        *sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin"))),
        *("/usr/bin", "/usr/local/bin"),
        *sorted(glob.glob("/opt/python/*/bin")),
    ]
    found: dict[tuple[str, str], Python] = {}
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(glob.escape(folder), "python3*"))):
            one = _python(path)
            if one is not None:
                found.setdefault((one.minor, one.base), one)
    return tuple(sorted(found.values(), key=lambda one: [int(n) for n in one.minor.split(".")]))


def _python(path: str) -> Python | None:
    """Ask an executable; None for a script, another program, a Python in an environment or too old."""
    name = os.path.basename(path)
    if not name.removeprefix("python3").replace(".", "").isdigit() and name != "python3":
        return None
    script = (
        "import json, sys; print(json.dumps(('%d.%d' % sys.version_info[:2], "
        "sys.version.split()[0], sys.base_prefix, sys.prefix)))"
    )
    try:
        done = subprocess.run(
            [path, "-I", "-c", script], capture_output=True, text=True, timeout=30, check=True
        )
        minor, version, base, prefix = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if base != prefix or int(minor.split(".")[1]) < 11:
        return None
    return Python(path, minor, version, base)


def wrapped(situation: Situation, command: list[str], base: str, work: str) -> list[str]:
    """Return the command line that starts a command in a situation.

    ``base`` is the folder of the Python that it needs, ``work`` that of everything else.
    """
    lines = [f"WORK='{work}'", situation.script] if situation.script else []
    if situation.user and (closed := _closed(base)) is not None:
        lines.append(_opened(closed, base))
    start = [_program("setpriv"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    command = [*start, *command] if situation.user else command
    if lines:
        text = "\n".join(("set -e", *lines, 'exec "$@"'))
        command = [_program("unshare"), "--mount", _program("bash"), "-c", text, "bash", *command]
    return command if situation.network else [_program("unshare"), "--net", *command]


def environment(situation: Situation) -> dict[str, str]:
    """Return the variables that a command has in a situation, and none that came from elsewhere."""
    environ = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": "/tmp"} | dict(  # noqa: S108
        situation.environ
    )
    return {name: value for name, value in environ.items() if name not in situation.unset}


def can_be(situation: Situation) -> str:
    """Return why a situation cannot be made here, nothing if it can."""
    needed = [
        *(["unshare"] if situation.script or not situation.network else []),
        *(["setpriv"] if situation.user else []),
    ]
    if needed and os.geteuid() != 0:
        return f"{situation.name}: only root can make it"
    missing = [name for name in needed if shutil.which(name) is None]
    if not missing and "unshare" in needed:
        done = subprocess.run(["unshare", "--mount", "--net", "true"], check=False)
        missing = ["the right to unshare"] if done.returncode else []
    return f"{situation.name}: there is no {missing[0]}" if missing else ""


def _program(name: str) -> str:
    """Return the path of a program: the situation's own PATH may lead nowhere."""
    return shutil.which(name) or name


def _closed(folder: str) -> str | None:
    """Return the outermost folder above that only its owner may enter."""
    parts = folder.split("/")
    for end in range(2, len(parts) + 1):
        place = "/".join(parts[:end])
        if not os.stat(place).st_mode & 0o001:
            return place
    return None


def _opened(closed: str, inner: str) -> str:
    """Return what puts a readable copy of ``closed`` with nothing but ``inner`` in its place."""
    return (
        f"mount --bind '{inner}' /media; mount -t tmpfs none '{closed}'; "
        f"(umask 022; mkdir -p '{inner}'); mount --bind /media '{inner}'; chmod 755 '{closed}'"
    )
