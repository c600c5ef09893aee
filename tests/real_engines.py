"""Real engines for tests: a dockerd, a buildah storage and a registry of their own, for one session.

What is not installed is a reason to skip, said as such; where the variable CI is set it fails.
Nothing of the machine's own engines is touched, and nothing is pulled: the base image is made of
the Python that runs the tests. The fixtures are in ``engines/conftest.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from making_images import Image, Thing, layer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REAL = "0.21.0"
"""The vLLM release of the tests that need a real one."""
USER, PASSWORD = "somebody", "secret"
# bcrypt of the password above: the only kind that the registry takes.
_HTPASSWD = f"{USER}:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a\n"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
SITE = f"usr/local/lib/python{VERSION}/site-packages"
LEFT_OUT = {
    "__pycache__", "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip",
    "lib2to3", "turtledemo",
}  # fmt: skip


def need(*tools: str) -> None:
    """Skip, or in CI fail, where a tool is not installed."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if not missing and os.geteuid() == 0:
        return
    why = f"not installed: {', '.join(missing)}" if missing else "engines are started by root only"
    if os.environ.get("CI"):
        pytest.fail(why)
    pytest.skip(why)


class Engine(NamedTuple):
    """An engine of the tests' own. ``environ`` makes command-line tools and this tool use it."""

    tool: str
    environ: dict[str, str]
    log: Path

    def __call__(self, *arguments: object, check: bool = True) -> str:
        """Run the tool and return what it printed."""
        done = subprocess.run(
            [self.tool, *map(str, arguments)],
            env={**os.environ, **self.environ},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        if check and done.returncode:
            raise AssertionError(f"{self.tool} {arguments}: {done.stdout}{done.stderr}")
        return done.stdout.strip()


class started:  # noqa: N801  (reads as what it does)
    """A dockerd in a folder, for a ``with``; ``kill`` ends it at once."""

    def __init__(self, folder: Path, *, bridge: str = "none") -> None:
        # A socket's path may have 107 letters, and pytest's folders are long.
        self.socket = f"/tmp/vm-{os.getpid()}-{folder.name}.sock"  # noqa: S108
        self.folder = folder
        self.log = folder / "log"
        arguments = [
            "dockerd", "--data-root", f"{folder}/data", "--exec-root", f"{folder}/exec",
            "--pidfile", f"{folder}/pid", "-H", f"unix://{self.socket}", "--storage-driver", "overlay2",
            "--iptables=false", "--ip6tables=false", "--ip-masq=false", f"--bridge={bridge}",
            "--ip-forward=false",
        ]  # fmt: skip
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)

    def __enter__(self) -> Engine:
        environ = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_BUILDKIT": "0"}
        engine = Engine("docker", environ, self.log)
        wait(lambda: "Server" in engine("version", check=False), self.process, self.log)
        return engine

    def __exit__(self, *_error: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(30)
        # One that was killed leaves its containerd, and its data mounted on itself.
        child = self.folder / "exec/containerd/containerd.pid"
        if child.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child.read_text()), signal.SIGTERM)
        for left in (
            "data",
            "exec/netns/default",
        ):  # the latter where a container had the host's network
            subprocess.run(["umount", "-q", "-l", self.folder / left], check=False)
        Path(self.socket).unlink(missing_ok=True)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)


class Registry(NamedTuple):
    """A registry on loopback."""

    host: str
    folder: Path
    log: Path


def served(folder: Path, *, login: bool) -> Iterator[Registry]:
    need("docker-registry", "skopeo")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{probe.getsockname()[1]}"
    (folder / "htpasswd").write_text(_HTPASSWD)
    settings = folder / "config.yml"
    settings.write_text(
        f"version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {folder}/data\n"
        f"http:\n  addr: {host}\n"
        + (f"auth:\n  htpasswd:\n    realm: here\n    path: {folder}/htpasswd\n" if login else "")
    )
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["docker-registry", "serve", str(settings)], stdout=output, stderr=output
        )
    try:
        wait(lambda: _answers(host), process, log)
        yield Registry(host, folder, log)
    finally:
        process.terminate()
        process.wait(30)


def _answers(host: str) -> bool:
    name, _, port = host.rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((name, int(port))) == 0


def wait(ready: object, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(300):
        if callable(ready) and ready():
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    pytest.fail(f"it did not start:\n{log.read_text(errors='replace')[-2000:]}")


def libraries(binaries: list[str]) -> set[str]:
    told = subprocess.run(["ldd", *binaries], capture_output=True, text=True, check=False).stdout
    words = (word for line in told.splitlines() for word in line.split())
    return {word for word in words if word.startswith("/") and ".so" in word and word[-1] != ":"}


def base(python: bytes, site: Mapping[str, Thing], name: str) -> Image:
    """Return a base image: Python, and in its site-packages what ``site`` holds."""
    things = {f"{SITE}/{path}": thing for path, thing in site.items()}
    settings = {
        "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
        "Cmd": ["python3"],
        "Labels": {"made.by": "the tests"},
    }
    return Image([python, layer(things)], settings, name)
