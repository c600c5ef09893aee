"""Revisions of a local repository."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from histories import git, grow

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.trees.git import Repository
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_links_and_ways_out_are_refused(repository: Path) -> None:
    tree = open_tree(f"git:{repository}@HEAD")
    with pytest.raises(TreeError, match="symbolic link"):
        tree.read("vllm/link.py")
    for path in ("../x", "/etc/hostname"):
        with pytest.raises(TreeError, match="refusing to read"):
            tree.read(path)


@pytest.mark.slow
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
        ("{repo}", "no revision was given"),
        ("{repo}/vllm@HEAD", "not a git repository"),
        ("/gone@HEAD", "no such folder"),
        ("https://github.com/vllm-project/vllm@main", "on this machine"),
    ],
)
def test_what_is_not_there_is_said(repository: Path, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        open_tree("git:" + name.format(repo=repository))
    assert caught.value.hint


@pytest.mark.slow
def test_a_repository_of_something_else_is_said(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "x")
    with pytest.raises(UsageError, match="has no vLLM") as caught:
        open_tree(f"git:{tmp_path}@HEAD")
    assert caught.value.hint == "name a clone of vLLM's repository"


@pytest.mark.slow
def test_without_git_the_message_says_what_to_install(repository: Path) -> None:
    code = (
        "from vllm_mods.base.errors import TreeError\nfrom vllm_mods.trees.open import open_tree\n"
        f"try: open_tree('git:{repository}@HEAD')\n"
        "except TreeError as error: print(error, error.hint)"
    )
    env = {"PATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    assert "need the git program" in run.stdout
    assert "apt-get install git" in run.stdout


@pytest.mark.slow
def test_a_line_of_history_follows_first_parents(tmp_path: Path) -> None:
    first, second = grow(
        tmp_path,
        ("one (#1)", {"vllm/__init__.py": "", "vllm/a.py": "1\n"}),
        ("two\n\nof many words", {"vllm/a.py": None, "vllm/caf\u00e9 b.py": "2\n"}),
    )
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "nothing")
    git(tmp_path, "checkout", "-q", "-b", "side", first)
    (tmp_path / "vllm/c.py").write_text("3\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "on the side")
    git(tmp_path, "checkout", "-q", "main")
    git(tmp_path, "merge", "-q", "--no-ff", "side", "-m", "Merge pull request #7 from a/side")
    git(tmp_path, "config", "log.showSignature", "true")
    git(tmp_path, "config", "diff.renames", "copies")
    line = Repository(str(tmp_path)).line(first, git(tmp_path, "rev-parse", "main"))
    assert [one.subject for one in line] == ["two", "nothing", "Merge pull request #7 from a/side"]
    assert [set(one.paths) for one in line] == [
        {"vllm/a.py", "vllm/caf\u00e9 b.py"},
        set(),
        {"vllm/c.py"},
    ]
    assert line[0].sha == second
    assert line[0].parents == (first,)
    assert len(line[2].parents) == 2
    assert line[0].date.startswith("2023-11-14T22:")


@pytest.mark.slow
def test_a_blob_is_read_once_for_all_commits(tmp_path: Path) -> None:
    commits = grow(
        tmp_path,
        ("one", {"vllm/__init__.py": "same\n", "vllm/a.py": "1\n"}),
        ("two", {"vllm/a.py": "2\n"}),
    )
    repository = Repository(str(tmp_path))
    first, second = (repository.tree(commit) for commit in commits)
    assert (first.read("vllm/a.py"), second.read("vllm/a.py")) == (b"1\n", b"2\n")
    assert first.read("vllm/__init__.py") is second.read("vllm/__init__.py")


# --- a repository from a stranger ---------------------------------------------------------

FETCH = {
    "an ext: transport": {
        "remote.origin.url": "ext::sh -c touch% {}",
        "protocol.ext.allow": "always",
    },
    "a program in place of upload-pack": {
        "remote.origin.url": "{}.git",
        "remote.origin.uploadpack": "touch {};",
        "protocol.file.allow": "always",
    },
    "a program in place of ssh": {
        "remote.origin.url": "ssh://localhost:1/x",
        "core.sshCommand": "touch {};",
    },
    "a helper of its own": {
        "remote.origin.url": "https://localhost:1/x",
        "remote.origin.vcs": "sh",
    },
    "a proxy command": {"remote.origin.url": "git://localhost:1/x", "core.gitProxy": "touch {};"},
}
ALWAYS = {
    "core.alternateRefsCommand": "touch {};",
    "core.fsmonitor": "touch {};",
    "core.pager": "touch {};",
    "core.askPass": "touch {};",
    "credential.helper": "!touch {};",
    "gpg.program": "touch {};",
    "log.showSignature": "true",
    "diff.external": "touch {};",
    "diff.x.textconv": "touch {};",
    "filter.x.smudge": "touch {};",
    "filter.x.process": "touch {};",
}


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", FETCH)
def test_no_setting_of_a_repository_runs_a_program(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    mark = tmp_path / "run"
    commit(repository, b"second\n")
    (repository / ".gitattributes").write_text("* filter=x diff=x\n")
    lazy = {"extensions.partialClone": "origin", "remote.origin.promisor": "true"}
    git(repository, "config", "core.repositoryFormatVersion", "1")
    for key, value in {**ALWAYS, **lazy, **FETCH[case]}.items():
        git(repository, "config", key, value.format(mark))
    for hook in (repository / ".git/hooks").iterdir():
        hook.unlink()
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        hook = repository / ".git/hooks" / name
        hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
        hook.chmod(0o755)
    blob = git(repository, "ls-tree", "HEAD", "vllm/__init__.py").split()[2]
    (repository / ".git/objects" / blob[:2] / blob[2:]).unlink()
    monkeypatch.chdir(repository)
    tree = open_tree(f"git:{repository}@HEAD")
    assert tree.version is None
    assert list(Repository(str(repository)).line("HEAD~1", "HEAD"))
    with pytest.raises(TreeError, match="cannot read"):
        tree.read("vllm/__init__.py")
    assert not mark.exists()


def test_where_histories_parted_and_what_was_renamed(tmp_path: Path) -> None:
    text = "one\ntwo\nthree\nfour\n"
    start = {"vllm/__init__.py": "", "vllm/a b.py": text, "vllm/gone.py": "gone\n"}
    moved = {"vllm/a b.py": None, "vllm/caf\u00e9.py": text + "five\n", "vllm/gone.py": None}
    first, second = grow(tmp_path, ("Start", start), ("Rename", moved))
    opened = Repository(str(tmp_path))
    assert opened.renames(first, second) == {"vllm/a b.py": "vllm/caf\u00e9.py"}
    assert opened.renames(first, first) == {}
    assert opened.merge_base(second, first) == first
    alone = git(tmp_path, "commit-tree", "-m", "Alone", f"{first}^{{tree}}")
    assert opened.merge_base(first, alone) is None
