"""``git:REPO@REV``: a revision, read from the object store of a local repository; its history.

Nothing is checked out. The one place that imports GitPython.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import Tree
from vllm_mods.base.versions import from_describe, is_final, sort_key
from vllm_mods.formats import tree_names
from vllm_mods.trees.folder import read_in_workspace

try:
    import git
    from git.exc import GitCommandError, InvalidGitRepositoryError, NoSuchPathError
except ImportError as error:  # GitPython raises it when there is no git program.
    raise TreeError(
        f"git: trees need the git program: {str(error).splitlines()[0]}",
        hint="apt-get install git",
    ) from error

_REGULAR = frozenset({b"100644", b"100755", b"100664"})
# What GitHub writes: "(#12345)" behind the subject of a squashed one, "Merge pull request #12345".
_PULL = re.compile(r"\(#(\d+)\)\s*$|^Merge pull request #(\d+)\b", re.ASCII)
_RECORD = re.compile(rb"\x01(?=[0-9a-f]{40,64}\0)")


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment in which no setting of a repository has git run a program.

    A clone may lack objects, which git then fetches, by the transport and with the programs that the
    clone's own ``config`` names. What is left are servers, asked with the user's own programs.
    """
    settings = {
        "core.alternateRefsCommand": "true",
        "core.fsmonitor": "false",
        "core.hooksPath": os.devnull,
        "core.splitIndex": "false",  # a scratch index lays no file beside the repository's own
        "credential.helper": "",  # clears the list, the user's own too
        "gc.auto": "0",
        "maintenance.auto": "false",
    }
    numbered = [
        (f"GIT_CONFIG_{part}_{number}", text)
        for number, pair in enumerate(settings.items())
        for part, text in zip(("KEY", "VALUE"), pair, strict=True)
    ]
    return {
        **dict(numbered),
        "GIT_CONFIG_COUNT": str(len(settings)),
        "GIT_ALLOW_PROTOCOL": "http:https:ssh",
        "GIT_ASKPASS": "",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_SSH_COMMAND": environ.get("GIT_SSH_COMMAND") or environ.get("GIT_SSH") or "ssh",
        "GIT_TERMINAL_PROMPT": "0",
    }


class GitTree(Tree):
    """The files of one commit of a repository."""

    pristine = True
    commit: str

    def __init__(
        self,
        repository: Repository,
        commit: str,
        spec: str,
        workspace: str | None = None,
        version: str | None = None,
    ) -> None:
        self.spec = spec
        self.workspace = workspace
        self.commit = commit
        self._repository = repository
        self._files = listed(repository.repo, commit, spec)
        self._named = version
        if "vllm/__init__.py" not in self._files:
            raise UsageError(
                f"{spec} holds no vLLM: there is no vllm/__init__.py in that commit",
                hint="name a clone of vLLM's repository",
            )

    @cached_property
    def version(self) -> str | None:
        """What it was named, or the nearest tag's version, a development version after it; ``None`` without tags."""
        if self._named:
            return self._named
        try:
            words = ("--tags", "--long", "--match", "v*", self.commit)
            tags = self._repository.repo.git.describe(*words)
        except GitCommandError:
            return None  # No tag can be reached, as in a shallow clone.
        return from_describe(tags)

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
        if mode not in _REGULAR:
            what = "a symbolic link" if mode == b"120000" else "a submodule"
            raise TreeError(f"{self.spec}: {path} is {what}", hint=f"git show {self.commit}:{path}")
        return self._repository.blob(blob, f"{self.spec}: {path}")

    def paths(self, under: str = "vllm") -> Iterator[str]:
        """Yield every regular file below ``under``; ``""`` is the whole commit."""
        prefix = "/".join(tree_names.split(under, self.spec)) + "/" if under else ""
        return (
            path
            for path, (mode, _) in self._files.items()
            if mode in _REGULAR and path.startswith(prefix)
        )

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Compare with the commit itself; ``None`` for a file that it does not have."""
        mine = self.read(path)
        return None if mine is None else mine == data


def open_git(
    name: str, *, spec: str, workspace: str | None = None, version: str | None = None
) -> GitTree:
    """Open ``REPO@REV``, by a version where its name states one. Raises ``UsageError`` if there is no such repository or revision."""
    folder, revision = _split(os.path.expanduser(name), spec)
    repository = Repository(folder, spec)
    return GitTree(repository, repository.commit(revision), spec, workspace, version)


def revisions(spec: str, *, pre: bool = False) -> tuple[str, ...]:
    """Return the trees that ``git:REPO@A..B`` stands for, oldest first.

    Between two tags that name versions, every such tag from A to B, both included, and of these
    the final releases only unless ``pre``; a release branch's tag is no ancestor of the next
    release's, so that commits would not do. Else every commit after A up to B along first parents.
    Raises ``UsageError`` for a range that is none, is empty or has too many commits.
    """
    folder, given = _split(os.path.expanduser(spec.partition(":")[2]), spec)
    first, _, last = given.partition("..")
    if not first or not last or ".." in last:
        raise UsageError(
            f"{spec}: a range of revisions is REV1..REV2", hint="git:REPO@v0.19.0..v0.21.0"
        )
    repository = Repository(folder, spec)
    tags = {
        tag.name: number
        for tag in repository.repo.tags
        if (number := from_describe(f"{tag.name}-0-g0")) is not None
    }
    if first in tags and last in tags:
        low, high = sort_key(tags[first]), sort_key(tags[last])
        found = sorted(
            (name for name, number in tags.items() if low <= sort_key(number) <= high),
            key=lambda name: sort_key(tags[name]),
        )
        if not pre:
            found = [name for name in found if name in {first, last} or is_final(tags[name])]
    else:
        span = f"{repository.commit(first)}..{repository.commit(last)}"
        found = repository.repo.git.rev_list("--first-parent", "--reverse", span).split()
    if not found or len(found) > limits.REVISIONS:
        many = f"{len(found)} commits, and {int(limits.REVISIONS)} are the most"
        what = many if found else "no revision"
        raise UsageError(
            f"{spec}: there is {what} in this range", hint=f"git -C {folder} log {given}"
        )
    return tuple(f"git:{folder}@{revision}" for revision in found)


def _split(name: str, spec: str) -> tuple[str, str]:
    """Take the repository and the revision apart: both may have an ``@`` in them."""
    places = [index for index, letter in enumerate(name) if letter == "@"]
    for index in reversed(places):
        if os.path.isdir(name[:index]) and name[index + 1 :]:
            return name[:index], name[index + 1 :]
    if os.path.isdir(name):
        raise UsageError(f"{spec}: no revision given", hint=f"git:{name.rstrip('@')}@HEAD")
    if "://" in name or name.startswith("git@"):
        raise UsageError(
            f"{spec}: only a repository on this machine can be read",
            hint="git clone --filter=blob:none URL DIR, then git:DIR@REV",
        )
    folder = name[: places[-1]] if places else name
    raise UsageError(f"{spec}: {folder}: no such folder", hint="git:REPO@REV, REPO a local folder")


def _output(repository: git.Repo, what: str, command: str, *words: str) -> bytes:
    """Return what a command of git writes; ``what`` is said where it fails. Raises ``TreeError``."""
    run = getattr(repository.git, command)
    try:
        out: bytes = run(*words, stdout_as_string=False, strip_newline_in_stdout=False)
    except GitCommandError as error:
        hint = f"git -C {repository.working_dir} fsck"
        raise TreeError(f"{what}: {said(error)}", hint=hint) from error
    return out


def listed(
    repository: git.Repo, commit: str, spec: str, *paths: str
) -> dict[str, tuple[bytes, str]]:
    """Return the mode and the blob of every entry of a commit, or of some. Raises ``TreeError``."""
    words = ("-r", "-z", "--full-tree", commit, "--", *paths)
    listing = _output(repository, f"{spec}: cannot list the commit", "ls_tree", *words)
    files: dict[str, tuple[bytes, str]] = {}
    for row in listing.split(b"\0"):
        head, tab, path = row.partition(b"\t")
        if tab:
            mode, _, blob = head.split(b" ")
            files[os.fsdecode(path)] = (mode, blob.decode())
    return files


def said(error: Exception) -> str:
    """Return git's own words."""
    if isinstance(error, GitCommandError):
        return str(error.stderr).strip().removeprefix("stderr: ").strip("'").strip()
    return str(error)


class Commit(NamedTuple):
    """A commit on a line of history: ``date`` is ISO 8601, ``paths`` what it changed.

    What a merge changed is what differs from its first parent.
    """

    sha: str
    parents: tuple[str, ...]
    date: str
    subject: str
    paths: frozenset[str]

    @property
    def pull_request(self) -> int | None:
        """The number of the pull request that the subject names."""
        found = _PULL.search(self.subject)
        return int(found[1] or found[2]) if found else None

    @property
    def named(self) -> str:
        """The abbreviated id and the subject, as text that no terminal and no Markdown makes anything of."""
        subject = "".join(letter if letter.isprintable() else "?" for letter in self.subject)
        return f"{self.sha[:12]}: {subject.replace('`', chr(39))}"


class Repository:
    """A local repository, opened once to read many of its commits; each blob is read once."""

    def __init__(self, folder: str, spec: str = "") -> None:
        """Open it. Raises ``UsageError`` if there is none."""
        self.folder = os.path.expanduser(folder)
        self.spec = spec or f"git:{self.folder}"
        self._blobs: dict[str, bytes] = {}
        try:
            self.repo = git.Repo(self.folder)
        except (InvalidGitRepositoryError, NoSuchPathError) as error:
            raise UsageError(
                f"{self.spec}: {self.folder} is not a git repository",
                hint=f"git -C {self.folder} status",
            ) from error
        self.repo.git.update_environment(**safe_environment(os.environ))

    def commit(self, revision: str) -> str:
        """Return the id of the commit that a revision names. Raises ``UsageError`` for none."""
        try:
            # --end-of-options: a revision that starts with a dash is no option.
            commit: str = self.repo.git.rev_parse(
                "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
            )
        except GitCommandError as error:
            why = said(error) or f"{self.repo.working_dir} has no revision {revision}"
            what = f"origin {revision}" if re.fullmatch(r"[0-9a-f]{7,40}", revision) else "--tags"
            hint = f"git -C {self.repo.working_dir} fetch {what}"
            raise UsageError(f"{self.spec}: {why}", hint=hint) from error
        return commit

    def tree(self, commit: str) -> GitTree:
        """Return the files of a commit. Raises ``UsageError`` if vLLM is not among them."""
        return GitTree(self, commit, f"{self.spec}@{commit}")

    def blob(self, blob: str, what: str) -> bytes:
        """Return the bytes of a blob, ``what`` it is being said where they cannot be read: ``TreeError``."""
        if blob not in self._blobs:
            try:
                stream = self.repo.odb.stream(bytes.fromhex(blob))
                self._blobs[blob] = limits.bounded(stream, limits.UNPACKED_FILE, what)
            except (GitCommandError, ValueError, OSError) as error:
                raise TreeError(
                    f"cannot read {what}: {said(error)}", hint=f"git -C {self.repo.git_dir} fsck"
                ) from error
        return self._blobs[blob]

    def read(self, commit: str, path: str) -> bytes | None:
        """Return the bytes of a file in a commit, None for none and for what is no file.

        Raises ``TreeError`` for one that cannot be read.
        """
        entry = listed(self.repo, commit, self.spec, path).get(path)
        if entry is None or entry[0] not in _REGULAR:
            return None
        return self.blob(entry[1], f"{self.spec}@{commit}: {path}")

    def renames(self, commit: Commit) -> dict[str, str]:
        """Return what a commit renamed, as git tells it from its first parent. Raises ``TreeError``."""
        if not commit.parents:
            return {}
        words = ("-r", "-z", "-M", "-l4000", "--diff-filter=R", "--name-status")
        safe = ("--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
        ends = (commit.parents[0], commit.sha)
        what = f"{self.spec}: cannot tell renames"
        parts = _output(self.repo, what, "diff_tree", *words, *safe, *ends).split(b"\0")
        pairs = zip(parts[1::3], parts[2::3], strict=False)
        return {os.fsdecode(old): os.fsdecode(new) for old, new in pairs}

    def line(self, since: str, until: str) -> tuple[Commit, ...]:
        """Return the commits from ``until`` back by first parents, as far as ``since`` lacks them.

        Oldest first. Raises ``TreeError`` if git cannot walk the history.
        """
        words = ("--first-parent", "--reverse", "--no-renames", "--no-show-signature")
        form = ("--name-only", "-z", "--format=%x01%H%x00%P%x00%cI%x00%s")
        what = f"{self.spec}: cannot walk the history"
        span = f"{since}..{until}"
        return tuple(_commits(_output(self.repo, what, "log", *words, *form, span, "--")))


def _commits(log: bytes) -> Iterator[Commit]:
    """Read what ``git log -z --name-only`` says in the format of ``Repository.line``."""
    for record in _RECORD.split(log)[1:]:
        sha, parents, date, subject, *paths = record.split(b"\0")
        yield Commit(
            sha=sha.decode(),
            parents=tuple(parents.decode().split()),
            date=date.decode(),
            subject=subject.decode("utf-8", "replace"),
            paths=frozenset(os.fsdecode(path).removeprefix("\n") for path in paths if path),
        )
