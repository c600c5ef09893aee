"""Branches of a library's repository, made without a checkout: working tree, index and HEAD stay as they are.

The repository may be anybody's, so git runs none of the programs that it names: no hook, and no filter,
since files are taken out of it and put into it as the bytes that it has.
"""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from vllm_mods.base import secrets
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.output import write_below
from vllm_mods.formats import tree_names
from vllm_mods.library import catalog, reading
from vllm_mods.trees import git_process
from vllm_mods.trees.git import Repository

PREFIX = "vllm-mods/"
_OWN = "vllm-mods-keep"
"""The trailer of a commit of ours: it names the tree, so that no commit that a person amended has it."""
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color")
_UNSHOWN = re.compile(r"/mod\.lock\Z|/\.port-[^/]+/(?!files/)")  # what nobody reads in a diff


class LibraryHome(NamedTuple):
    """A repository, and the path in it where the library lies (``.`` for all of it)."""

    repository: Repository
    path: str

    @property
    def prefix(self) -> str:
        """What the paths of its files begin with."""
        return "" if self.path == "." else f"{self.path}/"

    def run(self, what: str, *words: str, given: str = "", index: str | None = None) -> bytes:
        """Return what a command of git prints. Raises ``Refused``, which says ``what`` failed."""
        done = self.repository.run(*words, given=os.fsencode(given), index=index)
        if done.why:
            raise self.refused(what, done.why)
        return done.out

    def refused(self, what: str, why: str) -> Refused:
        """Return the refusal of something that failed."""
        hint = f"{self.repository.typed} branch --list 'vllm-mods*'"
        if "ident" in why:
            hint = "git config user.name NAME; git config user.email ADDRESS"
        elif re.search("unable to access|Authentication|remote rejected", why):
            hint = "the token needs the right to push (GitHub: contents: write; GitLab: write_repository; Gitea: write:repository)"
        elif "rejected" in why:
            hint = "git fetch NAME '+refs/heads/vllm-mods/*:refs/heads/vllm-mods/*'  # replaces your branches with those of the remote; then run keep again"
        elif "ermission denied" in why or "ead-only" in why:
            hint = f"ls -ld {self.repository.git_dir}"
        return Refused(f"{what}: {secrets.clean(why, os.environ)}", hint=hint)


def home(library: str, settings: Sequence[tuple[str, str]] = ()) -> LibraryHome:
    """Find the repository of a library, with ``settings`` of git. Raises ``UsageError`` if it is in none."""
    environ = git_process.environment(os.environ)
    # Nothing that the repository names is run, so its owner may be anybody.
    words = ("-c", "safe.directory=*", "rev-parse")
    asked = ("--absolute-git-dir", "--show-toplevel")
    place, top = (git_process.run(library, (*words, what), environ) for what in asked)
    if place.why or top.why:
        why = f"{library} is not in the working tree of a git repository, and `keep` writes its results as git branches"
        hint = f"git init {library} && git -C {library} add -A -- ':!patches/*/.port-*' && git -C {library} commit"
        raise UsageError(why, hint=hint)
    path = os.path.relpath(os.path.realpath(library), os.path.realpath(top.text))
    return LibraryHome(Repository(top.text, library, git_dir=place.text, settings=settings), path)


def tip(home: LibraryHome, name: str) -> str | None:
    """Return the commit of a branch or another revision, None if there is none.

    Raises ``Refused`` for a repository that git does not read.
    """
    done = home.repository.run("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if done.code not in {0, 1}:
        raise home.refused(f"{name} cannot be read", done.why)
    return done.text or None


def is_name(home: LibraryHome, name: str) -> bool:
    """Tell whether a branch can have a name."""
    return not home.repository.run("check-ref-format", "--branch", name).why


def files(home: LibraryHome, commit: str) -> dict[str, tuple[bytes, str]]:
    """Return the mode and the blob of each file of the library in a commit, by their paths in it.

    Raises ``TreeError`` for a commit that cannot be listed, or names that lead out of it.
    """
    whole = home.repository.entries(commit)
    inside = [path for path in whole if path.startswith(home.prefix)]
    entries = {path.removeprefix(home.prefix): whole[path] for path in inside}
    for path in entries:
        tree_names.split(path, commit)
    return entries


@contextmanager
def laid_out(home: LibraryHome, commit: str) -> Iterator[str]:
    """Lay the library out in a scratch folder as a commit has it, and take that away again.

    Links are left out. Raises ``Refused`` where the commit has no library there, or one of which a
    file is a link, ``TreeError`` for one that lies in git-lfs.
    """
    entries = files(home, commit)
    if not entries:
        why = f"the commit {commit[:12]} does not contain the library {home.path}"
        raise Refused(why, hint=f"git log --stat -- {home.path}")
    for path, (mode, _) in entries.items():
        if path.split("/")[0] in catalog.PARTS and not mode.startswith(b"100"):
            why = f"{home.prefix}{path} is a link or a submodule, which `keep` does not read"
            hint = f"replace it by the files themselves, then git add {home.prefix}{path}"
            raise Refused(why, hint=hint)
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        for path, (mode, blob) in entries.items():
            if mode.startswith(b"100"):
                write_below(folder, path, home.repository.blob(blob, f"{home.prefix}{path}"))
            if mode == b"100755":
                os.chmod(os.path.join(folder, path), 0o755)  # noqa: S103  (in a scratch folder)
        yield folder


def commit(
    home: LibraryHome, name: str, parent: str, folder: str, message: str, *, again: bool = False
) -> str:
    """Make a branch with one commit more than ``parent``: the library as it is in a scratch folder.

    Raises ``Refused`` if a branch of that name is there by now and not made ``again``, or nobody is known as its author.
    """
    before = files(home, parent)
    paths = sorted(reading.paths_below(folder))
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
        index = os.path.join(scratch, "index")

        def run(*words: str, given: str = "") -> str:
            what = f"the branch {name} could not be made"
            return home.run(what, *words, given=given, index=index).decode().strip()

        run("read-tree", parent)
        places = "".join(f"{folder}/{path}\n" for path in paths)
        ids = run("hash-object", "-w", "--no-filters", "--stdin-paths", given=places).split()
        blobs = dict(zip(paths, ids, strict=True))
        modes = ((path, *before.get(path, (b"100644", None))) for path in blobs)
        changed = ((path, mode.decode()) for path, mode, was in modes if was != blobs[path])
        rows = [f"{mode} {blobs[path]}\t{home.prefix}{path}\0" for path, mode in changed]
        plain = {path: blob for path, (mode, blob) in before.items() if mode.startswith(b"100")}
        gone = ((path, "0" * len(blob)) for path, blob in plain.items() if path not in blobs)
        rows += [f"0 {zeros}\t{home.prefix}{path}\0" for path, zeros in gone]
        run("update-index", "-z", "--index-info", given="".join(rows))
        tree = run("write-tree")
        text = f"{message}\n{_OWN}: {tree}\n"
        sha = run("commit-tree", tree, "-p", parent, "-F", "-", given=text)
        if again:
            run("branch", "--force", "--no-track", name, sha)  # unless it is checked out somewhere
        else:
            run("update-ref", f"refs/heads/{name}", sha, "")  # only if there is none
    return sha


def is_own(home: LibraryHome, since: str, tip: str) -> bool:
    """Tell whether all that a branch has and ``since`` lacks was made by ``commit``, and not changed."""
    form = f"--format=%T %(trailers:key={_OWN},valueonly,separator=%x20)"
    rows = home.run(f"{tip} cannot be read", "log", form, f"{since}..{tip}").decode().splitlines()
    return all(tree == own for tree, _, own in (row.partition(" ") for row in rows))


def is_outdated(home: LibraryHome, since: str, tip: str, mod: str) -> bool:
    """Tell whether a mod is another one in ``since`` than where a branch began. Raises ``Refused`` if it began nowhere."""
    words = (*_DIFF, "--quiet", f"{tip}...{since}", "--", f"{home.prefix}patches/{mod}")
    done = home.repository.run(*words)
    if done.code not in {0, 1}:
        raise home.refused(f"{tip} cannot be compared with {since}", done.why)
    return done.code == 1


def describe(home: LibraryHome, since: str, tip: str, mod: str) -> tuple[str, str]:
    """Return the message of the newest commit of ours on a branch, else of the newest, and the diff of a mod's files.

    A new variant is shown as what it changes of the one that it is most like.
    """
    what, log = f"{tip} cannot be read", ("log", "-1", "--format=%B")
    message = home.run(what, *log, f"--grep=^{_OWN}: ", f"{since}..{tip}")
    message = message or home.run(what, *log, tip)
    paths = [path for path in files(home, tip) if path.startswith(f"patches/{mod}/")]
    own = [f"{home.prefix}{path}" for path in paths if not _UNSHOWN.search(path)]
    words = (*_DIFF, "--find-copies-harder", "-C30%", f"{since}...{tip}", "--", *own)
    text, _, _ = message.decode(errors="replace").partition(f"\n{_OWN}: ")
    return text.strip(), home.run(what, *words).decode(errors="replace")
