"""The fixtures of the tests with real engines: see ``real_engines``."""

from __future__ import annotations

import importlib.util
import os
import platform
import py_compile
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from making_images import File, Folder, Image, Link, Thing, from_disk, layer
from paired import BASE, OLD, STALE
from real_engines import (
    LEFT_OUT,
    REAL,
    VERSION,
    Engine,
    Registry,
    base,
    libraries,
    need,
    served,
    started,
)
from small_site import FILES, build as build_site

from vllm_mods.fit import checker

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engines)


@pytest.fixture(autouse=True)
def nothing_read(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have nothing kept of an engine's images, but for who needs the releases that are kept, too."""
    if request.node.get_closest_marker("network") is None:
        monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "nothing-read"))


@pytest.fixture(scope="session")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Start a dockerd on the graph driver, without networks."""
    need("dockerd", "docker")
    with started(tmp_path_factory.mktemp("docker")) as engine:
        yield engine


@pytest.fixture(scope="session")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Give buildah a storage of its own; podman would see the same."""
    need("buildah")
    folder = tmp_path_factory.mktemp("storage")
    settings = folder / "storage.conf"
    settings.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/root"\nrunroot = "{folder}/run"\n'
    )
    yield Engine("buildah", {"CONTAINERS_STORAGE_CONF": str(settings)}, settings)
    # podman leaves its storage mounted on itself
    subprocess.run(["umount", "-q", "-l", folder / "root/overlay"], check=False)


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Start a registry that lets everybody in."""
    yield from served(tmp_path_factory.mktemp("registry"), login=False)


@pytest.fixture(scope="session")
def locked_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """Start a registry that wants USER and PASSWORD."""
    yield from served(tmp_path_factory.mktemp("locked"), login=True)


@pytest.fixture(scope="session")
def python_layer() -> bytes:
    """Return a layer with the Python that runs the tests, its libraries and little else."""
    need("ldd")
    executable = os.path.realpath(sys.executable)
    stdlib = Path(sysconfig.get_path("stdlib"))
    things: dict[str, Thing] = {
        # A modern Debian has its old places as links: a path through one must not replace it.
        "lib": Link("usr/lib"),
        "lib64": Link("usr/lib64"),
        "tmp": Folder(0o1777),
        "root": Folder(0o700),
        "etc/passwd": b"root:x:0:0:root:/root:/bin/sh\n",
        f"usr/local/bin/python{VERSION}": File(Path(executable).read_bytes(), 0o755),
        "usr/local/bin/python3": Link(f"python{VERSION}"),
    }
    for path in stdlib.rglob("*"):
        parts = path.relative_to(stdlib).parts
        config = any(part.startswith("config-") for part in parts)
        if not (LEFT_OUT & set(parts)) and not config and path.is_file():
            name = f"usr/local/lib/python{VERSION}/{'/'.join(parts)}"
            things[name] = File(path.read_bytes(), path.stat().st_mode & 0o755)
    # what the type checker needs is in every image: it is of the compiler's own
    binaries = [executable, checker.program(), *map(str, (stdlib / "lib-dynload").glob("*.so"))]
    for library in sorted(libraries(binaries)):
        place = library.lstrip("/")
        top = place.split("/", 1)[0]
        if top in {"lib", "lib64"}:
            place = f"usr/{place}"
        elif (
            top != "usr"
        ):  # of a Python that was built in somebody's home, where no other user reads
            triplet = f"{platform.machine()}-linux-gnu"
            place = f"usr/lib/{triplet}/{Path(library).name}"
        things[place] = File(Path(library).read_bytes(), 0o755)
    return layer(things)


@pytest.fixture(scope="session")
def small_base(python_layer: bytes, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return a base with the small vLLM of the offline tests; `docker load` takes ``archive``."""
    site = build_site(tmp_path_factory.mktemp("site") / "site")
    return base(python_layer, from_disk(site), "localhost/small:latest")


@pytest.fixture(scope="session")
def small_archive(small_base: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the archive of ``small_base``."""
    return small_base.archive(tmp_path_factory.mktemp("archive") / "small.tar")


@pytest.fixture
def docker_small(
    dockerd: Engine, small_archive: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    """Return a dockerd that has ``localhost/small``, and is the one that this process talks to."""
    dockerd("load", "-i", small_archive)
    for name, value in dockerd.environ.items():
        monkeypatch.setenv(name, value)
    yield dockerd
    assert dockerd("ps", "-aq") == "", "a container was left behind"


@pytest.fixture(scope="session")
def real_base(python_layer: bytes, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """Return use a base with a real vLLM release, its files as the sdist has them (marker: network)."""
    from vllm_mods.trees.archive import TarArchive
    from vllm_mods.trees.release import Releases

    releases = Releases()
    sdist = next(one for one in releases.files() if (one.version, one.kind) == (REAL, "sdist"))
    assert releases.http is not None
    path = tmp_path_factory.mktemp("sdist") / sdist.filename
    with path.open("w+b") as file:
        releases.http.download(sdist.url, file)
        file.seek(0)
        archive = TarArchive(file, label=str(path))
    found: dict[str, Thing] = {}
    for name in archive.names:
        if name.startswith("vllm/"):
            found[name] = archive.read(name) or b""
    found[f"vllm-{REAL}.dist-info/METADATA"] = f"Name: vllm\nVersion: {REAL}\n".encode()
    return base(python_layer, found, "localhost/real:latest")


@pytest.fixture(scope="session")
def paired_base(python_layer: bytes, tmp_path_factory: pytest.TempPathFactory) -> Image:
    """A base whose bytecode of vllm/a.py is up to date: same second, same number of bytes."""
    files = {**FILES, "vllm/_version.py": b"__version__ = version = '0.19.1'\n"}
    site = build_site(tmp_path_factory.mktemp("paired") / "site", files)
    os.utime(site / "vllm/a.py", (OLD, OLD))
    py_compile.compile(str(site / "vllm/a.py"), cfile=str(site / STALE), dfile="vllm/a.py")
    made = base(python_layer, from_disk(site), BASE)
    made.settings["Env"] = [*made.settings["Env"], "WORKSPACE_DIR=/root/space"]
    # The tool reads mods that no lock vouches for with a compiled library, which is to run in there.
    compiled = importlib.util.find_spec("libcst.native")
    assert compiled is not None
    assert compiled.origin is not None
    things: dict[str, Thing] = {
        f"usr/{place.lstrip('/').removeprefix('usr/')}": File(Path(place).read_bytes(), 0o755)
        for place in libraries([compiled.origin])
    }
    folders = {"root": Folder(0o700), "root/space": Folder(0o2775), "usr/local": Folder(0o2755)}
    made.layers.append(layer({**things, **folders}))
    return made


@pytest.fixture(scope="session")
def paired_archive(paired_base: Image, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return paired_base.archive(tmp_path_factory.mktemp("archive") / "paired.tar")
