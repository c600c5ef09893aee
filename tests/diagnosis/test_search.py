"""Where Python finds a vLLM, and which one it would find first."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest
from lowering import lower

from vllm_mods.diagnosis import search
from vllm_mods.trees.folder import roots_in


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


@pytest.mark.parametrize(
    ("origin", "is_taken"),
    [
        ('{"url": "file://%s", "dir_info": {"editable": true}}', True),
        ('{"url": "file://%s", "dir_info": {"editable": false}}', False),
        ('{"url": "file://%s", "dir_info": {}}', False),
        ('{"url": "file://%s/none", "dir_info": {"editable": true}}', False),
        ('{"url": "file://%s", "archive_info": {}}', False),
        ("{", False),
        ("", False),
        (None, False),
    ],
)
def test_the_source_of_an_editable_install_is_where_python_finds_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str | None, *, is_taken: bool
) -> None:
    source = tree(tmp_path / "my source")
    info = tmp_path / "site/vllm-0.19.1.dist-info"
    info.mkdir(parents=True)
    if origin is not None:
        (info / "METADATA").write_text("Name: vllm\nVersion: 0.19.1\n")
        (info / "direct_url.json").write_text(origin.replace("%s", source.replace(" ", "%20")))
    monkeypatch.setattr(sys, "path", [str(info.parent)])
    importlib.invalidate_caches()
    assert search.here() == (source if is_taken else None)
    if is_taken:  # what lies on the search path itself comes before it
        sys.path.append(tree(tmp_path / "other"))
        assert search.here() == str(tmp_path / "other")


def test_the_current_folder_counts_only_where_pythonpath_names_it(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tree(tmp_path / "other")
    monkeypatch.chdir(other)
    assert search.ahead_of(root, {}, ["", other, root]) is None
    named = {"PYTHONPATH": os.pathsep.join(["none", other])}
    assert search.ahead_of(root, named, [other, root]) == other


def test_a_current_folder_that_was_removed_is_none(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    other = tree(tmp_path / "other")
    assert search.ahead_of(root, {}, [other, root]) == other


def test_the_active_environments_are_those_of_this_python_and_of_the_surroundings_each_once(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "link")])
    venv, conda = (tree(tmp_path / f"{one}/lib/python3.12/site-packages") for one in "vc")
    program = tmp_path / "p/bin/python3"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    python = tree(tmp_path / "p/lib64/../lib/python3.12/dist-packages")
    environ = {"PATH": str(program.parent)}
    assert search.active(environ) == (root, python)
    environ |= {"VIRTUAL_ENV": str(tmp_path / "v"), "CONDA_PREFIX": str(tmp_path / "c")}
    assert search.active(environ) == (root, venv, conda)
    monkeypatch.setattr(sys, "path", [venv])
    assert search.active(environ) == (venv, conda)


def test_an_environment_has_each_of_its_pythons(tmp_path: Path) -> None:
    places = [tree(tmp_path / f"lib/python3.{minor}/site-packages") for minor in (11, 12)]
    (tmp_path / "lib/python3.13/site-packages").mkdir(parents=True)
    assert roots_in(str(tmp_path)) == places
    assert roots_in("") == []
    assert roots_in("a\0b") == []


def test_a_file_that_is_none_has_no_text(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"a\xff")
    assert search.text(str(tmp_path / "pipe")) == ""
    assert search.text(str(tmp_path / "none")) == ""
    assert search.text("/proc/self/mem") == ""  # what may not be read
    assert search.text(str(tmp_path / "file")) == "a\udcff"


def test_a_file_that_is_too_much_has_no_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "RECEIPT", 3)
    (tmp_path / "file").write_text("abc")
    assert search.text(str(tmp_path / "file")) == "abc"
    (tmp_path / "file").write_text("abcd")
    assert search.text(str(tmp_path / "file")) == ""
