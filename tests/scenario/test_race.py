"""Another process puts symbolic links in place of folders while a transaction runs: it stays inside."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from typing import TYPE_CHECKING

import faults
import pytest
from sampling import few
from small_site import FILES, ONE, build, sha, snapshot, transition, write

from vllm_mods.base.errors import NotRestored, Refused
from vllm_mods.cli import named_files
from vllm_mods.formats.schema import encode
from vllm_mods.library import writing
from vllm_mods.site.journal import FILE, PREFIX
from vllm_mods.site.journal_text import Folder, Step
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover
from vllm_mods.site.transitions import revert_transition

if TYPE_CHECKING:
    from pathlib import Path

    from small_site import Snapshot

NAMES = ("vllm", "vllm/sub", "vllm/new", ".vllm-mods", "work")


def swap(root: Path, name: str, outside: Path) -> None:
    """Move a folder of the tree away, and put a link to outside where it was."""
    (root.parent / "reached").touch()
    place = root / name
    if name == "work":
        place = next(iter(root.glob(f"{PREFIX}*")), place)
    if place.is_dir() and not place.is_symlink():
        place.rename(root.parent / f"{root.name}-away")
        place.symlink_to(outside)


def outside_of(folder: Path) -> Path:
    """Make what must not change: it has the same names as the tree, and the same contents."""
    place = folder / "outside"
    for name in ("", "sub", "new/deep", "originals/vllm/sub", "mods", "vllm/sub"):
        (place / name).mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (place / name).write_bytes(data)
        (place / name.removeprefix("vllm/")).write_bytes(data)
    (place / "new/deep/d.py").write_bytes(b"D = 0\n")
    return place


def look(outside: Path) -> Snapshot:
    """Take what is there; a hard link to a file of the tree counts as a change too."""
    return snapshot(outside)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", ["apply", "revert"])
def test_a_folder_becomes_a_link_at_any_moment(
    tmp_path: Path, name: str, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    outside = outside_of(tmp_path)
    before = look(outside)
    whole = _made(tmp_path / "whole", change)
    calls = faults.calls(lambda: _change(whole, change))
    tried = few(range(1, calls + 1), 10, f"link {change} {name}")
    swapped = 0
    for number in tried:
        folder = tmp_path / str(number)
        root = _made(folder, change)

        def work(number: int = number, root: Path = root) -> None:
            faults.at(number, lambda: swap(root, name, outside))
            _change(root, change)

        faults.in_child(work)
        assert (folder / "reached").exists()
        swapped += (folder / "site-away").exists()
        assert look(outside) == before, f"call {number}"
        shutil.rmtree(folder)
    assert swapped >= len(tried) // 10


def _made(folder: Path, change: str) -> Path:
    root = build(folder / "site")
    if change == "revert":
        commit(str(root), ONE)
    return root


def _change(root: Path, change: str) -> None:
    wanted = ONE
    if change == "revert":
        state = read_state(str(root))
        assert state.receipt is not None
        wanted = revert_transition(str(root), state.receipt)
    commit(str(root), wanted)


# --- a tree from a stranger that says a transaction was interrupted in it ---------------


def planted(root: Path, *steps: Step, **more: object) -> Path:
    """Plant a journal whose inode was guessed."""
    work = root / f"{PREFIX}1500000000000000000"
    work.mkdir(mode=0o700)
    (work / "0").write_bytes(b"evil\n")
    rows = {"kept": [], "made": [], "gone": [], "folder": work.stat().st_ino, **more}
    (work / FILE).write_text(json.dumps(encode({"schema": 2, "steps": steps, **rows})))
    return work


EVIL = sha(b"evil\n")
GOOD = sha(b"good\n")


@pytest.mark.parametrize("row", range(8))
def test_a_planted_journal_changes_nothing_outside_of_the_tree(tmp_path: Path, row: int) -> None:
    root = build(tmp_path / "site")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"good\n")
    (root / "vllm/link").symlink_to(outside)
    target = str(outside / "x")
    temp = f"{outside}/.x.vllm-mods0"
    folder = Folder(str(outside), 0o777, 0, 0, 1)
    cases: list[tuple[list[Step], dict[str, object]]] = [
        ([Step(target, EVIL, GOOD, "0", temp)], {}),
        ([Step(target, None, GOOD, None, temp)], {}),
        ([Step("vllm/a.py", None, GOOD, None, target)], {}),
        ([Step("../outside/x", EVIL, GOOD, "0", temp)], {}),
        ([Step("vllm/link/x", EVIL, GOOD, "0", temp)], {}),
        ([Step("vllm/a.py", GOOD, sha(FILES["vllm/a.py"]), "../../outside/x", temp)], {}),
        ([], {"kept": [folder], "gone": [folder]}),
        ([], {"made": [str(tmp_path / "empty")], "kept": [Folder("vllm/link", 0o777, 0, 0, 1)]}),
    ]
    steps, more = cases[row]
    planted(root, *steps, **more)
    (tmp_path / "empty").mkdir()
    before = snapshot(outside, tmp_path / "empty")
    with contextlib.suppress(NotRestored):  # what would lead through a link
        assert not recover(str(root))
    assert snapshot(outside, tmp_path / "empty") == before


def test_a_copy_of_a_tree_says_that_its_journal_was_written_elsewhere(tmp_path: Path) -> None:
    root = build(tmp_path / "site")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "t.jinja").write_bytes(b"old")
    wanted = transition(write(f"{workspace}/t.jinja", b"old", b"new"), *ONE.changes)

    def work() -> None:
        faults.at(40, faults.kill, names=("replace",))
        faults.at(18, faults.kill)
        commit(str(root), wanted, workspace=str(workspace))

    assert faults.in_child(work) < 0
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    said: list[str] = []
    assert not recover(str(copy), said.append)
    assert "outside the tree, so it was not written here" in said[0]
    assert recover(str(root))
    assert (workspace / "t.jinja").read_bytes() == b"old"


@pytest.mark.parametrize("time", ["²", "--1", "9" * 30, "x"])
def test_a_folder_that_is_named_like_no_work_folder_is_none(tmp_path: Path, time: str) -> None:
    root = build(tmp_path / "site")
    (root / f"{PREFIX}{time}").mkdir()
    assert not recover(str(root))


def test_outputs_are_not_written_through_a_planted_link(tmp_path: Path) -> None:
    place, theirs = tmp_path / "page.html", tmp_path / "theirs"
    theirs.write_bytes(b"theirs")
    staged = tmp_path / ".page.html.new"
    for plant in (staged.symlink_to, staged.hardlink_to):
        plant(theirs)
        with pytest.raises(Refused, match="cannot be written"):
            named_files.write(str(place), b"page")
        assert theirs.read_bytes() == b"theirs"
        staged.unlink()
    named_files.write(str(place), b"page")
    assert place.read_bytes() == b"page"
    assert not staged.exists()


def test_a_library_is_not_written_through_a_planted_link(tmp_path: Path) -> None:
    library, theirs = tmp_path / "library", tmp_path / "theirs"
    theirs.mkdir()
    (library / "patches").mkdir(parents=True)
    for planted in (writing.LAID_OUT, writing.READY, "patches/x"):
        (library / planted).symlink_to(theirs)
        with pytest.raises(Refused, match="was not created by vllm-mods;"):
            writing.replace(str(library), {"patches/x/mod.toml": b""})
        assert os.listdir(theirs) == []
        (library / planted).unlink()
    writing.replace(str(library), {"patches/x/mod.toml": b"1"})
    assert (library / "patches/x/mod.toml").read_bytes() == b"1"
    assert os.listdir(library) == ["patches"]
