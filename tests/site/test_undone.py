"""What an installer has put in place of mods, and of a killed transaction's files: by RECORD, and what was there."""

from __future__ import annotations

import shutil
from importlib.util import cache_from_source
from typing import TYPE_CHECKING

import installing
import pytest
from small_site import FILES, ONE, RECORD, sha, transition, write

from vllm_mods.site import integrity, undone
from vllm_mods.site.journal_text import Step
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit
from vllm_mods.site.undone import Undone, installed_anew
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from collections.abc import Callable
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


# --- of the mods that a receipt names ---------------------------------------------------------------

C, D = "vllm/sub/c.py", "vllm/new/deep/d.py"
COMPILED = {path: cache_from_source(path) for path in (A, C)}


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an installation in which a mod changed one file, deleted one, and made one."""
    root = tmp_path_factory.mktemp("ready")
    installing.install(root, FILES)
    commit(str(root), ONE)
    return root


@pytest.fixture
def patched(ready: Path, tmp_path: Path) -> Path:
    return shutil.copytree(ready, tmp_path / "site")


def look(root: Path) -> Undone:
    return integrity.undone_in(read_state(str(root)))


def put(path: str, data: bytes) -> Callable[[Path], object]:
    return lambda root: (root / path).write_bytes(data)


def put_record_back(root: Path) -> None:
    (root / RECORD).write_bytes((root / f".vllm-mods/originals/{RECORD}").read_bytes())


def link(root: Path) -> None:
    (root / A).rename(root / "elsewhere.py")
    (root / A).symlink_to(root / "elsewhere.py")


def install_later(root: Path) -> None:
    installing.install(root, {**FILES, A: b"A = 9\n"}, "0.20.0")


def install_another_build(root: Path) -> None:
    installing.install(root, {**FILES, A: b"A = 9\n"})


def replace_all_but_what_mods_made(root: Path) -> None:
    kept = (root / D).read_bytes()
    install_later(root)
    (root / D).parent.mkdir(parents=True)
    (root / D).write_bytes(kept)


def edit_record(root: Path) -> None:
    rows = (root / RECORD).read_bytes()
    (root / RECORD).write_bytes(rows.replace(b"\nvllm/b.py,", b"\nvllm/bb.py,"))


ALL = (A, C, D, RECORD, *COMPILED.values())
CASES: dict[str, tuple[Callable[[Path], object], tuple[str, ...], tuple[str, ...]]] = {
    "nothing": (lambda _root: None, (), ()),
    "a file is as it was": (put(A, FILES[A]), (A, COMPILED[A]), ()),
    "a file is edited": (put(A, b"mine"), (), (A,)),
    "a file behind a link": (link, (), (A,)),
    "a removed file is there as it was": (put(C, FILES[C]), (C, COMPILED[C]), ()),
    "a removed file is there, edited": (put(C, b"mine"), (), (C,)),
    "a new file is gone": (lambda root: (root / D).unlink(), (), ()),
    "a new file is edited": (put(D, b"mine"), (), (D,)),
    "RECORD alone is as it was": (put_record_back, (), ()),
    "RECORD is edited": (edit_record, (), ()),
    "RECORD alone is gone": (lambda root: (root / RECORD).unlink(), (), ()),
    "installed again": (lambda root: installing.install(root, FILES), ALL, ()),
    "another build installed": (install_another_build, ALL, ()),
    "a later one installed": (install_later, ALL, ()),
    "a later one beside what a mod made": (replace_all_but_what_mods_made, ALL, ()),
    "uninstalled": (installing.uninstall, (A, D, RECORD, COMPILED[A]), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_undone_or_edited_is_told_from_what_a_mod_left(patched: Path, case: str) -> None:
    do, paths, edited = CASES[case]
    do(patched)
    assert look(patched) == Undone(frozenset(paths), edited)


def test_a_mod_is_undone_with_any_of_its_files(patched: Path) -> None:
    there = read_state(str(patched)).receipt
    assert there is not None
    for paths, names in (((C,), ("one",)), ((D, A), ("one",)), ((B,), ()), ((), ())):
        assert Undone(frozenset(paths)).mods(there) == names


def test_templates_are_no_files_of_an_installation(tmp_path: Path) -> None:
    root, space = tmp_path / "site", tmp_path / "space"
    installing.install(root, FILES)
    space.mkdir()
    places = (".vllm-mods/templates/t.jinja", f"{space}/t.jinja")
    wanted = transition(*(write(one, None, b"T") for one in places))
    commit(str(root), wanted, workspace=str(space))
    (root / places[0]).write_bytes(b"mine")
    (space / "t.jinja").write_bytes(b"mine")
    assert look(root) == Undone(edited=(places[1],))
    space.rename(tmp_path / "away")
    assert look(root) == Undone()


def test_a_copy_of_our_folder_has_a_name_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".vllm-mods.old-1").mkdir()
    (tmp_path / ".vllm-mods.old-2").symlink_to("nowhere")
    assert undone.free_name(str(tmp_path)) == ".vllm-mods.old-3"
    assert undone.free_name(f"{tmp_path}/.vllm-mods.old-1") == ".vllm-mods.old-1"
