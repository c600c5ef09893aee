"""What docs/differs.md says of the habits of ruff's and quilt's users is what those tools do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from doc_commands import environment


def say(tmp_path: Path, script: str) -> list[str]:
    """Run lines of bash in a folder of their own, and return what each `echo $?` said."""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment(tmp_path / "home", {}),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.slow
def test_ruff_and_vllm_mods_tell_what_a_code_means(tmp_path: Path) -> None:
    ruff = Path(sys.prefix, "bin/ruff")
    assert say(
        tmp_path,
        f"""
        {ruff} rule F401 >/dev/null; echo $?
        vllm-mods explain fit-call >/dev/null; echo $?
        """,
    ) == ["0", "0"]


TWO = """
mkdir vllm; seq 1 30 >vllm/a.py
for one in 5 15; do
    quilt new $one.patch; quilt add vllm/a.py; sed -i "s/^$one$/here/" vllm/a.py; quilt refresh
done
"""


@pytest.mark.slow
def test_quilt_is_content_where_apply_is_not(tmp_path: Path) -> None:
    if shutil.which("quilt") is None:
        assert "CI" not in os.environ
        pytest.skip("not installed: quilt")
    assert say(
        tmp_path,
        f"""({TWO}) >/dev/null
        quilt push -a >/dev/null 2>&1; echo $?              # all in already
        echo edited >>vllm/a.py; quilt pop >/dev/null 2>&1; echo $?
        sed -i '$d' vllm/a.py; quilt pop -a >/dev/null
        sed -i 's/^12$/XII/' vllm/a.py; quilt push -a | grep -c fuzz
        quilt pop -a >/dev/null; quilt push -a --fuzz=0 >/dev/null 2>&1; echo $?
        quilt applied                                       # the earlier one stays
        """,
    ) == ["2", "1", "1", "1", "patches/5.patch"]
