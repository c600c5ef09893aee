"""Bytecode that PYTHONPYCACHEPREFIX keeps outside of the tree does not run in place of what a mod changed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, build

from vllm_mods.cli import run

if TYPE_CHECKING:
    from pathlib import Path

A = FILES["vllm/a.py"].decode()
COMPILE = "import compileall; compileall.compile_dir({!r}, invalidation_mode={}, quiet=1)"


def python(*line: str, prefix: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": str(prefix), "SOURCE_DATE_EPOCH": "1700000000"}
    return subprocess.run(
        [sys.executable, *line], cwd=cwd, env=environ, text=True, capture_output=True, check=False
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("mode", ["UNCHECKED_HASH", "TIMESTAMP"])
def test_the_changed_code_runs_after_apply_and_after_revert(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "cache"
    root = build(tmp_path / "site")
    os.utime(root / "vllm/a.py", (1700000000, 1700000000))
    write_mod(tmp_path / "library", "one", diff_of("vllm/a.py", A, "A = 2\n"))
    text = "import py_compile; print(py_compile.PycInvalidationMode.{0}.name)\n" + COMPILE
    code = text.replace("{0}", mode).format(str(root), f"py_compile.PycInvalidationMode.{mode}")

    def runs() -> str:
        return python("-c", "import vllm.a; print(vllm.a.A)", prefix=prefix, cwd=root).stdout

    def compiled() -> list[Path]:
        return list(prefix.rglob("a.cpython-*.pyc"))

    assert python("-c", code, prefix=prefix, cwd=tmp_path).returncode == 0
    assert len(compiled()) == 1
    assert runs() == "1\n"
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    assert run(["apply", "one", "--library", f"{tmp_path}/library", "--target", str(root)]) == 0
    assert capfd.readouterr().err == ""
    assert runs() == "2\n"
    assert python("-c", code, prefix=prefix, cwd=tmp_path).returncode == 0
    assert run(["revert", "--target", str(root)]) == 0
    assert runs() == "1\n"
    assert list(prefix.rglob("b.cpython-*.pyc"))


def test_what_lies_behind_a_link_is_named_and_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    prefix, outside = tmp_path / "cache", tmp_path / "outside"
    root = build(tmp_path / "site")
    write_mod(tmp_path / "library", "one", diff_of("vllm/a.py", A, "A = 2\n"))
    outside.mkdir()
    (outside / "a.cpython-311.pyc").write_bytes(b"theirs")
    place = prefix / str(root)[1:]
    place.mkdir(parents=True)
    (place / "vllm").symlink_to(outside)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    assert run(["apply", "one", "--library", f"{tmp_path}/library", "--target", str(root)]) == 0
    said = capfd.readouterr().err.replace("\n  ", " ")
    assert f"rm {place}/vllm/a.cpython-311.pyc" in said
    assert (outside / "a.cpython-311.pyc").read_bytes() == b"theirs"
