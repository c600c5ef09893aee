"""Where Python finds a vLLM, and which one it would find first."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from vllm_mods.diagnosis import search

if TYPE_CHECKING:
    from pathlib import Path


def tree(folder: Path) -> str:
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm/__init__.py").touch()
    return os.path.realpath(folder)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return tree(tmp_path / "root")


def test_nothing_is_ahead_of_the_only_one(root: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    path = [str(tmp_path / "empty"), root]
    assert search.ahead_of(root, {"HOME": str(tmp_path)}, path) is None


@pytest.mark.parametrize("first", [True, False])
def test_the_order_of_the_search_path_decides(root: str, tmp_path: Path, *, first: bool) -> None:
    other = tree(tmp_path / "other")
    path = [other, root] if first else [root, other]
    assert search.ahead_of(root, {}, path) == (other if first else None)


def test_of_another_python_what_pythonpath_names_counts(root: str, tmp_path: Path) -> None:
    """``root`` is not on the search path: another Python would import it."""
    other, third = tree(tmp_path / "other"), tree(tmp_path / "third")
    named = {"PYTHONPATH": os.pathsep.join(["", str(tmp_path / "none"), other])}
    assert search.ahead_of(root, named, [third]) == other
    assert search.ahead_of(root, {}, [third]) is None


@pytest.mark.parametrize("environment", [True, False])
def test_the_users_own_packages_count_outside_of_an_environment(
    tmp_path: Path, *, environment: bool
) -> None:
    root = tree(tmp_path / "prefix/lib/python3.12/dist-packages")
    own = tree(tmp_path / "base/lib/python3.12/site-packages")
    tree(tmp_path / "base/lib/python3.11/site-packages")
    if environment:
        (tmp_path / "prefix/pyvenv.cfg").touch()
    environ = {"PYTHONUSERBASE": str(tmp_path / "base")}
    assert search.ahead_of(root, environ, []) == (None if environment else own)


def test_no_process_is_stale_where_nothing_was_applied(root: str) -> None:
    assert list(search.stale_processes(root)) == []


def test_an_environment_has_each_of_its_pythons(tmp_path: Path) -> None:
    places = [tree(tmp_path / f"lib/python3.{minor}/site-packages") for minor in (11, 12)]
    (tmp_path / "lib/python3.13/site-packages").mkdir(parents=True)
    assert list(search.in_prefix(str(tmp_path))) == places
    assert list(search.in_prefix("")) == []
    assert list(search.in_prefix("a\0b")) == []


def test_a_file_that_is_none_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"a\xff")
    assert search.text(str(tmp_path / "pipe")) == ""
    assert search.text(str(tmp_path / "none")) == ""
    assert search.text(str(tmp_path / "file")) == "a\udcff"
