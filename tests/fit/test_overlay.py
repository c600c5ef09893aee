"""The folder that the type checker reads: links into the tree, which stays as it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from vllm_mods.fit.overlay import overlay, replace


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

    with overlay(str(site), {"vllm/new.py": b"B = 1\n"}) as folder:
        assert os.path.islink(f"{folder}/vllm/kept.py")
        monkeypatch.setattr(os, "unlink", refuse_once)
    monkeypatch.undo()
    assert refused
    assert stat.S_IMODE(kept.stat().st_mode) == 0o644


def test_files_of_an_overlay_are_replaced_and_taken_away(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "vllm").mkdir(parents=True)
    (site / "vllm" / "changed.py").write_text("A = 1\n")

    with overlay(str(site), {"vllm/changed.py": b"A = 2\n", "vllm/new.py": b"B = 1\n"}) as folder:
        replace(folder, {"vllm/changed.py": b"A = 3\n", "vllm/new.py": None})
        shown = {path.name: path.read_text() for path in Path(folder, "vllm").iterdir()}

    assert shown == {"changed.py": "A = 3\n"}
    assert (site / "vllm" / "changed.py").read_text() == "A = 1\n"
