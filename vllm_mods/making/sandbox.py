"""A command apart from this machine: in bubblewrap, or in a container of an image.

Either way it has no capabilities and no network. In bubblewrap it is nobody, sees the system's programs read-only, and
writes to a few folders in memory. In a container it is root, as launchers run it, and writes to the container's own
layer, too. ``inside/supervise.py`` is the first process in there: it holds the limits, and ends everything when this
process ends.
"""

import contextlib
import io
import itertools
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused

_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "usr")
_SETTINGS = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "group", "host.conf", "hosts"),
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "nsswitch.conf"),
    *("passwd", "pki", "protocols", "resolv.conf", "services", "ssl"),
)
_KERNEL = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")
"""What is read-only in containers, too: the settings of the kernel that all share."""
_ISOLATION = (
    *("--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--as-pid-1", "--new-session", "--cap-drop", "ALL"),
)
LAYER = "/"
"""The place of a container that is on disk: all of it that is no other place."""
_NOBODY = "65534"
_PATH = f"{os.defpath}:/usr/sbin:/sbin"
_INSIDE = Path(__file__).parent / "inside"
_START_SECONDS = 60  # for an engine to start a container, beyond the time that the command has
_BY_HAND = "run it on a copy of the tree, then vllm-mods new NAME --from-trees OLD NEW"
_ANSWER = 64 << 20  # bytes: the line with the names of files


class ImageInEngine(NamedTuple):
    """An image, and the engine that has it: ``docker`` or ``podman``."""

    engine: str
    image: str


class SandboxJob(NamedTuple):
    """A command, the absolute paths of the files that it finds, and the folders that it may write to: in memory, but for ``LAYER``."""

    argv: Sequence[str]
    cwd: str
    environ: Mapping[str, str]
    files: Mapping[str, bytes]
    places: Sequence[str]
    programs: str
    """The folder of programs that are found before all others."""
    seconds: float


class Ran(NamedTuple):
    """What a command did: its exit code, the end of what it printed, and the files that it left, by absolute path.

    ``odd`` are links and whatever else is not a regular file; ``unreached`` is how often it tried to reach a network
    that it had not got.
    """

    code: int
    output: str
    written: dict[str, bytes]
    gone: tuple[str, ...]
    odd: tuple[str, ...]
    unreached: int
    environ: dict[str, str]
    """The variables that it was started with, those of the image included."""


def program(name: str) -> bytes:
    """Return a program that runs in the sandbox."""
    return (_INSIDE / name).read_bytes()


def run(job: SandboxJob, container: ImageInEngine | None = None) -> Ran:
    """Run a job to its end. Raises ``Refused`` where no sandbox is to be had, and for a command that is past a limit."""
    start = _bubblewrap(job) if container is None else [*_engine(job, container)]
    environ = None
    if container is None:
        environ = {"PATH": f"{_PATH}:{sys.base_prefix}/bin" if _system_python() is None else _PATH}
    supervisor = program("supervise.py").decode()
    with tempfile.TemporaryFile() as errors:
        answer = _exchange([*start, "-I", "-c", supervisor], job, environ, errors)
        errors.seek(0)
        lines = errors.read(limits.STDERR).decode("utf-8", "replace").strip().splitlines()
    head, newline, contents = answer.partition(b"\n")
    if not newline:
        why = lines[-1] if lines else "it ended before the command did"
        if container is None:
            why = f"the command needs a sandbox, and bubblewrap does not start here: {why}"
            hint = "--image REF runs the command in a container; or run it on a copy of the tree, then vllm-mods new NAME --from-trees OLD NEW"
            raise Refused(why, hint=hint)
        why = f"{container.engine} cannot run a command in {container.image}: {why}"
        hint = f"{container.engine} run --rm --entrypoint python3 {container.image} --version"
        raise Refused(why, hint=hint)
    return _read(json.loads(head), contents, job)


def _exchange(
    command: Sequence[str], job: SandboxJob, environ: Mapping[str, str] | None, errors: IO[bytes]
) -> bytes:
    sent = job._replace(files={})._asdict() | {
        "bytes": limits.RECORDED_BYTES,
        "files": limits.RECORDED_FILES,
        "memory": limits.RECORDED_MEMORY,
        "output": limits.RECORDED_OUTPUT,
        "processes": limits.RECORDED_PROCESSES,
    }
    process = subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
    )
    last = threading.Timer(job.seconds + _START_SECONDS, process.kill)
    last.start()
    assert process.stdin is not None  # noqa: S101  (it is a pipe)
    assert process.stdout is not None  # noqa: S101
    try:
        with contextlib.suppress(BrokenPipeError):  # standard error says why
            process.stdin.write(json.dumps(sent).encode() + b"\n" + _packed(job))
            process.stdin.flush()
        with process.stdout as out:
            return out.read(_ANSWER + limits.RECORDED_BYTES)
    finally:
        last.cancel()
        process.kill()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()


def _packed(job: SandboxJob) -> bytes:
    """Return the files of a job as a tar; scripts can be run."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, data in job.files.items():
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size = len(data)
            member.mode = 0o755 if data.startswith(b"#!") or path.endswith(".sh") else 0o644
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def _read(answer: dict[str, Any], contents: bytes, job: SandboxJob) -> Ran:
    """Read the supervisor's answer, which a command may have forged: no path in it leads elsewhere."""
    other = " (or another program did, on the disk of the engine)" if LAYER in job.places else ""
    past = {
        "seconds": f"the command did not end within {job.seconds:g} s",
        "bytes": f"the command wrote more than {limits.RECORDED_BYTES}{other}",
        "files": f"the command made more than {limits.RECORDED_FILES}{other}",
        "memory": f"the command took more than {limits.RECORDED_MEMORY} of memory",
        "output": f"the command printed more than {limits.RECORDED_OUTPUT}",
        "processes": f"the command started more than {limits.RECORDED_PROCESSES} at a time",
    }
    if (failure := answer["failure"]) is not None:
        hint = "--timeout SECONDS" if failure == "seconds" else _BY_HAND
        raise Refused(f"{past[str(failure)]}; no mod was made", hint=hint)
    written: dict[str, bytes] = {}
    start = 0
    for path, size in answer["written"]:
        written[_checked(path, job)] = contents[start : start + size]
        start += size
    return Ran(
        code=int(str(answer["code"])),
        output=str(answer["output"]),
        written=written,
        gone=tuple(_checked(path, job) for path in answer["gone"]),
        odd=tuple(_checked(path, job) for path in answer["odd"]),
        unreached=int(answer["unreached"]),
        environ=answer["environ"],
    )


def _checked(path: str, job: SandboxJob) -> str:
    inside = any(path.startswith(f"{place.rstrip('/')}/") for place in job.places)
    if inside and os.path.normpath(path) == path:
        return path
    why = f"{path!r} is outside the folders that the command may write to"
    raise Refused(why, hint="ask the author of the command; no mod was made")


def _bubblewrap(job: SandboxJob) -> list[str]:
    """Return the words that start Python in bubblewrap. Raises ``Refused`` where it is not installed."""
    program = shutil.which("bwrap")
    if program is None:
        why = "bubblewrap (bwrap) is not installed, and the command runs only in a sandbox"
        raise Refused(why, hint="apt-get install bubblewrap; or in a container: --image REF")
    python = _system_python() or f"{sys.base_prefix}/bin/python3"
    user = ["--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY]
    if os.getuid() == 0:  # the supervisor becomes nobody with these, and has none then
        user = ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [program, *_ISOLATION, *user, *_file_systems(job), "--", python]


def _file_systems(job: SandboxJob) -> Iterator[str]:
    """Yield what makes the root: the system read-only, the places in memory."""
    for name in _SYSTEM:
        yield from _shown(f"/{name}")
    yield from ("--dir", "/etc")
    for name in _SETTINGS:
        yield from ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    yield from ("--proc", "/proc")
    for path in _KERNEL:
        yield from ("--ro-bind-try", path, path)
    yield from ("--dev", "/dev", "--remount-ro", "/dev")
    for place in job.places:
        above = place
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        hidden = above != place and above.split("/")[1] in _SYSTEM
        if hidden:  # there is nothing to put the place on: what is beside it is shown in memory
            yield from ("--tmpfs", above)
            for name in sorted(os.listdir(above)):
                yield from _shown(os.path.join(above, name))
        yield from _folders(above, place)
        yield from ("--perms", "0777", "--tmpfs", place)
        yield from ("--remount-ro", above) if hidden else ()
    if _system_python() is None:
        yield from _folders("/", sys.base_prefix)
        yield from ("--ro-bind", sys.base_prefix, sys.base_prefix)
    yield from ("--remount-ro", "/")


def _folders(above: str, path: str) -> Iterator[str]:
    """Yield what makes the folders between two, for everybody to enter: bubblewrap makes them for their owner."""
    ends = {Path(above), Path("/")}
    for folder in reversed([*itertools.takewhile(lambda one: one not in ends, Path(path).parents)]):
        yield from ("--dir", str(folder))


def _shown(path: str) -> Iterator[str]:
    if os.path.islink(path):
        yield from ("--symlink", os.readlink(path), path)
    elif os.path.exists(path):
        yield from ("--ro-bind", path, path)


def _system_python() -> str | None:
    """Return the Python of the system; None if it has none, and this one is shown."""
    return shutil.which("python3", path=_PATH)


def _engine(job: SandboxJob, container: ImageInEngine) -> Iterator[str]:
    """Yield the words that start Python in a container of an image that the engine has."""
    yield from (container.engine, "run", "--rm", "--interactive", "--pull", "never")
    yield from ("--log-driver", "none", "--user", "0:0")
    yield from ("--cap-drop", "ALL", "--security-opt", "no-new-privileges")
    yield from ("--network", "none", "--pids-limit", str(int(limits.RECORDED_PROCESSES)))
    # what lies in its file systems in memory is counted with it
    memory = str(limits.RECORDED_MEMORY + limits.RECORDED_BYTES)
    yield from ("--memory", memory, "--memory-swap", memory)
    options = f"exec,size={int(limits.RECORDED_BYTES)}"
    options += ",notmpcopyup" if container.engine == "podman" else ""
    for place in job.places:
        yield from ("--tmpfs", f"{place}:{options}") if place != LAYER else ()
    yield from ("--workdir", "/", "--entrypoint", "python3", container.image)
