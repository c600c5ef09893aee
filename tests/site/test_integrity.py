"""verify: every way in which a tree can differ from its receipt has its own code."""

from __future__ import annotations

import os
import py_compile
import shutil
from importlib.util import MAGIC_NUMBER, source_hash
from typing import TYPE_CHECKING

import faults
import installing
import pytest
from small_site import FILES, ONE, PYC, RECORD, build, row, snapshot, transition, verify, write

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Level
from vllm_mods.formats import receipt
from vllm_mods.site.transaction import commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

A = "vllm/a.py"


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build(tmp_path_factory.mktemp("ready") / "site")
    commit(str(root), ONE)
    return root


@pytest.fixture
def site(ready: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ready, tmp_path / "site")


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
    assert "was edited after" in verify(str(site))[0].message


def test_a_file_that_was_put_back(site: Path) -> None:
    (site / A).write_bytes(FILES[A])
    assert found(site) == {("changed-since", A), ("record-disagrees", A)}
    assert "restored it" in verify(str(site))[0].message


def test_files_that_are_gone_or_there_again(site: Path) -> None:
    (site / A).unlink()
    (site / "vllm/sub/c.py").write_bytes(FILES["vllm/sub/c.py"])
    assert found(site) == {
        ("missing", A),
        ("record-disagrees", A),
        ("changed-since", "vllm/sub/c.py"),
    }


def put_record_back(site: Path) -> None:
    (site / RECORD).write_bytes((site / receipt.original(RECORD)).read_bytes())


def install_later(site: Path) -> None:
    installing.install(site, {**FILES, A: b"A = 9\n"}, "0.20.0")


@pytest.mark.parametrize(
    ("do", "path", "message"),
    [
        (lambda site: (site / A).write_bytes(b""), A, "was edited after the mods were applied"),
        (lambda site: (site / A).unlink(), A, "is gone"),
        (
            put_record_back,
            RECORD,
            "is the original file again, but other files of the same mods are patched",
        ),
        (
            lambda site: (site / "vllm/sub/c.py").write_bytes(b"mine"),
            "vllm/sub/c.py",
            "was removed by a mod and has come back",
        ),
        (
            lambda site: (site / A).write_bytes(FILES[A]),
            A,
            "is the original file again: something restored it",
        ),
        (install_later, A, "belongs to another installation, made after the mods were applied"),
        (install_later, "vllm/new/deep/d.py", "is gone: an installer removed it after"),
        (lambda site: (site / A).chmod(0o600), A, "its mode is 0600, and was 0644 after the mods"),
        (
            lambda site: (site / receipt.original(A)).unlink(),
            A,
            f"its stored original {receipt.original(A)} is gone: a revert would fail",
        ),
        (
            lambda site: (site / receipt.original(A)).write_bytes(b""),
            A,
            f"its stored original {receipt.original(A)} is damaged: a revert would fail",
        ),
        (
            lambda site: (site / f"{A}.rej").touch(),
            f"{A}.rej",
            f"{A}.rej is beside a patched file; `patch` left it there, not vllm-mods",
        ),
    ],
)
def test_a_finding_says_what_became_of_the_file(
    site: Path, do: Callable[[Path], object], path: str, message: str
) -> None:
    do(site)
    first = next(one for one in verify(str(site)) if one.path == path)
    assert first.message.startswith(message)


def test_of_what_an_installer_undid_each_file_is_one_finding(site: Path) -> None:
    """Neither originals nor bytecode of the installation that is gone say anything any more."""
    install_later(site)
    assert found(site) == {
        ("changed-since", A),
        ("changed-since", "vllm/sub/c.py"),
        ("missing", "vllm/new/deep/d.py"),
        ("missing", RECORD),
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


def unchecked(source: bytes) -> bytes:
    """Return bytecode that tells Python not to check whether it is of its source."""
    return MAGIC_NUMBER + b"\1\0\0\0" + source_hash(source)


@pytest.mark.parametrize(
    ("name", "data", "stale"),
    [
        ("a.cpython-399.pyc", lambda: unchecked(b"A = 9\n"), True),
        ("a.cpython-399.pyc", lambda: unchecked(b"A = 9\n") + b"code", True),
        ("a.cpython-399.pyc", lambda: unchecked(b"A = 2\n"), False),
        ("a.cpython-399.pyc", lambda: unchecked(b"A = 9\n")[:15], False),
        ("a.txt", lambda: unchecked(b"A = 9\n"), False),
        ("b.cpython-399.pyc", lambda: unchecked(b"A = 9\n"), False),
        ("../sub/__pycache__/c.cpython-399.pyc", lambda: unchecked(b"C = 9\n"), False),
    ],
)
def test_bytecode_is_looked_at_if_python_would_run_it_in_place_of_a_patched_file(
    site: Path, name: str, data: Callable[[], bytes], *, stale: bool
) -> None:
    place = site / "vllm/__pycache__" / name
    place.parent.resolve().mkdir(exist_ok=True)
    place.resolve().write_bytes(data())
    assert found(site) == ({("stale-bytecode", f"vllm/__pycache__/{name}")} if stale else set())


@pytest.mark.parametrize("what", ["stale", "unchecked"])
def test_stale_bytecode_is_named_with_the_reason(site: Path, what: str) -> None:
    kept = (site / receipt.original(PYC)).read_bytes()
    (site / PYC).write_bytes(kept if what == "stale" else unchecked(b"A = 9\n"))
    (finding,) = verify(str(site))
    reason = {
        "stale": "was removed and is back, compiled from the original source, ",
        "unchecked": "was compiled from another source and marked unchecked, ",
    }
    assert finding.message.startswith(f"a.cpython-311.pyc {reason[what]}")


def test_a_record_that_does_not_know_of_the_change(site: Path) -> None:
    record = site / RECORD
    rows = record.read_bytes()
    record.write_bytes(rows.replace(row(A, b"A = 2\n"), row(A, FILES[A])))
    assert found(site) == {("changed-since", RECORD), ("record-disagrees", A)}


def test_a_record_that_lists_what_a_mod_removed(site: Path) -> None:
    with (site / RECORD).open("ab") as file:
        file.write(row("vllm/sub/c.py", FILES["vllm/sub/c.py"]))
    assert found(site) == {("changed-since", RECORD), ("record-disagrees", "vllm/sub/c.py")}


def test_a_record_that_cannot_be_read_is_one_finding(site: Path) -> None:
    (site / RECORD).rename(site / "elsewhere")
    (site / RECORD).symlink_to(site / "elsewhere")
    assert found(site) == {("unreadable", RECORD)}
    assert not verify(str(site))[0].message.endswith("nothing was changed")


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
    said = f"{A}: {A} is a symbolic link to {tmp_path}/a.py, and vllm-mods does not follow links"
    assert [one.message for one in verify(str(site))] == [said]


def test_an_interrupted_transaction(tmp_path: Path) -> None:
    site = build(tmp_path / "site")

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(site), ONE)

    faults.in_child(work)
    (left,) = site.glob(".vllm-mods.work-*")
    assert ("unfinished", left.name) in found(site)


def test_a_broken_receipt_is_no_finding(site: Path) -> None:
    (site / receipt.RECEIPT).write_bytes(b"{")
    with pytest.raises(Refused, match="not JSON"):
        verify(str(site))


def test_an_unreadable_workspace_is_one_finding(tmp_path: Path) -> None:
    site = build(tmp_path / "site")
    (tmp_path / "w").mkdir()
    commit(
        str(site), transition(write(f"{tmp_path}/w/t", None, b"")), workspace=str(tmp_path / "w")
    )
    assert found(site) == set()
    os.rename(tmp_path / "w", tmp_path / "moved")
    assert found(site) == {("unreadable", f"{tmp_path}/w/t")}
