"""What the commands of the docs find: a vLLM release, and where a page needs one, a dockerd."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from doc_commands import small_release
from real_engines import Engine, need, started

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_release(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def dockerd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    need("dockerd", "docker")
    with started(tmp_path_factory.mktemp("docker")) as engine:
        yield engine


@pytest.fixture
def docker(dockerd: Engine, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Give the variables with which `docker` and `podman` are engines that have no images yet."""
    storage, settings = tmp_path / "storage.conf", tmp_path / "containers.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{tmp_path}/podman"\nrunroot = "{tmp_path}/podman-run"\n'
    )
    # As dockerd is started: no networks, and nothing that a system's service manager would have to allow.
    settings.write_text(
        '[containers]\nnetns = "none"\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
        '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    yield {
        **dockerd.environ,
        "CONTAINERS_STORAGE_CONF": str(storage),
        "CONTAINERS_CONF": str(settings),
    }
    for image in set(dockerd("images", "-q").split()):
        dockerd("rmi", "-f", image)
    # podman leaves its storage mounted on itself
    subprocess.run(["umount", "-q", "-l", tmp_path / "podman/overlay"], check=False)
