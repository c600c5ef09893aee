"""``diff`` shows what mods would change, as a diff that others take."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest
    from command_line import Answer

    Call = Callable[..., Answer]


def test_git_makes_of_it_what_apply_makes(call: Call, site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site / "vllm", copy / "vllm")
    answer = call("diff", "fast", "limit", "--target", site)
    assert (answer.code, answer.err) == (0, "")
    subprocess.run(["git", "apply", "-"], cwd=copy, input=answer.out.encode(), check=True)
    assert call("apply", "fast", "limit", "--target", site).code == 0
    for name in ("loader.py", "other.py"):
        assert (copy / "vllm" / name).read_bytes() == (site / "vllm" / name).read_bytes()
    again = call("diff", "fast", "limit", "--target", site)
    assert (again.code, again.out) == (0, "")
    assert "nothing would change" in again.err


def test_it_lists_files_as_data(call: Call, site: Path) -> None:
    found = call("diff", "limit", "--target", site, "--json").json
    assert found["files"] == [{"path": "vllm/other.py", "added": 1, "removed": 1}]
    assert found["ok"] is True


def test_of_what_does_not_fit_there_is_no_diff(call: Call, site: Path) -> None:
    (site / "vllm/loader.py").write_text("gone\n")
    answer = call("diff", "fast", "limit", "--target", site)
    assert answer.code == 1
    assert "diff --git" not in answer.out
    assert "fast 1.0.0   missing" in answer.out or "fast 1.0.0   conflict" in answer.out
    assert call("diff", "fast", "limit", "--target", site, "--json").json["files"] == []


def test_on_a_terminal_it_goes_through_a_pager(
    site: Path, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    monkeypatch.setenv("TERM", "xterm")
    words = ["diff", "limit", "--target", str(site), "--library", str(library)]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, [sys.executable, "-m", "vllm_mods", *words])  # noqa: S606
    said = b""
    while True:
        try:
            more = os.read(terminal, 4096)
        except OSError:  # nobody is at the other end any more
            break
        said += more
    os.close(terminal)
    assert os.waitpid(child, 0)[1] == 0
    assert b"paged:-LIMIT = 1" in said
