"""The tool's own files: no mod writes them, and a journal that another one wrote is not obeyed."""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING

import faults
import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, ONE, build, sha, snapshot, transition, write

from vllm_mods.cli import run
from vllm_mods.formats import tree_names
from vllm_mods.site.journal import ASIDE, FILE, STAMP
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMPY = b"NUMPY = 1\n"
A = FILES["vllm/a.py"].decode()
WORK = ".vllm-mods.work-5"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = build(tmp_path / "site")
    (root / "numpy").mkdir()
    (root / "numpy/__init__.py").write_bytes(NUMPY)
    return root


@pytest.fixture
def library(tmp_path: Path) -> Path:
    folder = tmp_path / "library"
    write_mod(folder, "innocent", diff_of("vllm/a.py", A, "A = 2\n"))
    return folder


def forged(path: str = "numpy/__init__.py", data: bytes = NUMPY, **more: object) -> str:
    """Return a journal by which a file was new, so that undoing would delete it."""
    step = [path, None, sha(data), None, ".x.vllm-mods0"]
    return json.dumps({"schema": 1, "steps": [step], "kept": [], "made": [], "gone": [], **more})


def call(*line: str, root: Path, library: Path | None = None) -> int:
    more = [] if library is None else ["--library", str(library)]
    return run([*line, "--target", str(root), *more])


# --- a mod may not name them ---------------------------------------------------------------


def created(path: str) -> str:
    return f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+{{}}\n"


def deleted(path: str) -> str:
    return f"--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{{}}\n"


def renamed(old: str, new: str) -> str:
    return (
        f"diff --git a/{old} b/{new}\nsimilarity index 100%\nrename from {old}\nrename to {new}\n"
    )


PATCHES = {
    "created": created(f"{WORK}/journal.json"),
    "created deeper": created(f"vllm/{WORK}/journal.json"),
    "in the state": created(".vllm-mods/mods/other.json"),
    "a template of nobody's": created(".vllm-mods/templates/chat.jinja"),
    "in capitals": created(".VLLM-Mods.work-5/journal.json"),
    "full width": created("．ｖllm-mods.work-5/journal.json"),
    "a mark that does not show": created(".vllm-\u200bmods.work-5/journal.json"),
    "a separator of Windows": created("vllm\\.vllm-mods.work-5\\journal.json"),
    "a staged file": created("vllm/.a.py.vllm-mods0"),
    "deleted": deleted(f"{WORK}-x/journal.json"),
    "renamed from": renamed(f"{WORK}-x/journal.json", "vllm/x.json"),
    "renamed to": renamed("vllm/sub/c.py", f"{WORK}/journal.json"),
}


@pytest.mark.parametrize("kind", PATCHES)
def test_a_patch_that_names_the_tools_own_files_is_refused_by_its_plan(
    root: Path, library: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / f"{WORK}-x").mkdir()
    (root / f"{WORK}-x/journal.json").write_text("{}\n")
    write_mod(library, "evil", PATCHES[kind].encode())
    before = snapshot(root)
    assert call("check", "evil", "--json", root=root, library=library) == 1
    (one,) = json.loads(capsys.readouterr().out)["mods"]
    assert (one["verdict"], [found["code"] for found in one["findings"]]) == (
        "conflict",
        ["reserved"],
    )
    assert call("apply", "evil", root=root, library=library) == 3
    assert "is reserved for vllm-mods:" in capsys.readouterr().err
    assert snapshot(root) == before


@pytest.mark.parametrize("path", [f"./{WORK}/journal.json", f"vllm/../{WORK}/journal.json"])
def test_a_path_that_is_written_in_another_way_is_refused(
    root: Path, library: Path, path: str
) -> None:
    write_mod(library, "evil", created(path).encode())
    before = snapshot(root)
    assert call("apply", "evil", root=root, library=library) in {2, 3}
    assert snapshot(root) == before


@pytest.mark.parametrize(
    "path", [f"{WORK}/journal.json", f"vllm/{WORK}", ".vllm-mods/receipt.json"]
)
def test_an_overlay_that_names_the_tools_own_files_is_refused(
    root: Path, library: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mod = write_mod(library, "evil", diff_of("vllm/b.py", "B = 1\n", "B = 2\n"))
    (mod / "x").write_text(forged())
    with (mod / "mod.toml").open("a") as manifest:
        manifest.write(f'overlay = [{{ source = "x", path = "{path}" }}]\n')
    assert call("check", "evil", root=root, library=library) == 1
    assert "is reserved for vllm-mods:" in capsys.readouterr().out
    assert call("apply", "evil", root=root, library=library) == 3
    assert not list(root.glob(".vllm-mods*"))


@pytest.mark.parametrize("inside", [True, False])
def test_a_template_with_such_a_name_goes_to_no_workspace(
    tmp_path: Path, root: Path, library: Path, *, inside: bool
) -> None:
    mod = write_mod(library, "evil", diff_of("vllm/b.py", "B = 1\n", "B = 2\n"))
    with (mod / "mod.toml").open("a") as manifest:
        manifest.write(f'templates = [{{ name = "t", file = "{WORK}" }}]\n')
    (library / "templates/t").mkdir(parents=True)
    (library / "templates/t/template.jinja").write_text("{{ messages }}")
    workspace = root if inside else tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    line = ["apply", "evil", "--workspace", str(workspace)]
    assert call(*line, root=root, library=library) == 3
    assert not list(workspace.glob(".vllm-mods*"))


def test_names_that_only_look_alike_are_anybodys() -> None:
    names = ("vllm/vllm-mods.py", ".vllm", "vllm-mods/x", "vllm/.vllm-mod", "a.vllm-mods", "ä/ö.py")
    assert [name for name in names if tree_names.is_reserved(name)] == []


# --- what another one has planted ------------------------------------------------------------


def of_a_mod(root: Path, text: str) -> Path:
    """Plant a journal as the writer of before did for a mod: folders 0755, files 0644."""
    work = root / WORK
    work.mkdir(mode=0o755)
    (work / FILE).write_text(text)
    return work


def of_a_tar(root: Path, text: str) -> Path:
    """Plant a journal as whoever packs a tree can: with any mode."""
    work = of_a_mod(root, text)
    work.chmod(0o700)
    (work / FILE).chmod(0o600)
    return work


def _pipe(root: Path) -> None:
    work = of_a_tar(root, "")
    (work / FILE).unlink()
    os.mkfifo(work / FILE)


def _link(root: Path) -> None:
    work = of_a_tar(root, "")
    (work / FILE).unlink()
    (root / "vllm/j.json").write_text(forged())
    (work / FILE).symlink_to(root / "vllm/j.json")


PLANTED: dict[str, Callable[[Path], object]] = {
    "by a mod": lambda root: of_a_mod(root, forged()),
    "by a mod, of an inode": lambda root: of_a_mod(root, forged(folder=1)),
    "in a tar": lambda root: of_a_tar(root, forged()),
    "in a tar, of an inode": lambda root: of_a_tar(root, forged(folder=1)),
    "no JSON, by a mod": lambda root: of_a_mod(root, "{"),
    "no JSON, in a tar": lambda root: of_a_tar(root, "{"),
    "no journal": lambda root: of_a_tar(root, json.dumps({"schema": 7})),
    "a file": lambda root: (root / WORK).write_text("x"),
    "a link": lambda root: (root / WORK).symlink_to(root / "numpy"),
    "a folder in it": lambda root: (of_a_tar(root, forged()) / "0").mkdir(),
    "a pipe for a journal": _pipe,
    "a link for a journal": _link,
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_journal_is_set_aside_and_said_and_the_command_does_its_work(
    root: Path, library: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = snapshot(root)
    PLANTED[kind](root)
    time = root.stat().st_mtime_ns
    assert read_state(str(root)).unfinished is None
    assert call("apply", "innocent", root=root, library=library) == 0
    assert f"{root}/{ASIDE}0" in capsys.readouterr().err.replace("\n  ", " ")
    assert (root / "numpy/__init__.py").read_bytes() == NUMPY
    assert (root / "vllm/a.py").read_bytes() == b"A = 2\n"
    assert call("revert", root=root) == 0
    assert capsys.readouterr().err == ""
    assert root.stat().st_mtime_ns == time
    aside = root / f"{ASIDE}0"
    (shutil.rmtree if aside.is_dir() and not aside.is_symlink() else os.unlink)(aside)
    (root / "vllm/j.json").unlink(missing_ok=True)
    for path in (root, root / "vllm"):
        os.utime(path, ns=(clean[str(path)][2],) * 2)  # type: ignore[arg-type]
    assert snapshot(root) == clean


def test_what_was_set_aside_is_said_with_a_refusal_too(
    root: Path, library: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of_a_mod(root, forged())
    (root / "vllm/a.py").write_bytes(b"A = 3\n")
    assert call("apply", "innocent", root=root, library=library) == 3
    assert f"{ASIDE}0" in capsys.readouterr().err


def test_several_are_set_aside_and_the_tools_own_is_undone(root: Path) -> None:
    before = snapshot(root)

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(root), ONE)

    assert faults.in_child(work) < 0
    of_a_tar(root, forged())
    said: list[str] = []
    assert recover(str(root), said.append)
    assert len(said) == 1
    shutil.rmtree(root / f"{ASIDE}0")
    after = snapshot(root)
    assert {path for path in before if before[path] != after[path]} <= {str(root)}  # its mtime


def test_a_folder_of_another_user_is_not_obeyed(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may give files away")
    work = of_a_tar(root, "")
    (work / FILE).write_text(forged(folder=work.stat().st_ino))
    os.chown(work, 4321, 4321)
    assert not recover(str(root))
    assert (root / "numpy/__init__.py").read_bytes() == NUMPY


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_not_obeyed(root: Path, mode: int) -> None:
    work = of_a_tar(root, "")
    (work / FILE).write_text(forged(folder=work.stat().st_ino))
    work.chmod(mode)
    assert not recover(str(root))
    assert (root / "numpy/__init__.py").read_bytes() == NUMPY


def test_an_inode_that_was_guessed_leads_not_out_of_the_tree(tmp_path: Path, root: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"mine\n")
    work = of_a_tar(root, "")
    (work / STAMP).touch()
    stamp = [(work / STAMP).stat().st_ino, 1]
    for more in ({}, {"stamp": stamp}, {"stamp": None}):
        text = forged(str(outside), b"mine\n", folder=work.stat().st_ino, **more)
        (work / FILE).write_text(text)
        assert not recover(str(root))
        assert outside.read_bytes() == b"mine\n"
        (root / f"{ASIDE}0").rename(work)


def test_a_workspace_is_put_back_by_the_journal_that_was_written_here(
    tmp_path: Path, root: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    before = snapshot(root, workspace)
    wanted = transition(write(f"{workspace}/t.jinja", None, b"new"), *ONE.changes)

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(root), wanted, workspace=str(workspace))

    assert faults.in_child(work) < 0
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    assert (workspace / "t.jinja").exists()
    assert not recover(str(copy))
    assert (workspace / "t.jinja").exists()
    assert recover(str(root))
    assert snapshot(root, workspace) == before


def test_a_tree_whose_owner_was_changed_is_put_back(root: Path) -> None:
    """As an entry point's ``chown -R`` does after a container was killed and started again."""

    def work() -> None:
        faults.at(1, faults.kill, ("rmdir", "utime"))
        commit(str(root), ONE)

    assert faults.in_child(work) < 0
    for path in [root, *root.rglob("*")]:
        path.chmod(path.stat().st_mode & 0o7777)
        os.chown(path, os.geteuid(), os.getegid())
    assert recover(str(root))
    assert (root / "vllm/a.py").read_text() == A
