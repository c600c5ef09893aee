"""Installed files that are names of a package cache's: what is done to the tree is not done to the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import faults
import pytest
from mod_making import diff_of, write_mod
from sampling import few
from small_site import FILES, ONE, RECORD, build, row, snapshot

from vllm_mods.cli import run
from vllm_mods.site.state_folder import read_state
from vllm_mods.site.transaction import commit, recover
from vllm_mods.site.transitions import revert_transition

if TYPE_CHECKING:
    from pathlib import Path

A = FILES["vllm/a.py"].decode()


def linked(folder: Path) -> tuple[Path, Path]:
    """Make a site of which every file has a second name in a cache."""
    root = build(folder / "site")
    cache = folder / "cache"
    shutil.copytree(root, cache, copy_function=os.link)
    return root, cache


def bare(cache: Path) -> dict[str, tuple[object, ...]]:
    """Take everything of a cache but how many names its files have."""
    return {path: (*one[:3], *one[4:]) for path, one in snapshot(cache).items()}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("change", ["apply", "revert"])
def test_a_cache_stays_as_it_is_whenever_a_change_is_killed(
    tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)

    def ready(folder: Path) -> tuple[Path, Path]:
        root, cache = linked(folder)
        if change == "revert":
            commit(str(root), ONE)
        return root, cache

    def changed(root: Path) -> None:
        there = read_state(str(root)).receipt
        commit(str(root), ONE if there is None else revert_transition(str(root), there))

    whole, _cache = ready(tmp_path / "whole")
    for number in few(range(1, faults.calls(lambda: changed(whole)) + 1), 6, f"linked {change}"):
        root, cache = ready(tmp_path / str(number))
        before, tree = bare(cache), snapshot(root)

        def work(root: Path = root, number: int = number) -> None:
            faults.at(number, faults.kill)
            changed(root)

        assert faults.in_child(work) < 0
        assert bare(cache) == before
        recover(str(root))
        assert bare(cache) == before
        done = (read_state(str(root)).receipt is not None) is (change == "apply")
        assert done or snapshot(root) == tree


@pytest.mark.skipif(shutil.which("uv") is None, reason="uv is not installed")
@pytest.mark.parametrize("mode", ["hardlink", "clone", "copy"])
def test_the_cache_of_a_real_uv_stays_byte_for_byte(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    info = RECORD.removesuffix("/RECORD")
    files = {
        **FILES,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: vllm\nVersion: 0.19.1\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    wheel = tmp_path / "vllm-0.19.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        rows = b"".join(row(name, data) for name, data in files.items())
        archive.writestr(RECORD, rows + f"{RECORD},,\n".encode())
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_LINK_MODE", mode)
    venv = tmp_path / "venv"
    subprocess.run(["uv", "venv", "-q", "--offline", venv, "--python", sys.executable], check=True)
    install = [
        "uv",
        "pip",
        "install",
        "-q",
        "--offline",
        "--no-deps",
        "--python",
        str(venv),
        str(wheel),
    ]
    subprocess.run(install, check=True)
    (place,) = venv.glob("lib/python*/site-packages/vllm/a.py")
    root = place.parent.parent
    (kept,) = (tmp_path / "cache").glob("archive-*/*/vllm")
    is_linked = place.samefile(kept / "a.py")
    assert is_linked or mode != "hardlink"  # what cannot be cloned is linked, too
    before = bare(kept.parent)
    write_mod(tmp_path / "library", "one", diff_of("vllm/a.py", A, "A = 2\n"))
    line = ["apply", "one", "--library", str(tmp_path / "library"), "--target", str(root)]
    assert run([*line, "--keep-links"]) == (3 if is_linked else 0)
    capsys.readouterr()
    assert run(line) == 0
    assert ("vllm/a.py is hard-linked" in capsys.readouterr().err) is is_linked
    assert place.read_text() == "A = 2\n"
    assert bare(kept.parent) == before
    assert run(["revert", "--target", str(root)]) == 0
    assert place.read_text() == A
    assert bare(kept.parent) == before
