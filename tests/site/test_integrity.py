"""verify: every way in which a tree can differ from its receipt has its own code."""

from __future__ import annotations

import os
import py_compile
from typing import TYPE_CHECKING

import faults
import pytest
from small_site import FILES, ONE, PYC, RECORD, build, row, snapshot, transition, verify, write

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Level
from vllm_mods.formats import receipt
from vllm_mods.site.transaction import commit

if TYPE_CHECKING:
    from pathlib import Path

A = "vllm/a.py"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    root = build(tmp_path / "site")
    commit(str(root), ONE)
    return root


def found(site: Path) -> set[tuple[str, str | None]]:
    before = snapshot(site)
    findings = verify(str(site))
    assert snapshot(site) == before
    return {(one.code, one.path) for one in findings}


def test_a_tree_as_it_was_left_has_no_findings(site: Path, tmp_path: Path) -> None:
    assert found(site) == set()
    assert found(build(tmp_path / "untouched")) == set()


def test_new_bytecode_of_the_patched_source_is_fine(site: Path) -> None:
    py_compile.compile(str(site / A), cfile=str(site / PYC))
    assert found(site) == set()


def test_a_changed_file(site: Path) -> None:
    (site / A).write_bytes(b"edited")
    assert found(site) == {("changed-since", A), ("record-disagrees", A)}
    assert "by whom" in verify(str(site))[0].message


def test_a_file_that_was_put_back(site: Path) -> None:
    (site / A).write_bytes(FILES[A])
    assert found(site) == {("changed-since", A), ("record-disagrees", A)}
    assert "put the untouched file back" in verify(str(site))[0].message


def test_files_that_are_gone_or_there_again(site: Path) -> None:
    (site / A).unlink()
    (site / "vllm/sub/c.py").write_bytes(FILES["vllm/sub/c.py"])
    assert found(site) == {
        ("missing", A),
        ("record-disagrees", A),
        ("changed-since", "vllm/sub/c.py"),
    }


def test_a_changed_mode(site: Path) -> None:
    (site / A).chmod(0o600)
    assert found(site) == {("mode-changed", A)}


def test_originals_that_a_revert_would_miss(site: Path) -> None:
    (site / receipt.original(A)).unlink()
    (site / receipt.original(RECORD)).write_bytes(b"x")
    assert found(site) == {("original-missing", A), ("original-damaged", RECORD)}


def test_the_bytecode_that_was_removed_is_there_again(site: Path) -> None:
    (site / PYC).write_bytes((site / receipt.original(PYC)).read_bytes())
    assert found(site) == {("stale-bytecode", PYC)}


@pytest.mark.parametrize(
    ("mode", "stale"),
    [
        (py_compile.PycInvalidationMode.UNCHECKED_HASH, True),
        (py_compile.PycInvalidationMode.CHECKED_HASH, False),
        (py_compile.PycInvalidationMode.TIMESTAMP, False),
    ],
)
def test_bytecode_of_other_source_matters_if_python_does_not_check(
    site: Path, tmp_path: Path, mode: py_compile.PycInvalidationMode, *, stale: bool
) -> None:
    other = tmp_path / "other.py"
    other.write_bytes(b"A = 99\n")
    py_compile.compile(str(other), cfile=str(site / PYC), invalidation_mode=mode)
    assert found(site) == ({("stale-bytecode", PYC)} if stale else set())
    py_compile.compile(str(site / A), cfile=str(site / PYC), invalidation_mode=mode)
    assert found(site) == set()


def test_a_record_that_does_not_know_of_the_change(site: Path) -> None:
    record = site / RECORD
    rows = record.read_bytes()
    record.write_bytes(rows.replace(row(A, b"A = 2\n"), row(A, FILES[A])))
    assert found(site) == {("changed-since", RECORD), ("record-disagrees", A)}


def test_what_patch_left_is_a_note(site: Path) -> None:
    (site / f"{A}.rej").write_bytes(b"")
    (site / f"{A}.orig").write_bytes(b"")
    assert found(site) == {("leftover", f"{A}.rej"), ("leftover", f"{A}.orig")}
    assert {one.level for one in verify(str(site))} == {Level.NOTE}


def test_a_link_in_place_of_a_file_is_not_followed(site: Path, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes((site / A).read_bytes())
    (site / A).unlink()
    (site / A).symlink_to(tmp_path / "a.py")
    assert found(site) == {("unreadable", A)}


def test_an_interrupted_transaction(tmp_path: Path) -> None:
    site = build(tmp_path / "site")

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(site), ONE)

    faults.in_child(work)
    assert "unfinished" in {code for code, _path in found(site)}


def test_a_broken_receipt_is_no_finding(site: Path) -> None:
    (site / receipt.RECEIPT).write_bytes(b"{")
    with pytest.raises(Refused, match="not JSON"):
        verify(str(site))


def test_an_unreadable_workspace_is_one_finding(tmp_path: Path) -> None:
    site = build(tmp_path / "site")
    (tmp_path / "w").mkdir()
    commit(
        str(site),
        transition(write(f"{tmp_path}/w/t", None, b"")),
        workspace=str(tmp_path / "w"),
    )
    assert found(site) == set()
    os.rename(tmp_path / "w", tmp_path / "moved")
    assert found(site) == {("unreadable", f"{tmp_path}/w/t")}
