"""The single file, run in a folder of somebody else's."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import single_file

if TYPE_CHECKING:
    from pathlib import Path


def test_no_module_of_the_current_folder_is_loaded(tmp_path: Path) -> None:
    for place, said in (("stage", "ours"), ("here", "theirs")):
        package = tmp_path / place / "vllm_mods"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "__main__.py").write_text(f"print({said!r})\n")
    single_file.write({single_file.MINE: tmp_path / "stage"}, tmp_path / "x.pyz")
    done = subprocess.run(
        [sys.executable, tmp_path / "x.pyz"],
        cwd=tmp_path / "here",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "ours\n"
