"""Matrices of strange mods, trees and indexes: each cell says what it is, and nothing is a bug."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from matrix_making import cell, large
from mod_making import diff_of, write_mod
from package_server import PackageServer, make_wheel, serving, settings_of_none

from vllm_mods.base.model import Mod
from vllm_mods.cli import run
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import html, matrix_forms, matrix_grid, matrix_markdown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A = {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n"}


def wheel(version: str, platform: str = "manylinux_2_31_x86_64") -> str:
    return f"vllm-{version}-cp38-abi3-{platform}.whl"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    write_mod(
        tmp_path / "library", "one", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"), vllm=">=0.19"
    )
    return tmp_path / "library"


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    settings_of_none(tmp_path, monkeypatch)
    files = {wheel(one): make_wheel(A, version=one, bulk={}) for one in ("0.19.0", "0.20.0")}
    with serving(PackageServer(files=files, json=True)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def matrix(capfd: pytest.CaptureFixture[str], library: Path, *more: str) -> tuple[int, Any]:
    capfd.readouterr()
    code = run(["matrix", "one", "--library", str(library), "--jobs", "1", "--json", *more])
    return code, json.loads(capfd.readouterr().out)


def test_trees_of_one_version_have_names_of_their_own() -> None:
    trees = ("pypi:0.21.0", "wheel:/a/" + wheel("0.21.0"), "wheel:/b/" + wheel("0.21.0"), "pypi:" + wheel("0.21.0"))  # fmt: skip
    of = matrix_grid.grid(MatrixResult(tuple(cell(version="0.21.0", tree=tree) for tree in trees)))
    labels = list(of.labels.values())
    assert len(set(labels)) == len(trees), labels


def test_names_that_turn_text_around_turn_nothing() -> None:
    evil = "\u061c\u202e<img src=x onerror=alert(1)>\u2066"
    made = MatrixResult(
        (cell("one", mod_version=evil),), mods=(Mod("one", "1", evil, "MIT", "", ""),)
    )
    page = html.render(made)
    assert "<img" not in page
    for text in (page, matrix_forms.text(made), matrix_markdown.render(made)):
        assert not {"\u061c", "\u202e", "\u2066"} & set(text)


@pytest.mark.slow
def test_no_mods_and_very_many_are_pages() -> None:
    assert html.render(MatrixResult(())).endswith("</html>\n")
    page = html.render(large(500, 46))
    assert page.count('<th scope="row">') == 500
    assert len(page) < 8_000_000


@pytest.mark.slow
def test_a_release_that_has_nothing_to_read_is_a_cell(
    index: PackageServer, library: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index.files[wheel("0.20.1", "manylinux_2_31_aarch64")] = make_wheel(
        A, version="0.20.1", bulk={}
    )
    index.files[wheel("0.20.2", "win_amd64")] = make_wheel(A, version="0.20.2", bulk={})
    index.files[wheel("0.20.3")] = b""
    code, said = matrix(capfd, library)
    found = {one["tree"]: one["verdict"] for one in said["cells"]}
    assert found["pypi:0.19.0"] == found["pypi:0.20.0"] == "applies"
    assert found["pypi:0.20.3"] == "unreadable"
    assert code == 1


@pytest.mark.slow
def test_an_index_with_errors_says_so_and_the_next_run_goes_on(
    index: PackageServer, library: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    index.failures = 100
    code, said = matrix(capfd, library)
    assert code != 70
    assert "error" in said
    index.failures = 0
    code, said = matrix(capfd, library)
    assert (code, [one["verdict"] for one in said["cells"]]) == (0, ["applies"] * 2)


@pytest.mark.slow
def test_two_runs_at_once_on_one_cache_give_the_same(index: PackageServer, library: Path) -> None:
    command = [sys.executable, "-m", "vllm_mods", "matrix", "one", "--library", str(library), "--json", "--jobs", "1"]  # fmt: skip
    runs = [
        subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ.copy()) for _ in range(3)
    ]
    said = [one.communicate()[0] for one in runs]
    assert [one.returncode for one in runs] == [0] * 3
    assert len(set(said)) == 1
    assert index.requests
