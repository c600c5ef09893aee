"""What an installer has put in place of a killed transaction's files, by the steps and the RECORD that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import installing
import pytest
from small_site import FILES, RECORD, sha

from vllm_mods.site.journal_text import Step
from vllm_mods.site.undone import installed_anew
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from pathlib import Path

A, B = "vllm/a.py", "vllm/b.py"
PATCHED = b"A = 2\n"
BASE = f"{A},,\n{B},,\n{RECORD},,\n".encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    installing.install(tmp_path, {**FILES, A: b"A = 9\n"})
    return tmp_path


def step(path: str, before: bytes, after: bytes | None = b"patched") -> Step:
    return Step(path, sha(before), None if after is None else sha(after), "0", f"/{path}.temp")


def theirs(root: Path, *steps: Step) -> set[str]:
    return installed_anew(FolderTree(str(root)), steps, lambda _step: BASE)


def test_nothing_is_theirs_while_the_record_is_one_of_ours(root: Path) -> None:
    rows = (root / RECORD).read_bytes()
    data = (root / A).read_bytes()
    assert theirs(root, step(A, data, PATCHED), step(RECORD, rows)) == set()
    assert theirs(root, step(A, data, PATCHED), step(RECORD, b"", rows)) == set()


def test_all_that_another_record_lists_is_theirs_with_its_bytecode(root: Path) -> None:
    compiled = "vllm/__pycache__/a.cpython-311.pyc"
    steps = (step(A, b"A = 1\n", PATCHED), step(compiled, b"", None), step(RECORD, b"", b""))
    assert theirs(root, *steps) == {A, compiled, RECORD}


def test_a_record_alone_is_theirs(root: Path) -> None:
    """Its files had been put back by hand, so that the transaction had nothing else to change."""
    assert theirs(root, step(RECORD, b"old", b"new"), step("kernels/k.py", b"")) == {RECORD}


def test_a_record_that_was_edited_beside_what_a_mod_left_is_not(root: Path) -> None:
    (root / A).write_bytes(PATCHED)
    assert theirs(root, step(A, b"A = 1\n", PATCHED), step(RECORD, b"old", b"new")) == set()


def test_a_file_that_is_as_listed_is_theirs_beside_a_record_that_is_as_it_was(root: Path) -> None:
    """It had been edited before the transaction, and pip's RECORD is the same again."""
    rows = (root / RECORD).read_bytes()
    steps = (step(A, b"edited", PATCHED), step(B, FILES[B]), step(RECORD, rows))
    assert theirs(root, *steps) == {A}


def test_a_record_that_we_keep_is_none(root: Path) -> None:
    kept = f".vllm-mods/originals/{RECORD}"
    assert theirs(root, step(kept, b"old", None), step(A, b"A = 1\n", PATCHED)) == {A}
