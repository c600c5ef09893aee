"""Branches of a library's repository, made without a checkout: working tree, index and HEAD stay as they are."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import git
from git.exc import GitCommandError, InvalidGitRepositoryError, NoSuchPathError

from vllm_mods.base.errors import Refused, UsageError

PREFIX = "vllm-mods/"


class LibraryHome(NamedTuple):
    """A repository, and the path in it where the library lies (``.`` for all of it)."""

    repository: git.Repo
    path: str


def home(library: str) -> LibraryHome:
    """Find the repository of a library. Raises ``UsageError`` if it is in none."""
    try:
        found = git.Repo(library, search_parent_directories=True)
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise UsageError(
            f"{library} is in no git repository, and what is kept up goes into branches of one",
            hint=f"git init {library} && git -C {library} add -A && git -C {library} commit",
        ) from error
    top = found.working_tree_dir
    if top is None:
        raise UsageError(f"{library}: its repository has no working tree", hint="git clone it")
    return LibraryHome(found, os.path.relpath(os.path.realpath(library), os.path.realpath(top)))


def tip(home: LibraryHome, name: str) -> str | None:
    """Return the commit of a branch or another revision, None if there is none."""
    try:
        return str(home.repository.git.rev_parse("--verify", "--quiet", f"{name}^{{commit}}"))
    except GitCommandError:
        return None


@contextmanager
def laid_out(home: LibraryHome, commit: str) -> Iterator[str]:
    """Lay the library out in a scratch folder as a commit has it, and take that away again.

    Raises ``Refused`` where the commit has no library there.
    """
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
        run = home.repository.git
        env = {"GIT_INDEX_FILE": os.path.join(scratch, "index")}
        with run.custom_environment(**env):
            run.read_tree(commit)
            run.checkout_index("--all", f"--prefix={scratch}/tree/")
        folder = os.path.normpath(os.path.join(scratch, "tree", home.path))
        if not os.path.isdir(folder):
            raise Refused(
                f"{commit[:12]} has no {home.path}: the library is not in that commit",
                hint=f"git log --stat -- {home.path}",
            )
        yield folder


def commit(home: LibraryHome, name: str, parent: str, folder: str, message: str) -> str:
    """Make a branch with one commit more than ``parent``: the library as it is in a scratch folder.

    Raises ``Refused`` if a branch of that name is there by now, or nobody is known as its author.
    """
    top = os.path.normpath(os.path.join(folder, os.path.relpath(".", home.path)))
    run = git.Git(top)
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
        env = {
            "GIT_DIR": str(home.repository.git_dir),
            "GIT_WORK_TREE": top,
            "GIT_INDEX_FILE": os.path.join(scratch, "index"),
        }
        try:
            with run.custom_environment(**env):
                run.read_tree(parent)
                run.add("--all", "--force", "--", home.path)
                tree = run.write_tree()
                made = str(run.commit_tree(tree, "-p", parent, "-m", message))
                run.update_ref(f"refs/heads/{name}", made, "")  # only if there is none
        except GitCommandError as error:
            said = str(error.stderr).strip().removeprefix("stderr: ").strip("' \n")
            raise Refused(
                f"the branch {name} could not be made: {said}",
                hint="git config user.name NAME; git config user.email ADDRESS"
                if "ident" in said
                else f"git branch --list '{PREFIX}*'",
            ) from error
    return made
