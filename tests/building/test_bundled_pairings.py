"""Each bundled pairing locks on a base that has the release's own METADATA beside its vLLM.

The base is what `lock` reads of it: the files of the release that planning and serve-check ask for,
read out of the index by ranges, and the packages that the release pins, by their dist-infos.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest
from making_images import Image, layer as tar_of

from vllm_mods.api.serve_check import answer, of_pairing
from vllm_mods.base.tree import Tree, TreeView
from vllm_mods.cli import run
from vllm_mods.library.catalog import Library
from vllm_mods.planning import planner
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


pytestmark = pytest.mark.network

SITE = "usr/local/lib/python3.12/dist-packages"
PAIRINGS = ("qwen3.5-122b-hybrid", "qwen3.5-122b-int4", "qwen3.5-122b-int4-flashqla", "qwen3.6-35b")


class Recorded(TreeView):
    """A tree that remembers which files were asked for, and what was in them."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.files: dict[str, bytes] = {}

    def read(self, path: str) -> bytes | None:
        data = self.below.read(path)
        if data is not None:
            self.files[path] = data
        return data

    def paths(self, under: str = "vllm") -> Iterable[str]:
        return self.below.paths(under)


def dist_infos(metadata: str) -> dict[str, bytes]:
    """Return a dist-info of each package that the release pins on Linux without an extra."""
    pins = re.findall(
        r"^Requires-Dist: ([\w.-]+)(?:\[[\w,]+\])?==([\w.+]+)$", metadata, re.MULTILINE
    )
    return {f"{name.replace('-', '_')}-{version}.dist-info/METADATA": b"" for name, version in pins}


@pytest.mark.parametrize("name", PAIRINGS)
def test_it_locks_on_the_release_that_it_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    library = Library()
    found = library.pairing(name)
    version = found.base.rpartition(":v")[2]
    tree = Recorded(Releases().open(version))
    asked = of_pairing(library, found)
    told = answer(asked, tree, planner.plan(asked.mods, tree))
    assert told.ok, told.faults
    info = f"vllm-{version}.dist-info"
    metadata = tree.read(f"{info}/METADATA")
    assert metadata is not None
    for path in (f"{info}/RECORD", "vllm/__init__.py", "vllm/_version.py"):
        tree.read(path)
    pinned = dist_infos(metadata.decode())
    assert len(pinned) > 10
    files = {f"{SITE}/{path}": data for path, data in {**tree.files, **pinned}.items()}
    base = Image([tar_of(files)], {"Env": ["PATH=/usr/local/bin"]}, found.base)
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    layout = base.layout(tmp_path / "base", "gzip")
    lock = tmp_path / "made.lock"
    code = run(["lock", name, "--base", f"oci:{layout}", "--output", str(lock)])
    said = capfd.readouterr()
    assert code == os.EX_OK, said.err
    made = json.loads(lock.read_bytes())
    wheels = [one["name"] for one in made["wheels"]]
    assert wheels == (["flash-qla"] if "flashqla" in found.mods else [])
    assert {one["verdict"] for one in made["mods"]} <= {"applies", "moved"}
