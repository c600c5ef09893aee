"""``export`` of mods: a folder that launchers run, which changes vLLM to what ``apply`` makes of it, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
from command_line import LOADER
from mod_making import diff_of, write_mod
from small_site import PYC, snapshot

from vllm_mods.library import mod_folder as libraries
from vllm_mods.making import applier

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

MORE = """
overlay = [{ source = "new.py", path = "vllm/deep/new.py" }]
templates = [{ name = "tiny", file = "tiny.jinja" }]
"""
NEW = b"# -*- coding: latin-1 -*-\nNEW = '\xff'\n"


@pytest.fixture
def mine(library: Path) -> Path:
    """A mod with two patches of one file, one of another, a new file and a template."""
    slow = LOADER.replace('"weights"', '"slow"', 1)
    first = diff_of("vllm/loader.py", LOADER, slow)
    second = diff_of(
        "vllm/loader.py", slow, "import sys\n" + slow.replace("Saver", "Keeper"), context=4
    )
    other = diff_of("vllm/a.py", "A = 1\n", "A = 'é'\n")
    folder = write_mod(library, "mine", first)
    (folder / "y.patch").write_bytes(second + other)
    (folder / "new.py").write_bytes(NEW)
    (folder / "templates/tiny").mkdir(parents=True)
    (folder / "templates/tiny/template.jinja").write_text("{{ messages }}")
    manifest = (folder / "mod.toml").read_text().replace('["x.patch"]', '["x.patch", "y.patch"]')
    (folder / "mod.toml").write_text(manifest + MORE)
    return folder


@pytest.fixture
def exported(call: Call, mine: Path, site: Path, tmp_path: Path) -> Path:
    answer = call("export", "mine", "--output", tmp_path / "out/mine", "--tree", site)
    assert answer.code == 0, answer.err
    assert mine.is_dir()
    return tmp_path / "out/mine"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


def start(
    folder: Path, site: Path | None, workspace: Path | None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run the folder as launchers do, with nothing of this process around it."""
    environ = {"PATH": os.environ["PATH"], **more}
    if site is not None:
        environ["VLLM_SITE_PACKAGES"] = str(site)
    if workspace is not None:
        environ["WORKSPACE_DIR"] = str(workspace)
    return subprocess.run(
        ["./run.sh"], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def contents(*roots: Path) -> dict[str, tuple[str, bytes]]:
    return {
        f"{n}/{path.relative_to(root)}": (oct(path.stat().st_mode), path.read_bytes())
        for n, root in enumerate(roots)
        for path in root.rglob("*")
        if path.is_file() and ".vllm-mods" not in path.parts and path.name != "RECORD"
    }


def test_it_makes_what_apply_makes(
    call: Call, exported: Path, site: Path, workspace: Path, tmp_path: Path
) -> None:
    twin, other = tmp_path / "twin", tmp_path / "other"
    shutil.copytree(site, twin)
    other.mkdir()
    assert call("apply", "mine", "--target", twin, "--workspace", other).code == 0
    done = start(exported, site, workspace)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine 1.0.0: 4 files changed" in done.stdout
    assert contents(site, workspace) == contents(twin, other)
    assert not (site / PYC).exists()
    assert (workspace / "tiny.jinja").read_text() == "{{ messages }}"
    assert call("check", "mine", "--target", site, "--workspace", workspace).code == 0


def test_a_second_run_changes_nothing(exported: Path, site: Path, workspace: Path) -> None:
    assert start(exported, site, workspace).returncode == 0
    before = snapshot(site, workspace)
    again = start(exported, site, workspace)
    assert again.returncode == 0
    assert "is in already" in again.stdout
    assert snapshot(site, workspace) == before


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({"PYTHON_ROOT": "{site}"}, True),
        ({"VLLM_PACKAGE_DIR": "{site}/vllm/"}, True),
        ({"PYTHONPATH": "{site}"}, True),
        ({"PYTHON_ROOT": "/none"}, False),
        ({}, False),
    ],
)
def test_where_vllm_is(
    exported: Path, site: Path, workspace: Path, variables: dict[str, str], *, found: bool
) -> None:
    more = {name: value.format(site=site) for name, value in variables.items()}
    done = start(exported, None, workspace, **more)
    assert (done.returncode == 0) is found, done.stderr
    assert ("NEW" in str(contents(site))) is found


def edit_loader(site: Path) -> None:
    (site / "vllm/loader.py").write_text(LOADER + "# mine\n")


def put_half(site: Path) -> None:
    (site / "vllm/deep").mkdir()
    (site / "vllm/deep/new.py").write_bytes(NEW)


def link_loader(site: Path) -> None:
    (site / "vllm/loader.py").rename(site / "vllm/real.py")
    (site / "vllm/loader.py").symlink_to("real.py")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (edit_loader, "vllm/loader.py has sha256"),
        (put_half, "vllm/deep/new.py has sha256"),
        (link_loader, "is a symbolic link"),
    ],
)
def test_any_other_tree_is_refused(
    exported: Path, site: Path, workspace: Path, change: Callable[[Path], None], says: str
) -> None:
    change(site)
    before = snapshot(site, workspace)
    done = start(exported, site, workspace)
    assert done.returncode == 3
    assert "mine 1.0.0: refused, nothing was changed" in done.stderr
    assert says in done.stderr
    assert snapshot(site, workspace) == before


def test_what_the_change_rests_on_is_held_too(
    call: Call, library: Path, site: Path, tmp_path: Path
) -> None:
    (site / "vllm/other.py").write_text("def limit():\n    return 1\n")
    patch = diff_of("vllm/a.py", "A = 1\n", "from vllm.other import limit\n\nA = limit()\n")
    write_mod(library, "limited", patch)
    answer = call("export", "limited", "--output", tmp_path / "limited", "--tree", site)
    assert answer.code == 0, answer.err
    (site / "vllm/other.py").write_text("def bound():\n    return 1\n")
    done = start(tmp_path / "limited", site, None)
    assert done.returncode == 3
    assert "others that they need are not" in done.stderr


def test_no_workspace_no_template(exported: Path, site: Path) -> None:
    before = snapshot(site)
    done = start(exported, site, None)
    assert (done.returncode, "WORKSPACE_DIR does not say" in done.stderr) == (3, True)
    assert snapshot(site) == before


def test_a_damaged_folder_is_refused(exported: Path, site: Path, workspace: Path) -> None:
    (exported / "mod/new.py").write_bytes(b"NEW = 2\n")
    before = snapshot(site, workspace)
    done = start(exported, site, workspace)
    assert (done.returncode, "this folder is damaged" in done.stderr) == (3, True)
    assert snapshot(site, workspace) == before


@pytest.mark.parametrize("failing", range(1, 5))
def test_a_failure_at_any_write_puts_everything_back(
    exported: Path, site: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    monkeypatch.setenv("VLLM_SITE_PACKAGES", str(site))
    monkeypatch.setenv("WORKSPACE_DIR", str(workspace))
    before = contents(site, workspace)
    replace, count = os.replace, iter(range(1, 100))

    def fail(source: str, target: str) -> None:
        if next(count) == failing:
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    mod = json.loads((exported / "states.json").read_text())
    with pytest.raises(OSError, match="No space left"):
        applier.run(mod, str(exported))
    assert contents(site, workspace) == before
    assert not (site / "vllm/deep").exists()


def test_what_cannot_be_put_back_is_said(
    exported: Path, site: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_SITE_PACKAGES", str(site))
    monkeypatch.setenv("WORKSPACE_DIR", str(workspace))
    replace, count = os.replace, iter(range(100))

    def fail(source: str, target: str) -> None:
        if next(count):
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(os, "replace", fail)
    mod = json.loads((exported / "states.json").read_text())
    with pytest.raises(RuntimeError, match="not all could be put back"):
        applier.run(mod, str(exported))


def test_import_takes_it_back_whole(
    call: Call, exported: Path, mine: Path, tmp_path: Path, site: Path
) -> None:
    again = tmp_path / "again"
    answer = call("import", exported, "--library", again, "--tree", site, "--json")
    assert answer.code == 0, answer.err
    assert answer.json["verdict"] == "applies"
    back = libraries.load_mod(str(again / "patches/mine"))
    assert back.digest == libraries.load_mod(str(mine)).digest
    assert back.lock is not None
    zipped = shutil.make_archive(str(tmp_path / "mine"), "zip", exported)
    assert call("import", zipped, "--library", tmp_path / "zip").code == 0
    assert contents(tmp_path / "zip") == contents(again)


@pytest.mark.parametrize("name", ["apply.py", "states.json", "mod/new.py", "more"])
def test_a_folder_that_was_changed_is_not_taken_back(
    call: Call, exported: Path, name: str, tmp_path: Path
) -> None:
    place = exported / name
    place.write_bytes((place.read_bytes() if place.exists() else b"") + b" ")
    answer = call("import", exported, "--library", tmp_path / "again")
    assert answer.code == 3
    assert "was changed since" in answer.err
    assert not (tmp_path / "again").exists()


def test_it_fails_closed_by_our_own_rules(call: Call, exported: Path) -> None:
    answer = call("lint", exported)
    assert (answer.code, answer.out) == (0, "")


def test_what_cannot_be_exported(call: Call, mine: Path, site: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for arguments, code, says in (
        ([], 2, "a mod becomes a folder: where?"),
        (["--output", out], 2, "nothing records a vLLM that mine goes into"),
        (["--output", out, "--tree", site, "--variant", "b"], 2, "with variant `b`"),
        (["--output", tmp_path, "--tree", site], 3, "is there already"),
    ):
        answer = call("export", "mine", *arguments)
        assert (answer.code, says in answer.err) == (code, True), answer.err
    edit_loader(site)
    (site / "vllm/loader.py").write_text("import re\n")
    answer = call("export", "mine", "--output", out, "--tree", site)
    assert answer.code == 3
    assert "nothing was written" in answer.err
    assert not out.exists()
    assert mine.is_dir()
    assert call("export", "nothing-like-it").code == 2
    assert call("export", "nothing-like-it", "--tree", site).code == 2
