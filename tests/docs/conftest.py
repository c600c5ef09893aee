"""What the commands of the docs find: a vLLM release, and where a page needs one, a dockerd."""

from __future__ import annotations

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
def docker(dockerd: Engine) -> Iterator[dict[str, str]]:
    """Give the variables with which `docker` talks to an engine that has no images yet."""
    yield dockerd.environ
    for image in set(dockerd("images", "-q").split()):
        dockerd("rmi", "-f", image)
