"""``diff`` shows what mods would change, as a diff that others take."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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
