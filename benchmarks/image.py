"""Time ``vllm-mods build`` beside the engines' own builds of the same mods, in one run, on bases of three sizes.

    python benchmarks/image.py [--gigabytes 0.1 1 4] [--rounds N] [--engines docker podman buildah]

As root, with the engines installed: a daemon and a storage of its own are made in a temporary folder, which
needs the room of the largest base three times, and everything is removed at the end. The bases hold the Python
that runs this, the sources of vLLM 0.21.0 from the package index, and noise that does not compress.

Compared are ``vllm-mods lock`` and ``build`` on a base that was never read, ``build`` again, the engine's own build of a Dockerfile with
``FROM`` and ``ADD`` of a layer of the same size and, in docker, of one with ``FROM`` and ``RUN vllm-mods apply``, the tool copied in; without
the engine's cache. In docker, the requests of the first two are counted, in a run of their own.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from apply import KNOWN, lay_out

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from real_engines import LEFT_OUT, SITE, VERSION, Engine, libraries, started

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAIRING = "qwen3.5-122b-hybrid"
LAYER = 700_000
"""The bytes that the layer of the pairing has."""
COUNTED = """
import atexit, runpy, requests
sent, send = [], requests.Session.send
requests.Session.send = lambda self, request, **how: sent.append(request) or send(self, request, **how)
atexit.register(lambda: print("requests:", len(sent)))
runpy.run_module("vllm_mods", run_name="__main__")
"""


def lay_out_python(root: Path) -> None:
    """Put the Python that runs this into an image's root, with the libraries it needs."""
    executable = Path(os.path.realpath(sys.executable))
    stdlib = Path(sysconfig.get_path("stdlib"))
    place = root / f"usr/local/lib/python{VERSION}"
    ignored = shutil.ignore_patterns(*LEFT_OUT, "config-*")
    shutil.copytree(stdlib, place, ignore=ignored, dirs_exist_ok=True)
    (root / "usr/local/bin").mkdir(parents=True)
    shutil.copy2(executable, root / f"usr/local/bin/python{VERSION}")
    (root / "usr/local/bin/python3").symlink_to(f"python{VERSION}")
    for folder in ("lib", "lib64"):
        (root / "usr" / folder).mkdir()
        (root / folder).symlink_to(f"usr/{folder}")
    needed = [str(executable), *map(str, (place / "lib-dynload").glob("*.so")), "/bin/sh"]
    for library in libraries(needed):
        target = root / library.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(library, target)
    (root / "bin").mkdir()
    shutil.copy2(os.path.realpath("/bin/sh"), root / "bin/sh")
    (root / "tmp").mkdir(mode=0o1777)


def import_base(engine: Engine, root: Path, name: str, gigabytes: float) -> None:
    """Make an image of a folder and a file of noise."""
    program = "docker" if engine.tool == "docker" else "podman"  # which shares buildah's storage
    command = [program, "import", "-c", "ENV PATH=/usr/local/bin:/bin", "-", name]
    environ = {**os.environ, **engine.environ}
    with subprocess.Popen(
        command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    ) as process:
        assert process.stdin is not None
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            archive.add(root, ".")
            info = tarfile.TarInfo("opt-noise")
            info.size = int(gigabytes * 1e9)
            archive.addfile(info, Noise())
        process.stdin.close()
    assert process.returncode == 0


class Noise(io.RawIOBase):
    """Bytes without an end that nothing compresses."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return os.urandom(size)


def write_context(folder: Path, base: str) -> Path:
    """Write the folder that docker builds from, the tool in it."""
    context = folder / "context"
    context.mkdir()
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(context / "tool")]
    subprocess.run([*command, str(root)], check=True)
    (context / "Dockerfile").write_text(
        f"FROM {base.removeprefix('docker:')}\nCOPY tool /opt/vllm-mods\n"
        "RUN PYTHONPATH=/opt/vllm-mods SOURCE_DATE_EPOCH=0 python3 -B -m vllm_mods apply "
        f"--pairing {PAIRING} --target /{SITE}\n"
    )
    return context


class Tool:
    """``vllm-mods`` with a cache and a lock of its own."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.lock = folder / f"{PAIRING}.lock"
        self.cache = folder / "cache"
        self.environ = {**os.environ, **engine.environ, "VLLM_MODS_CACHE": str(self.cache)}
        # As where it is installed: its bytecode is there.
        self.environ.pop("PYTHONDONTWRITEBYTECODE", None)

    def __call__(self, command: str, *arguments: str, counted: bool = False) -> str:
        lock = "--output" if command == "lock" else "--lock"
        how = ["-c", COUNTED] if counted else ["-m", "vllm_mods"]
        done = subprocess.run(
            [sys.executable, *how, command, *arguments, lock, str(self.lock)],
            env=self.environ,
            capture_output=True,
            check=True,
            text=True,
        )
        return done.stdout.rpartition("requests: ")[2].strip()

    def forget(self) -> None:
        """Forget all that was read."""
        shutil.rmtree(self.cache, ignore_errors=True)
        self.lock.unlink(missing_ok=True)


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measured(
    engine: Engine, folder: Path, base: str, rounds: int
) -> Iterator[tuple[str, list[float]]]:
    """Yield each way to build with its times, all ways in each round."""
    tool = Tool(folder, engine)
    context = write_context(folder, base) if engine.tool == "docker" else None
    layer = write_layer(folder, base)
    tag = "localhost/bench:built"
    on_base, tagged = ("--base", base), ("--tag", tag)
    times: dict[str, list[float]] = {}

    def take(name: str, action: Callable[[], object]) -> None:
        times.setdefault(name, []).append(seconds(action))
        engine("rmi", "-f", tag)

    def first() -> None:
        tool("lock", PAIRING, *on_base)
        tool("build", PAIRING, *on_base, *tagged)

    for _ in range(rounds):
        tool.forget()
        take("vllm-mods lock, build: a base never read", first)
        take("vllm-mods build again", partial(tool, "build", PAIRING, *on_base, *tagged))
        take("FROM + ADD", partial(build, engine, tag, layer))
        if context is not None:
            take("FROM + RUN vllm-mods apply", partial(build, engine, tag, context))
    yield from times.items()
    if engine.tool == "docker":
        tool.forget()
        of_lock = tool("lock", PAIRING, *on_base, counted=True)
        of_build = tool("build", PAIRING, *on_base, *tagged, counted=True)
        print(f"requests: lock {of_lock}, build {of_build}")
        engine("rmi", "-f", tag)


def write_layer(folder: Path, base: str) -> Path:
    """Write the folder of a build that adds a layer as large as the pairing's."""
    context = folder / "layer"
    context.mkdir()
    with tarfile.open(context / "layer.tar", "w") as archive:
        info = tarfile.TarInfo(f"{SITE}/vllm/more.py")
        info.size = LAYER
        archive.addfile(info, Noise())
    name = base.partition(":")[2]
    (context / "Dockerfile").write_text(f"FROM {name}\nADD layer.tar /\n")
    return context


def build(engine: Engine, tag: str, context: Path) -> None:
    if engine.tool == "docker":
        engine("build", "-q", "--no-cache", "--network=none", "-t", tag, context)
    else:
        engine("build", "-q", "--no-cache", "--isolation=chroot", "-t", tag, context)


@contextmanager
def running(tool: str, folder: Path) -> Iterator[Engine]:
    """Start a dockerd, or give podman and buildah a storage of their own."""
    if tool == "docker":
        with started(folder) as engine:
            yield engine
        return
    settings = folder / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    yield Engine(tool, {"CONTAINERS_STORAGE_CONF": str(settings)}, settings)
    subprocess.run(["umount", "-q", "-l", folder / "root/overlay"], check=False)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, nargs="+", default=[0.1, 1.0, 4.0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engines", nargs="+", default=["docker", "podman", "buildah"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vm-bench-") as name:
        folder = Path(name)
        root = folder / "root"
        lay_out(KNOWN, root / SITE)
        lay_out_python(root)
        for tool in options.engines:
            (folder / tool).mkdir()
            with running(tool, folder / tool) as engine:
                told = engine("--version")
                print(f"{options.rounds} rounds; Python {sys.version.split()[0]}; {told}")
                print(f"{'base':>8}  {'':45}{'median s':>9}{'ratio':>7}")
                for size in options.gigabytes:
                    base = f"localhost/bench-base:{size}"
                    import_base(engine, root, base, size)
                    place = folder / f"{tool}-{size}"
                    place.mkdir()
                    store = "docker" if tool == "docker" else "podman"
                    found = dict(measured(engine, place, f"{store}:{base}", options.rounds))
                    ours = statistics.median(found["vllm-mods build again"])
                    for what, values in found.items():
                        median = statistics.median(values)
                        line = f"{size:>5} GB  {what:45}{median:9.2f}{median / ours:7.1f}"
                        print(line, flush=True)
                    engine("rmi", "-f", base)


if __name__ == "__main__":
    main()
