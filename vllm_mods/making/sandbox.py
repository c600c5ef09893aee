"""A command in a root of its own: a user, mount, process and (unless asked for) network namespace.

It sees the system's programs and libraries, which it cannot write, and a few folders that it can; nothing else
of the machine is there: no home, no other packages, no processes, no network. It has no capabilities. What is not
kept apart: the kernel itself, the processor and the memory it may use, the clock. util-linux does the work
(``unshare``, ``mount``, ``pivot_root``, ``setpriv``).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import Refused

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "group", "host.conf", "hosts"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf"),
    *("passwd", "pki", "protocols", "resolv.conf", "services", "ssl"),
)
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FLAGS = (
    (os.ST_NOSUID, "nosuid"),
    (os.ST_NODEV, "nodev"),
    (os.ST_NOEXEC, "noexec"),
    (os.ST_NOATIME, "noatime"),
    (os.ST_NODIRATIME, "nodiratime"),
    (os.ST_RELATIME, "relatime"),
)
_SBIN = "/usr/sbin:/sbin"
_LARGEST_FILE = 1 << 22  # blocks of 512 bytes


class Ran(NamedTuple):
    """A command that ended: its exit code and what it printed, both streams together.

    ``unreached`` says that it tried to reach a network that it had not got.
    """

    code: int
    output: str
    unreached: bool = False


def run(
    argv: Sequence[str],
    folders: Mapping[str, str],
    *,
    cwd: str,
    environ: Mapping[str, str],
    root: str,
    network: bool,
    seconds: float,
) -> Ran:
    """Run a command that may write to ``folders`` only: where each appears, and where it lies.

    ``root`` is an empty folder to build its root in. Raises ``Refused`` where this machine does not
    allow it, and for a command that takes longer than ``seconds``.
    """
    ready = secrets.token_hex(8)
    script = "\n".join(
        ["set -eu", *map(shlex.join, _mounts(folders, root)), *_entering(root, cwd, ready)]
    )
    spaces = ["--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts"]
    spaces += ["--kill-child"] if network else ["--kill-child", "--net"]
    command = ["unshare", *spaces, "--", "/bin/sh", "-c", script, "sh", *argv]
    path = f"{os.defpath}:{_SBIN}:{sys.base_prefix}/bin"
    first = f"{environ['PATH']}:" if "PATH" in environ else ""
    paths = {"PATH": first + path, "VLLM_MODS_PATH": path}
    code, said = _waited(command, {**environ, **paths}, seconds)
    before, token, after = said.partition(f"{ready}\n")
    after, _, routes = after.rpartition(f"{ready} ")
    if not token:
        why = before.strip().rpartition("\n")[2] or f"exit code {code}"
        raise Refused(
            f"a command is run only where it cannot touch this machine, and that cannot be had here: {why}",
            hint="where user namespaces are allowed: docker run --privileged, or kernel.unprivileged_userns_clone=1; "
            "or run it on a copy yourself, and vllm-mods new NAME --from-trees OLD NEW",
        )
    return Ran(code, after, unreached=routes.strip() not in {"", "0"})


def _waited(command: Sequence[str], environ: Mapping[str, str], seconds: float) -> tuple[int, str]:
    try:
        with subprocess.Popen(
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=seconds)
            except BaseException as error:
                # the first process of the namespace goes with it, and so does every other one
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                if isinstance(error, subprocess.TimeoutExpired):
                    raise Refused(
                        f"the command did not end within {seconds:g} s: nothing was written",
                        hint="--timeout SECONDS",
                    ) from error
                raise
            return process.returncode, out.decode("utf-8", "replace")
    except FileNotFoundError as error:
        raise Refused(
            "there is no `unshare`, and without it no command is run",
            hint="apt-get install util-linux",
        ) from error


def _mounts(folders: Mapping[str, str], root: str) -> Iterator[list[str]]:
    """Yield the commands that build the root."""
    yield ["mount", "-t", "tmpfs", "-o", "mode=755,size=16m", "none", root]
    for name in _SYSTEM:
        yield from _shown(f"/{name}", root)
    yield ["mkdir", f"{root}/etc", f"{root}/dev", f"{root}/proc", f"{root}/.before"]
    for name in _SETTINGS:
        yield from _shown(f"/etc/{name}", root)
    for name in _DEVICES:
        yield from _bound(f"/dev/{name}", f"{root}/dev/{name}", read_only=False)
    for name, target in (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        yield ["ln", "-s", f"/proc/self/{target}", f"{root}/dev/{name}"]
    for place, source in sorted(folders.items()):
        yield from _grafted(place, root)
        yield ["mount", "--bind", source, root + place]
    if not sys.base_prefix.startswith("/usr"):
        yield ["mkdir", "-p", root + sys.base_prefix]
        yield from _bound(sys.base_prefix, root + sys.base_prefix)


def _entering(root: str, cwd: str, ready: str) -> Iterator[str]:
    """Yield the lines that go into the root and give up what it took to build it."""
    yield f"mount -t proc proc {shlex.quote(root)}/proc 2>/dev/null || :"
    yield f"cd {shlex.quote(root)}"
    yield "pivot_root . .before"
    yield "cd /"
    yield "umount -l /.before"
    yield "rmdir /.before"
    yield "mount -o remount,ro,bind /"
    yield f"cd {shlex.quote(cwd)}"
    yield f"ulimit -f {_LARGEST_FILE}"
    yield f"echo {ready}"
    yield "set +e"
    yield 'setpriv --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"'
    yield "code=$?"
    # how often there was no way to where something was to be sent: row 2, OutNoRoutes of ip(7)
    yield f"awk '/^Ip: [0-9]/ {{ print \"{ready} \" $13 }}' /proc/net/snmp || echo '{ready} '"
    yield "exit $code"


def _shown(path: str, root: str) -> Iterator[list[str]]:
    """Yield what makes a file or folder of the system seen, and not written."""
    if os.path.islink(path):
        target = os.readlink(path)
        if path.startswith("/etc/") and os.path.isfile(path):
            yield from _bound(os.path.realpath(path), root + path)  # such as resolv.conf in /run
        else:
            yield ["ln", "-s", target, root + path]
    elif os.path.exists(path):
        yield from _bound(path, root + path)


def _bound(source: str, target: str, *, read_only: bool = True) -> Iterator[list[str]]:
    yield ["mkdir", "-p", target] if os.path.isdir(source) else ["touch", target]
    yield ["mount", "--rbind", source, target]
    if not read_only:
        return
    for mount in _mounted(source):
        # a flag that the mount has may not be taken from it here, and so is named again
        had = os.statvfs(mount).f_flag
        flags = [name for flag, name in _FLAGS if had & flag]
        options = ",".join(["remount", "bind", "ro", *flags])
        yield ["mount", "-o", options, target + mount.removeprefix(source)]


def _mounted(path: str) -> list[str]:
    """Return a path and every mount point below it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = {line.split()[4].encode().decode("unicode_escape") for line in file}
    return [path, *sorted(point for point in points if point.startswith(f"{path}/"))]


def _grafted(place: str, root: str) -> Iterator[list[str]]:
    """Yield what makes a place for a folder, also among those of the system, which stay seen."""
    there = place
    while not os.path.isdir(there):
        there = os.path.dirname(there)
    inside = there.split("/")[1] in _SYSTEM
    if there != place and inside:
        yield ["mount", "-t", "tmpfs", "-o", "mode=755,size=1m", "none", root + there]
        for name in sorted(os.listdir(there)):
            yield from _shown(os.path.join(there, name), root)
    if there != place or not inside:
        yield ["mkdir", "-p", root + place]
    if there != place and inside:
        yield ["mount", "-o", "remount,ro,bind", root + there]
