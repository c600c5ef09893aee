"""Branches of a library's repository, made without a checkout: working tree, index and HEAD stay as they are.

The repository may be anybody's, so git runs none of the programs that it names: no hook, and no filter,
since files are taken out of it and put into it as the bytes that it has.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import git
from git.exc import GitCommandError, InvalidGitRepositoryError, NoSuchPathError

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.formats import tree_names
from vllm_mods.library import catalog
from vllm_mods.trees import git as git_trees

PREFIX = "vllm-mods/"
_NO_FILTER = {b"unspecified", b"unset"}


class LibraryHome(NamedTuple):
    """A repository, and the path in it where the library lies (``.`` for all of it)."""

    repository: git.Repo
    path: str

    @property
    def prefix(self) -> str:
        """What the paths of its files begin with."""
        return "" if self.path == "." else f"{self.path}/"


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
    # by name: a hook that runs this has those of its own repository in the environment
    found.git.update_environment(
        **git_trees.safe_environment(os.environ),
        GIT_DIR=str(found.git_dir),
        GIT_WORK_TREE=str(top),
    )
    return LibraryHome(found, os.path.relpath(os.path.realpath(library), os.path.realpath(top)))


def tip(home: LibraryHome, name: str) -> str | None:
    """Return the commit of a branch or another revision, None if there is none.

    Raises ``Refused`` for a repository that git does not read.
    """
    try:
        return str(home.repository.git.rev_parse("--verify", "--quiet", f"{name}^{{commit}}"))
    except GitCommandError as error:
        if error.status == 1:
            return None
        raise _refused(home, f"{name} cannot be read", error) from error


def is_name(home: LibraryHome, name: str) -> bool:
    """Tell whether a branch can have a name."""
    try:
        home.repository.git.check_ref_format("--branch", name)
    except GitCommandError:
        return False
    return True


def files(home: LibraryHome, commit: str) -> dict[str, tuple[bytes, str]]:
    """Return the mode and the blob of each file of the library in a commit, by their paths in it.

    Raises ``TreeError`` for a commit that cannot be listed, or names that lead out of it.
    """
    listed = git_trees.listed(home.repository, commit, f"{home.repository.working_dir}@{commit}")
    found = {
        path.removeprefix(home.prefix): entry
        for path, entry in listed.items()
        if path.startswith(home.prefix)
    }
    for path in found:
        tree_names.split(path, commit)
    return found


@contextmanager
def laid_out(home: LibraryHome, commit: str) -> Iterator[str]:
    """Lay the library out in a scratch folder as a commit has it, and take that away again.

    Links are left out. Raises ``Refused`` where the commit has no library there, or one of which a
    file is a link or other bytes than the commit has.
    """
    found = files(home, commit)
    if not found:
        raise Refused(
            f"{commit[:12]} has no {home.path}: the library is not in that commit",
            hint=f"git log --stat -- {home.path}",
        )
    own = [path for path in found if path.split("/")[0] in catalog.PARTS]
    for path in own:
        if not found[path][0].startswith(b"100"):
            raise Refused(
                f"{home.prefix}{path} is a link or a submodule: it is not kept up",
                hint=f"put the files themselves in its place, then git add {home.prefix}{path}",
            )
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
        _check_filters(home, commit, own, scratch)
        folder = os.path.join(scratch, "tree")
        for path, (mode, blob) in found.items():
            if mode.startswith(b"100"):
                _lay_out(home, os.path.join(folder, path), blob, executable=mode.endswith(b"755"))
        yield folder


def _lay_out(home: LibraryHome, place: str, blob: str, *, executable: bool) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    try:
        stream = home.repository.odb.stream(bytes.fromhex(blob))
        with open(place, "xb") as file:
            while data := stream.read(1 << 20):
                file.write(data)
    except (GitCommandError, ValueError) as error:
        raise _refused(home, f"the blob {blob[:12]} cannot be read", error) from error
    if executable:
        os.chmod(place, 0o755)  # noqa: S103  (in a scratch folder)


def _check_filters(home: LibraryHome, commit: str, paths: list[str], scratch: str) -> None:
    """Refuse files that a filter, git-lfs say, makes others of: that is a program."""
    names = os.path.join(scratch, "names")
    with open(names, "w+b") as file:
        file.write(b"".join(os.fsencode(f"{home.prefix}{path}") + b"\0" for path in paths))
        file.seek(0)
        run = home.repository.git
        with run.custom_environment(GIT_INDEX_FILE=os.path.join(scratch, "index")):
            try:
                run.read_tree(commit)
                said: bytes = run.check_attr(
                    "--cached", "--stdin", "-z", "filter", istream=file, stdout_as_string=False
                )
            except GitCommandError as error:
                raise _refused(home, f"{commit[:12]} cannot be read", error) from error
    rows = said.split(b"\0")
    for path, value in zip(rows[::3], rows[2::3], strict=False):
        if value not in _NO_FILTER:
            raise Refused(
                f"{os.fsdecode(path)} goes through the filter {value.decode(errors='replace')!r} of "
                "git: what the commit has is not what the mod has",
                hint="exclude it in .gitattributes: patches/** -filter",
            )


def commit(home: LibraryHome, name: str, parent: str, folder: str, message: str) -> str:
    """Make a branch with one commit more than ``parent``: the library as it is in a scratch folder.

    Raises ``Refused`` if a branch of that name is there by now, or nobody is known as its author.
    """
    before = files(home, parent)
    there = sorted(
        os.path.relpath(os.path.join(above, one), folder)
        for above, _, names in os.walk(folder)
        for one in names
    )
    run = home.repository.git
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:

        def given(text: str) -> str:
            place = os.path.join(scratch, "given")
            with open(place, "wb") as file:
                file.write(os.fsencode(text))
            return place

        try:
            with run.custom_environment(GIT_INDEX_FILE=os.path.join(scratch, "index")):
                run.read_tree(parent)
                with open(given("".join(f"{folder}/{one}\n" for one in there)), "rb") as file:
                    said = run.hash_object("-w", "--no-filters", "--stdin-paths", istream=file)
                blobs = dict(zip(there, said.split(), strict=True))
                rows = [
                    f"{before.get(one, (b'100644', ''))[0].decode()} {blob}\t{home.prefix}{one}\0"
                    for one, blob in blobs.items()
                    if before.get(one, (b"", ""))[1] != blob
                ]
                rows += [
                    f"0 {'0' * len(blob)}\t{home.prefix}{one}\0"
                    for one, (mode, blob) in before.items()
                    if mode.startswith(b"100") and one not in blobs
                ]
                with open(given("".join(rows)), "rb") as file:
                    run.update_index("-z", "--index-info", istream=file)
                text = given(message)
                made = str(run.commit_tree(run.write_tree(), "-p", parent, "-F", text))
                run.update_ref(f"refs/heads/{name}", made, "")  # only if there is none
        except GitCommandError as error:
            raise _refused(home, f"the branch {name} could not be made", error) from error
    return made


def _refused(home: LibraryHome, what: str, error: Exception) -> Refused:
    said = git_trees.said(error)
    folder = home.repository.working_dir
    hint = f"git -C {folder} branch --list 'vllm-mods*'"
    if "ident" in said:
        hint = "git config user.name NAME; git config user.email ADDRESS"
    elif "ermission denied" in said or "ead-only" in said:
        hint = f"ls -ld {home.repository.git_dir}"
    return Refused(f"{what}: {said}", hint=hint)
