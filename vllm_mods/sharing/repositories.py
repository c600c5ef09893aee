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
from vllm_mods.base.errors import TreeError, UsageError, no_network, refusing_to_write
from vllm_mods.formats.project import LibrarySource
from vllm_mods.sharing import git_objects
from vllm_mods.sharing.kept import FetchedLibrary
from vllm_mods.trees import git_process
from vllm_mods.trees.git import Repository

_FETCH = (
    *("-c", "fetch.fsckObjects=true", "-c", "fetch.recurseSubmodules=false"),
    *("fetch", "--quiet", "--no-tags"),
)
_EVERY = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
_NO_NETWORK = re.compile(
    "ould not resolve host|ould ?n.t connect|ailed to connect|refused|timed out|unreachable|name resolution"
)


def fetch(source: LibrarySource, beside: str, commit: str | None) -> FetchedLibrary:
    """Fetch a library as it is now, or as it is in ``commit``, with the objects that prove its files.

    A path is from the folder ``beside``. Raises ``UsageError`` for a revision that there is not,
    ``TreeError`` for what cannot be had or is no plain file.
    """
    url = source.place
    if url.startswith((".", "/")):
        url = os.path.abspath(os.path.join(beside, url))
    with (
        refusing_to_write(os.path.join(tempfile.gettempdir(), "")),
        tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder,
    ):
        run = functools.partial(_run, folder, _environment(os.environ, url, folder), source)
        run("init", "--quiet", "--bare", "--template=", "--object-format=sha1")
        sha = _commit(run, url, source, commit)
        return _library(Repository(folder, str(source), git_dir=folder), sha, source)


def _commit(run: Callable[..., str], url: str, source: LibrarySource, commit: str | None) -> str:
    """Fetch a commit, alone where the server gives it so, and return its id."""
    rev = commit or source.rev or "HEAD"
    resolve = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    with contextlib.suppress(TreeError):
        run(*_FETCH, "--depth=1", "--", url, rev)
        return run(*resolve, "FETCH_HEAD^{commit}")
    is_newest = rev == "HEAD"
    run(*_FETCH, "--", url, *((rev,) if is_newest else _EVERY))
    try:
        return run(*resolve, f"{'FETCH_HEAD' if is_newest else rev}^{{commit}}")
    except TreeError as error:
        what = "has no commit" if commit else "has no tag, branch or commit"
        why = f"{source}: the repository {what} {rev}"
        hint = (
            f"git ls-remote {url}  # lists its revisions; then edit `rev` and run vllm-mods update"
        )
        raise UsageError(why, hint=hint) from error


def _library(repository: Repository, commit: str, source: LibrarySource) -> FetchedLibrary:
    files: dict[str, bytes] = {}
    objects: dict[str, bytes] = {}
    left = int(limits.LIBRARY)

    def take(size: int) -> None:
        nonlocal left
        left -= size
        if left < 0:
            why = f"is more than {limits.LIBRARY}, the limit for {limits.LIBRARY.what}"
            raise git_objects.refusal(str(source), why)

    def read_object(name: str) -> bytes:
        kind, size, content = repository.object(name)
        take(size)
        objects[name] = git_objects.with_header(kind, content.read(size))
        return objects[name]

    inside = git_objects.library_files(commit, source.subdirectory, read_object, str(source))
    for path, blob in inside:
        files[path] = repository.blob(blob, f"{source}: {path}")
        take(len(files[path]))
    return FetchedLibrary(commit, files, objects)


def _run(folder: str, environ: Mapping[str, str], source: LibrarySource, *words: str) -> str:
    """Run git on the scratch repository. Raises ``TreeError`` without users, passwords and queries in URLs."""
    done = git_process.run(folder, words, environ, terminal=_is_attended())
    if done.why:
        command = next(word for word in words if word in {"init", "fetch", "rev-parse"})
        why = re.sub(r"\?[^\s'\"]+", "?…", re.sub(r"(?<=://)[^\s'\"]+@", "…@", done.why))
        why, check = f"git {command} failed: {why}", "git's credential helpers and ssh agent"
        if _NO_NETWORK.search(why):
            why = no_network(source.place.split("/")[2], why)
            check = "the network and git's proxy settings"
        hint = f"check {check}: `git ls-remote {source.place}` must work; libraries that were fetched before need no network"
        raise TreeError(f"{source}: {why}", hint=hint)
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
