"""The folder that the type checker reads: links into the tree, which stays as it is."""

from __future__ import annotations

import functools
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fit_tree import tree_of

from vllm_mods.fit import overlay as laying_out
from vllm_mods.fit.overlay import Overlay


def test_a_link_that_cannot_be_removed_leaves_the_file_behind_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python before 3.11.8 gave such a file the mode 0700."""
    site = tmp_path / "site"
    (site / "vllm").mkdir(parents=True)
    kept = site / "vllm" / "kept.py"
    kept.write_text("A = 1\n")
    kept.chmod(0o644)
    unlink = os.unlink
    refused: list[Any] = []

    def refuse_once(path: Any, **given: Any) -> None:
        if os.path.basename(os.fspath(path)) == "kept.py" and not refused:
            refused.append(path)
            raise PermissionError(13, "Permission denied", path)
        unlink(path, **given)

    overlay = overlay_of(site)
    folder = overlay.show({"vllm/new.py": b"B = 1\n"})
    assert os.path.islink(f"{folder}/vllm/kept.py")
    monkeypatch.setattr(os, "unlink", refuse_once)
    del overlay
    monkeypatch.undo()
    assert refused
    assert stat.S_IMODE(kept.stat().st_mode) == 0o644


def test_other_files_are_shown_in_place_of_the_first_ones(tmp_path: Path) -> None:
    for path in ("vllm/a.py", "vllm/sub/b.py", "vllm/sub/c.py", "beside/d.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("old")
    overlay = overlay_of(tmp_path)
    whole = {"vllm/a.py": "old", "vllm/sub/b.py": "old", "vllm/sub/c.py": "old"}

    assert shown(overlay.show({"vllm/sub/b.py": b"1", "vllm/sub/new.py": b"2"})) == {
        **whole,
        "vllm/sub/b.py": "1",
        "vllm/sub/new.py": "2",
    }
    place = overlay.show({"vllm/sub/c.py": None})
    assert shown(place) == {"vllm/a.py": "old", "vllm/sub/b.py": "old"}
    assert os.path.islink(f"{place}/vllm/sub/b.py"), "the tree's own file again"
    assert shown(overlay.show({"vllm/sub/c.py": b"3"}))["vllm/sub/c.py"] == "3"
    assert overlay.show({}) == place
    assert shown(place) == whole
    for more in ({"vllm/pack/__init__.py": b""}, {"beside/d.py": b"4"}, {"top.py": b"5"}):
        assert shown(overlay.show({**more})).keys() == whole.keys() | more.keys()
    assert shown(overlay.show({})) == whole, "no folder stays that would be a package"
    del overlay
    assert (tmp_path / "vllm/sub/b.py").read_text() == "old"


def test_what_could_not_be_shown_whole_is_shown_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/a.py").write_text("old")
    overlay = overlay_of(tmp_path)
    overlay.show({"vllm/b.py": b"1"})
    write = Path.write_bytes

    def refuse(place: Path, data: bytes) -> int:
        if place.name == "c.py":
            raise OSError(28, "No space left on device")
        return write(place, data)

    monkeypatch.setattr(Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="No space"):
        overlay.show({"vllm/a.py": b"2", "vllm/c.py": b"3"})
    assert shown(overlay.show({"vllm/b.py": b"1"})) == {"vllm/a.py": "old", "vllm/b.py": "1"}


def test_the_folder_lies_in_memory_where_it_has_room_and_nobody_names_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(room: int) -> None:
        monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=room))

    def place() -> str:
        return os.path.dirname(os.path.dirname(overlay_of(tmp_path).show({})))

    monkeypatch.delenv("TMPDIR", raising=False)
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(laying_out, "_MEMORY", str(memory))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    free(1 << 20)
    assert place() == str(tmp_path)
    free(1 << 29)
    assert place() == str(memory)
    for room, trees in ((1 << 29, 0), (1 << 30, 1)):  # a release takes 40 MB
        free(room)
        kept = Overlay(tree_of({"vllm/a.py": "old"}))
        assert shown(kept.show({})) == {"vllm/a.py": "old"}
        assert len([*memory.iterdir()]) == trees
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert place() == str(tmp_path)


def test_what_a_killed_process_left_in_memory_goes_with_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TMPDIR", raising=False)
    monkeypatch.setattr(laying_out, "_MEMORY", str(tmp_path))
    dead = "import os; overlay.show({}); os._exit(0)"
    used = "import time; overlay.show({}); print(flush=True); time.sleep(60)"
    code = "from pathlib import Path; from fit_tree import tree_of; from vllm_mods.fit import overlay as o; "
    code += f"o._MEMORY = {str(tmp_path)!r}; overlay = o.Overlay(tree_of({{'vllm/a.py': 'old'}})); "
    start = functools.partial(
        subprocess.Popen,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    with start([sys.executable, "-c", code + used]) as living:
        assert living.stdout is not None
        living.stdout.readline()
        (kept,) = tmp_path.iterdir()
        with start([sys.executable, "-c", code + dead]):
            pass
        (left,) = {*tmp_path.iterdir()} - {kept}
        young = Overlay(tree_of({"vllm/a.py": "old"}))
        assert left.exists()
        for one in (kept, left):
            os.utime(one, (0, 0))
        other = Overlay(tree_of({"vllm/a.py": "old"}))
        assert (kept.exists(), left.exists()) == (True, False)
        assert shown(young.show({})) == shown(other.show({})) == {"vllm/a.py": "old"}
        living.kill()


def overlay_of(site: Path) -> Overlay:
    tree = tree_of({})
    tree.root = str(site)
    return Overlay(tree)


def shown(folder: str) -> dict[str, str]:
    """Return all files of a folder by their paths."""
    return {
        os.path.relpath(os.path.join(where, name), folder): Path(where, name).read_text()
        for where, below, names in os.walk(folder, followlinks=True)
        for name in names
    } | {
        f"{os.path.relpath(os.path.join(where, name), folder)}/": ""
        for where, below, _ in os.walk(folder, followlinks=True)
        for name in below
        if not os.listdir(os.path.join(where, name))
    }
