"""Killed in the middle, and then pip or Python comes by before anything recovers: nobody is stuck."""

from __future__ import annotations

import py_compile
from typing import TYPE_CHECKING

import faults
import installing
import pytest
from sampling import few
from small_site import FILES, ONE, PYC, TWO, build, verify

from vllm_mods.formats import receipt
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover

if TYPE_CHECKING:
    from pathlib import Path

LATER = {path: data + b"# later\n" for path, data in FILES.items() if path != "vllm/sub/c.py"}
POINTS = range(15, 55)


def killed(root: Path, point: int) -> bool:
    """Put a second mod in on top of one, and die; tell whether something is left to be undone."""
    build(root, installed=False)
    installing.install(root, FILES)
    commit(str(root), ONE)

    def work() -> None:
        faults.at(point, faults.kill)
        commit(str(root), TWO)

    faults.in_child(work)
    return read_state(str(root)).unfinished is not None


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.19.1", "0.20.0"])
@pytest.mark.parametrize("first", [True, False], ids=["uninstalled", "over it"])
def test_what_pip_installed_over_a_killed_transaction_stays(
    tmp_path: Path, version: str, *, first: bool
) -> None:
    tried = 0
    for point in few(POINTS, 4, f"{version} {first}"):
        root = tmp_path / str(point)
        if not killed(root, point):
            continue
        tried += 1
        if first:
            installing.uninstall(root)
        installing.install(root, LATER, version)
        assert recover(str(root)) is True
        for path, data in LATER.items():
            assert (root / path).read_bytes() == data, point
        assert not (root / "vllm/sub/c.py").exists()
        assert [one.name for one in root.glob("vllm-*")] == [f"vllm-{version}.dist-info"]
        assert not read_state(str(root)).unfinished
    assert tried


def test_bytecode_that_an_import_made_in_between_is_no_edit(tmp_path: Path) -> None:
    tried = 0
    for point in few(POINTS, 4, "import"):
        root = tmp_path / str(point)
        if not killed(root, point):
            continue
        tried += 1
        py_compile.compile(str(root / "vllm/b.py"), cfile=str(root / PYC.replace("a.", "b.")))
        py_compile.compile(str(root / "vllm/a.py"), cfile=str(root / PYC))
        assert recover(str(root)) is True
        assert [one for one in verify(str(root)) if one.code != "stale-bytecode"] == []
        assert (root / receipt.RECEIPT).exists()
    assert tried
