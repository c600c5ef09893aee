"""Kept answers that hold no longer, or were of another tree: nobody is told them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant
from release_shelf import ReleaseInMemory, Shelf

from vllm_mods.base.model import Verdict
from vllm_mods.matrices.cell import Cell
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

FILES = {"vllm/__init__.py": b"", "vllm/m.py": b"A = 1\n"}
PATCH = diff_of("vllm/m.py", "A = 1\n", "A = 2\n")


def answer(cache: Path, one: Mod, tree: MemoryTree) -> Cell:
    found, _ = Shelf((one,), [tree], str(cache), store=True)._recall_or_ask(
        one.name, tree, show=False
    )
    return found


def test_the_matrix_sees_the_packages_beside_a_tree_as_check_does(tmp_path: Path) -> None:
    one = mod(variant(PATCH, python=("kernels>=2",)))
    alone, beside = (
        MemoryTree(dict(FILES)),
        ReleaseInMemory({**FILES, "kernels-1.0.dist-info/METADATA": b""}),
    )
    assert answer(tmp_path, one, alone).verdict is Verdict.APPLIES
    for tree in (beside, alone):
        assert answer(tmp_path, one, tree).verdict is plan([one], tree).mods[0].verdict
    assert answer(tmp_path, one, beside).verdict is Verdict.UNFIT


def test_what_was_said_of_one_tree_does_not_name_it_to_another(tmp_path: Path) -> None:
    other = diff_of("kernels/k.py", "K = 1\n", "K = 2\n")
    one = mod(variant(other, vllm=">=0.19"), outside=("kernels/k.py",))
    for version in ("0.19.1", "0.20.0"):
        tree = MemoryTree(dict(FILES), version=version, spec=f"pypi:{version}", pristine=True)
        assert answer(tmp_path, one, tree).findings == plan([one], tree).mods[0].findings
