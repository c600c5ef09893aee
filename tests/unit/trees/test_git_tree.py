"""Revisions of a local repository."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from vllm_mods.errors import TreeError, UsageError
from vllm_mods.trees import open_tree

if TYPE_CHECKING:
    from pathlib import Path


def git(folder: Path, *args: str) -> str:
    names = {"GIT_AUTHOR_NAME": "a", "GIT_COMMITTER_NAME": "a"}
    mails = {"GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_EMAIL": "a@b"}
    run = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-C", str(folder), *args],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **names, **mails, "GIT_CONFIG_GLOBAL": os.devnull},
    )
    return run.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "re@po"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_bytes(b"first\r\n")
    (folder / "vllm" / "link.py").symlink_to("__init__.py")
    (folder / "vllm" / "caf\u00e9.py").write_bytes(b"c")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    return folder


def commit(folder: Path, data: bytes) -> None:
    (folder / "vllm" / "__init__.py").write_bytes(data)
    git(folder, "commit", "-qam", "more")


def test_a_revision_is_read_without_touching_the_checkout(repository: Path) -> None:
    first = git(repository, "rev-parse", "HEAD")
    commit(repository, b"second\n")
    (repository / "vllm" / "__init__.py").write_bytes(b"edited\n")
    before = git(repository, "status", "--porcelain=v2", "--branch")
    tree = open_tree(f"git:{repository}@{first[:10]}")
    assert tree.read("vllm/__init__.py") == b"first\r\n"
    assert open_tree(f"git:{repository}@HEAD").read("vllm/__init__.py") == b"second\n"
    assert open_tree(f"git:{repository}@HEAD@{{1}}").read("vllm/__init__.py") == b"first\r\n"
    assert tree.read("vllm/gone.py") is None
    assert tree.read("vllm/caf\u00e9.py") == b"c"
    assert set(tree.paths()) == {"vllm/__init__.py", "vllm/caf\u00e9.py"}
    assert tree.is_released("vllm/__init__.py", b"second\n") is False
    assert tree.pristine
    assert not tree.remote
    assert git(repository, "status", "--porcelain=v2", "--branch") == before


def test_links_and_ways_out_are_refused(repository: Path) -> None:
    tree = open_tree(f"git:{repository}@HEAD")
    with pytest.raises(TreeError, match="symbolic link"):
        tree.read("vllm/link.py")
    for path in ("../x", "/etc/hostname"):
        with pytest.raises(TreeError, match="refusing to read"):
            tree.read(path)


def test_the_version_comes_from_the_tags(repository: Path) -> None:
    assert open_tree(f"git:{repository}@HEAD").version is None
    git(repository, "tag", "v0.19.1")
    git(repository, "tag", "nightly")
    assert open_tree(f"git:{repository}@HEAD").version == "0.19.1"
    commit(repository, b"2")
    commit(repository, b"3")
    short = git(repository, "rev-parse", "--short=7", "HEAD")
    assert open_tree(f"git:{repository}@HEAD").version == f"0.19.2.dev2+g{short}"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{repo}@nope", "no revision nope"),
        ("{repo}@--help", "no revision --help"),
        ("{repo}", "no revision given"),
        ("{repo}/vllm@HEAD", "not a git repository"),
        ("/gone@HEAD", "no such folder"),
        ("https://github.com/vllm-project/vllm@main", "on this machine"),
    ],
)
def test_what_is_not_there_is_said(repository: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_tree("git:" + name.format(repo=repository))
    assert caught.value.hint


def test_a_repository_of_something_else_is_said(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    with pytest.raises(UsageError, match="holds no vLLM"):
        open_tree(f"git:{tmp_path}@HEAD")


def test_without_git_the_message_says_what_to_install(repository: Path) -> None:
    code = (
        "from vllm_mods.errors import TreeError\nfrom vllm_mods.trees import open_tree\n"
        f"try: open_tree('git:{repository}@HEAD')\n"
        "except TreeError as error: print(error, error.hint)"
    )
    env = {"PATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert "need the git program" in run.stdout
    assert "apt-get install git" in run.stdout
