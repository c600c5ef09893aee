"""`check`, `lock`, `image verify` and `doctor` hold what lies beside a vLLM against what its METADATA requires."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import small_site
from paired import NAME, Caller
from test_lock_and_build import base

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

METADATA = b"""Name: vllm
Version: 0.19.1
Requires-Dist: torch==2.11.0
Requires-Dist: xgrammar>=1
"""
BESIDE = {
    "vllm-0.19.1.dist-info/METADATA": METADATA,
    "torch/version.py": b"__version__ = '2.10.0+cu130'\n",
}
WRONG = "torch 2.10.0+cu130 is installed, but this vLLM requires torch==2.11.0"


def test_what_is_beside_an_image_is_told_by_each_of_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    place = f"oci:{base(tmp_path / 'base', more=BESIDE)}"
    call = Caller(tmp_path, capfd, place)
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(call.library))
    hint = "(pip install 'torch==2.11.0')"
    assert f"note: {WRONG} {hint} [unmet-requirement]\n" in call("lock", NAME, "--base", place).err
    verified = call("image", "verify", place, code=1)  # it has no lock
    assert f"note: {WRONG} [unmet-requirement]" in verified.out
    assert "xgrammar" not in verified.out
    checked = call("check", "patching", "--target", f"image:{place}")
    assert f"beside vLLM: {WRONG} [unmet-requirement]\n" in checked.out
    assert "xgrammar" not in checked.out
    doctor = call("doctor", "--target", f"image:{place}", code=1)
    assert f"  {WRONG} [unmet-requirement]\n    hint: pip install 'torch==2.11.0'\n" in doctor.out
    rest = "packages that this vLLM requires were not searched for (1): xgrammar"
    assert f"\n  {rest} [requirement-elsewhere]\n" in doctor.out


def test_check_tells_it_of_a_folder_and_goes_on(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Caller(tmp_path, capfd)
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(call.library))
    files = {**small_site.FILES, "vllm/a.py": b"A = 1\n", **BESIDE}
    site = small_site.build(tmp_path / "site", files)
    (site / "torch-2.10.0+cu130.dist-info").mkdir()
    answer = call("check", "patching", "--target", site, "--json")
    (found,) = json.loads(answer.out)["beside"]
    assert (found["message"], found["code"]) == (WRONG, "unmet-requirement")
