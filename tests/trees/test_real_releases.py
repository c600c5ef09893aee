"""Real releases of vLLM from the index that pip uses here."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.network

INC = "vllm/model_executor/layers/quantization/inc.py"


def test_one_file_of_a_release_moves_under_a_megabyte(tmp_path: Path) -> None:
    releases = Releases(cache_dir=str(tmp_path))
    tree = releases.open("0.19.1")
    data = tree.read(INC)
    assert data is not None
    digest = "7b5597b80b041db7823210832ff0fe2622e92aea3ac73d28d2e7428e36d96aaa"
    assert hashlib.sha256(data).hexdigest() == digest
    assert tree.version == "0.19.1"
    assert releases.http is not None
    assert releases.http.received < 1_000_000
    again = Releases(cache_dir=str(tmp_path), offline=True)
    assert again.open("0.19.1").read(INC) == data


@pytest.mark.parametrize("version", ["0.9.2", "0.15.1", "0.33.0"])
def test_old_and_new_releases_open(tmp_path: Path, version: str) -> None:
    releases = Releases(cache_dir=str(tmp_path))
    tree = releases.open(version)
    assert tree.version == version
    assert tree.read("vllm/version.py")
    assert releases.http is not None
    # the page, the wheel's directory, and RECORD, which is held against it
    assert releases.http.received < 1_200_000


def test_a_rebuilt_wheel_is_the_one_that_pip_takes(tmp_path: Path) -> None:
    releases = Releases(cache_dir=str(tmp_path))
    first = releases.open("vllm-0.20.1-cp38-abi3-manylinux_2_35_x86_64.whl")
    rebuilt = releases.open("vllm-0.20.1-1-cp38-abi3-manylinux_2_35_x86_64.whl")
    plain = releases.open("0.20.1")
    differing = [
        path
        for path in set(first.paths()) | set(rebuilt.paths())
        if path.endswith("_version.py") and first.read(path) != rebuilt.read(path)
    ]
    assert set(plain.paths()) == set(rebuilt.paths())
    assert [plain.read(path) for path in differing] == [rebuilt.read(path) for path in differing]
