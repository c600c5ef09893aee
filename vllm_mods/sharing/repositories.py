"""A library in somebody's git repository: the files of one commit, as bytes, and nothing of it run.

The commit is fetched into a scratch repository of our own, and read out of its object store: no checkout,
so no filter, no submodule and no link; no hook; no transport but the one of the URL. Who may read it is
git's business: its credential helpers and the ssh agent are asked, and what they say is in no message.
"""

import contextlib
import functools
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, no_network
from vllm_mods.base.output import write_below
from vllm_mods.formats.project import LibrarySource
from vllm_mods.sharing import git_objects
from vllm_mods.sharing.kept import FetchedLibrary
from vllm_mods.trees import git_process
from vllm_mods.trees.git import Repository

COMMIT = re.compile(r"(?:[0-9a-f]{40}|[0-9a-f]{64})\Z")
_FETCH = (
    *("-c", "fetch.fsckObjects=true", "-c", "fetch.recurseSubmodules=false"),
    *("fetch", "--quiet", "--no-tags"),
)
_EVERY = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_BARE = {
    "HEAD": b"ref: refs/none\n",
    "config": b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
}
_NO_NETWORK = re.compile(
    "ould not resolve host|ould ?n.t connect|ailed to connect|refused|timed out|unreachable|name resolution"
)
_LFS = b"version https://git-lfs.github.com/spec/"


def fetch(source: LibrarySource, beside: str, commit: str | None) -> FetchedLibrary:
    """Fetch a library as it is now, or as it is in ``commit``, with the objects that prove its files.

    A path is from the folder ``beside``. Raises ``UsageError`` for a revision that there is not,
    ``TreeError`` for what cannot be had or is no plain file.
    """
    url = source.place
    if url.startswith((".", "/")):
        url = os.path.abspath(os.path.join(beside, url))
    with _scratch() as folder:
        environ = _environment(os.environ, url, folder)
        sha = _commit(functools.partial(_run, folder, environ, source), url, source, commit)
        return _library(Repository(folder, str(source), git_dir=folder), sha, source)


def _commit(run: Callable[..., str], url: str, source: LibrarySource, commit: str | None) -> str:
    def resolved() -> str | None:
        with contextlib.suppress(TreeError):
            words = ("--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
            return run("rev-parse", *words)
        return None

    rev = commit or source.rev
    if not COMMIT.match(rev):
        wanted = (f"refs/tags/{rev}", f"refs/heads/{rev}") if rev else ("HEAD",)
        rows = (line.partition("\t") for line in run("ls-remote", "--", url, *wanted).splitlines())
        refs = {name: sha for sha, _, name in rows}
        rev = next((refs[name] for name in wanted if name in refs), rev or "HEAD")
    sha = None
    if COMMIT.match(rev):
        with contextlib.suppress(TreeError):  # of a server that gives no single commit
            run(*_FETCH, "--depth=1", "--", url, rev)
            sha = resolved()
    if sha is None:
        run(*_FETCH, "--", url, *_EVERY)
        sha = resolved()
    if sha is None:
        what = "has no commit" if commit else "has no tag, branch or commit"
        raise UsageError(
            f"{source}: the repository {what} {rev}",
            hint=f"git ls-remote {url}  # lists its revisions; then edit `rev` and run vllm-mods update",
        )
    return sha


def _library(repository: Repository, commit: str, source: LibrarySource) -> FetchedLibrary:
    """Read a library out of a commit that was fetched."""
    files: dict[str, bytes] = {}
    objects: dict[str, bytes] = {}
    left = int(limits.LIBRARY)
    refusal = functools.partial(git_objects.refusal, str(source))

    def read(name: str) -> tuple[str, bytes]:
        nonlocal left
        kind, size, content = repository.object(name)
        left -= size
        if left < 0:
            raise refusal(f"is more than {limits.LIBRARY}, the limit for {limits.LIBRARY.what}")
        return kind, content.read(size)

    def read_object(name: str) -> bytes:
        objects[name] = git_objects.with_header(*read(name))
        return objects[name]

    for path, blob in git_objects.library_files(
        commit, source.subdirectory, read_object, str(source)
    ):
        try:
            files[path] = read(blob)[1]
        except LookupError as error:
            raise refusal(f"{path} was not sent by its server") from error
        if files[path].startswith(_LFS):
            raise refusal(
                f"{path} is stored in git-lfs, which vllm-mods does not use: commit the file itself"
            )
    return FetchedLibrary(commit, files, objects)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    try:
        scratch = tempfile.TemporaryDirectory(prefix="vllm-mods-")
        for name in ("objects", "refs"):  # as `git init --bare`, without anybody's template
            os.mkdir(os.path.join(scratch.name, name))
        for name, data in _BARE.items():
            write_below(scratch.name, name, data)
    except OSError as error:
        raise TreeError(
            f"there is no place for the files that git fetches: {error}",
            hint="df -h /tmp; set TMPDIR to another folder",
        ) from error
    return scratch


def _run(folder: str, environ: Mapping[str, str], source: LibrarySource, *words: str) -> str:
    """Run git on the scratch repository. Raises ``TreeError`` without users, passwords and queries in URLs."""
    done = git_process.run(folder, words, environ, terminal=_is_attended())
    if done.why:
        command = next(word for word in words if word in {"fetch", "ls-remote", "rev-parse"})
        why = re.sub(r"\?[^\s'\"]+", "?…", re.sub(r"(?<=://)[^\s'\"]+@", "…@", done.why))
        why = f"git {command} failed: {why}"
        if _NO_NETWORK.search(why):
            why = no_network(source.place.split("/")[2], why)
        raise TreeError(
            f"{source}: {why}",
            hint="git uses its own credential helpers and ssh agent; check that `git ls-remote` works; what is locked and fetched needs no network",
        )
    return done.text


def _is_attended() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _environment(environ: Mapping[str, str], url: str, folder: str) -> dict[str, str]:
    """Return the environment in which git takes nothing from a server but objects.

    The user's own configuration holds, as far as it says who asks and by which way.
    """
    scheme = "file" if url.startswith(("/", "file:")) else url.partition(":")[0]
    transports = scheme if scheme in {"file", "http"} else "https:ssh"
    safe = git_process.environment(environ, logins=True, transports=transports)
    if not _is_attended():
        safe |= {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never"}
    return {**safe, "GIT_DIR": folder}
