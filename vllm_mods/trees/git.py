"""``git:REPO@REV``: a revision, read from the object store of a local repository; its line of commits.

Nothing is checked out. The one place that imports GitPython, and for one job: a process of git that hands out blobs.
"""

import os
import re
import shlex
import weakref
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import PristineTree
from vllm_mods.base.versions import from_describe, node
from vllm_mods.formats import tree_names
from vllm_mods.trees import git_process
from vllm_mods.trees.folder import read_in_workspace
from vllm_mods.trees.git_process import GitOutcome

try:
    import git
    from git.exc import GitCommandError
except ImportError as error:  # GitPython raises it when there is no git program.
    why = f"git: trees need the git program: {str(error).splitlines()[0]}"
    raise TreeError(why, hint="apt-get install git") from error

REGULAR = frozenset({b"100644", b"100755", b"100664"})
"""The modes of plain files."""
# What GitHub writes: "(#12345)" behind the subject of a squashed one, "Merge pull request #12345".
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)\b", re.ASCII)
_LFS = b"version https://git-lfs.github.com/spec/"
_RECORD = re.compile(rb"\x01(?=[0-9a-f]{40,64}\0)")


class GitTree(PristineTree):
    """The files of one commit of a repository."""

    def __init__(
        self, repository: "Repository", commit: str, spec: str, version: str | None = None
    ) -> None:
        self.spec = spec
        self.commit = commit
        self._repository = repository
        self._files = repository.entries(commit)
        self._named = version
        if "vllm/__init__.py" not in self._files:
            why = f"{spec} has no vLLM: the commit has no vllm/__init__.py"
            raise UsageError(why, hint="name a clone of vLLM's repository")

    @cached_property
    def version(self) -> str | None:
        """What it was named, or the nearest tag's version, a development version after it; ``None`` without tags."""
        if self._named:
            return self._named
        tag = self._repository.run("describe", "--tags", "--long", "--match", "v*", self.commit)
        # It fails where no tag can be reached, as in a shallow clone.
        return None if tag.why else from_describe(tag.text)

    @cached_property
    def identity(self) -> str:
        """What names this tree for good: the commit, and the version that tags give it now."""
        return f"{self.commit} {self.version}"

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if there is none; ``TreeError`` for a link."""
        if path.startswith("/"):
            return read_in_workspace(path, self.workspace, self.spec)
        tree_names.split(path, self.spec)
        entry = self._files.get(path)
        if entry is None:
            return None
        mode, blob = entry
        if mode not in REGULAR:
            what = "a symbolic link" if mode == b"120000" else "a submodule"
            raise TreeError(f"{self.spec}: {path} is {what}", hint=f"git show {self.commit}:{path}")
        return self._repository.blob(blob, f"{self.spec}: {path}")

    def paths(self, under: str = "vllm") -> Iterator[str]:
        """Yield every regular file below ``under``; ``""`` is the whole commit."""
        prefix = "/".join(tree_names.split(under, self.spec)) + "/" if under else ""
        regular = (path for path, (mode, _) in self._files.items() if mode in REGULAR)
        return (path for path in regular if path.startswith(prefix))


def open_git(name: str, *, spec: str, version: str | None = None) -> GitTree:
    """Open ``REPO@REV``, by a version where its name states one. Raises ``UsageError`` if there is no such repository or revision."""
    folder, revision = split_name(f"git:{name}", spec)
    repository = Repository(folder, spec)
    return GitTree(repository, repository.commit(revision), spec, version)


def split_name(name: str, spec: str = "") -> tuple[str, str]:
    """Take the repository and the revision of ``git:REPO@REV`` apart: both may have an ``@`` in them.

    Raises ``UsageError`` for none, of ``spec`` where the tree was named otherwise.
    """
    spec = spec or name
    name = os.path.expanduser(name.removeprefix("git:"))
    places = [index for index, letter in enumerate(name) if letter == "@"]
    for index in reversed(places):
        if os.path.isdir(name[:index]) and name[index + 1 :]:
            return name[:index], name[index + 1 :]
    if os.path.isdir(name):
        raise UsageError(f"{spec}: no revision was given", hint=f"git:{name.rstrip('@')}@HEAD")
    if "://" in name or name.startswith("git@"):
        why = f"{spec}: only a repository on this machine can be read"
        raise UsageError(why, hint="git clone --filter=blob:none URL DIR, then git:DIR@REV")
    folder = name[: places[-1]] if places else name
    raise UsageError(f"{spec}: {folder}: no such folder", hint="git:FOLDER@REV")


class Commit(NamedTuple):
    """A commit: ``date`` is ISO 8601, ``paths`` are what differs from its first parent."""

    sha: str
    parents: tuple[str, ...]
    date: str
    subject: str
    paths: frozenset[str]

    @property
    def pull_request(self) -> int | None:
        """The number of the pull request that the subject names."""
        match = _PULL.search(self.subject)
        return int(match[1] or match[2]) if match else None


class Repository:
    """A local repository, opened once to read many of its commits; each blob is read once.

    ``git_dir`` names the part with its objects, where that is not looked for in ``folder``; ``settings`` are git's.
    """

    def __init__(
        self,
        folder: str,
        spec: str = "",
        *,
        git_dir: str | None = None,
        settings: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Open it. Raises ``UsageError`` if there is none."""
        self.folder = os.path.expanduser(folder)
        self.spec = spec or f"git:{self.folder}"
        self.typed = f"git -C {shlex.quote(self.folder)}"  # how a hint has it
        self._blobs: dict[str, bytes] = {}
        self._environ = git_process.environment(os.environ, settings=settings)
        if git_dir is not None:
            self._environ |= {"GIT_DIR": git_dir, "GIT_WORK_TREE": self.folder}
        self.git_dir = git_dir or self._git_dir()
        # A commit's files are thousands: for these GitPython keeps one `git cat-file --batch` running.
        # It opens no repository: it would read a configuration without any limit.
        self._objects = git.Git(self.folder)
        self._objects.update_environment(**{**self._environ, "GIT_DIR": self.git_dir})
        weakref.finalize(self, self._objects.clear_cache)  # ends that process

    def _git_dir(self) -> str:
        above = os.path.dirname(os.path.realpath(self.folder))
        environ = {**self._environ, "GIT_CEILING_DIRECTORIES": above}
        done = git_process.run(self.folder, ("rev-parse", "--absolute-git-dir"), environ)
        if done.why:
            why = f"{self.spec}: {self.folder} is not a git repository: {done.why}"
            raise UsageError(why, hint=f"{self.typed} status")
        return done.text

    @property
    def is_shallow(self) -> bool:
        """Whether it lacks old commits; git refuses ``--unshallow`` in any other clone."""
        return self.run("rev-parse", "--is-shallow-repository").text == "true"

    def run(self, *words: str, given: bytes = b"", index: str | None = None) -> GitOutcome:
        """Run git in it; ``index`` is a file to be used in place of its own."""
        environ = self._environ if index is None else {**self._environ, "GIT_INDEX_FILE": index}
        return git_process.run(self.folder, words, environ, given=given)

    def output(self, what: str, *words: str) -> bytes:
        """Return what a command of git prints; ``what`` is said where it fails. Raises ``TreeError``."""
        done = self.run(*words)
        if done.why:
            raise TreeError(f"{self.spec}: {what}: {done.why}", hint=f"{self.typed} fsck")
        return done.out

    def commit(self, revision: str) -> str:
        """Return the id of the commit that a revision names. Raises ``UsageError`` for none."""
        # --end-of-options: a revision that starts with a dash is no option.
        words = ("--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        done = self.run("rev-parse", *words)
        if done.why:
            silent = done.why.startswith("exit code")
            why = f"{self.folder} has no revision {revision}" if silent else done.why
            what = f"origin {revision}" if re.fullmatch(r"[0-9a-f]{7,40}", revision) else "--tags"
            raise UsageError(f"{self.spec}: {why}", hint=f"{self.typed} fetch {what}")
        return done.text

    def tree(self, commit: str) -> GitTree:
        """Return the files of a commit. Raises ``UsageError`` if vLLM is not among them."""
        return GitTree(self, commit, f"{self.spec}@{commit}")

    def entries(self, commit: str) -> dict[str, tuple[bytes, str]]:
        """Return the mode and the blob of every entry of a commit. Raises ``TreeError``."""
        words = ("-r", "-z", "--full-tree", commit, "--")
        listing = self.output("cannot list the commit", "ls-tree", *words)
        rows = re.findall(rb"(\d+) \w+ (\w+)\t([^\0]+)\0", listing)
        return {os.fsdecode(path): (mode, blob.decode()) for mode, blob, path in rows}

    def object(self, name: str) -> tuple[str, int, limits.Sizable]:
        """Open an object by its id: its kind, size and bytes. Raises ``LookupError`` for none."""
        try:
            _, kind, size, stream = self._objects.stream_object_data(name)
        except ValueError as error:  # GitPython's word for an object that git has not got
            raise LookupError(str(error)) from error
        return os.fsdecode(kind), size, stream  # bytes, whatever its hints say

    def blob(self, blob: str, what: str) -> bytes:
        """Return the bytes of a blob, ``what`` it is being said where they cannot be read: ``TreeError``."""
        if blob not in self._blobs:
            try:
                self._blobs[blob] = limits.bounded(self.object(blob)[2], limits.UNPACKED_FILE, what)
            except (GitCommandError, LookupError, OSError) as error:
                hint = f"git -C {self.git_dir} fsck"
                raise TreeError(f"cannot read {what}: {error}", hint=hint) from error
            if self._blobs[blob].startswith(_LFS):
                why = "is stored in git-lfs, which vllm-mods does not use"
                raise TreeError(f"{what} {why}", hint="commit the file itself")
        return self._blobs[blob]

    def line(self, since: str, until: str) -> tuple[Commit, ...]:
        """Return ``since..until`` by first parents, oldest first. Raises ``TreeError``."""
        words = ("--first-parent", "--reverse", "--no-renames", "--no-show-signature")
        form = ("--name-only", "-z", "--format=%x01%H%x00%P%x00%cI%x00%s")
        span = f"{since}..{until}"
        log = self.output("cannot walk the history", "log", *words, *form, span, "--")
        records = (record.split(b"\0") for record in _RECORD.split(log)[1:])
        return tuple(
            Commit(
                sha=sha.decode(),
                parents=tuple(parents.decode().split()),
                date=date.decode(),
                subject=subject.decode("utf-8", "replace"),
                paths=frozenset(os.fsdecode(path).removeprefix("\n") for path in paths if path),
            )
            for sha, parents, date, subject, *paths in records
        )

    def merge_base(self, commit: str, other: str) -> str | None:
        """Return the commit at which two histories parted, None where the repository does not have it."""
        return self.run("merge-base", commit, other).text or None

    def renames(self, since: str, until: str) -> dict[str, str]:
        """Return the files of one commit that have another path in a later one, and that path."""
        words = ("-r", "-z", "--name-status", "--find-renames", "--diff-filter=R", since, until)
        fields = self.output("cannot compare two commits", "diff-tree", *words).split(b"\0")
        return dict(zip(*(map(os.fsdecode, fields[n::3]) for n in (1, 2)), strict=False))


def newest_build(folder: str) -> str | None:
    """Return the version of the newest commit of a clone of vLLM's repository, None if that is a release's.

    The newest commit is that of the remote's default branch, else HEAD. Raises
    ``UsageError`` where no tag says a version.
    """
    repository = Repository(folder)
    try:
        newest = repository.commit("refs/remotes/origin/HEAD")
    except UsageError:
        newest = repository.commit("HEAD")
    version = repository.tree(newest).version
    if version is None:
        why = f"{repository.folder}: no v* tag is reachable from {newest[:12]}, so its version is unknown"
        more = " --unshallow" * repository.is_shallow
        raise UsageError(why, hint=f"{repository.typed} fetch --tags{more}")
    return version if node(version) is not None else None
