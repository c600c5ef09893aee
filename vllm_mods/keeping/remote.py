"""The remote of a library's repository: what it has, and the branches that are pushed to it.

git has the token in its environment, for the one URL of the remote; no redirect takes it elsewhere.
"""

import base64
import os
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from vllm_mods.base import secrets
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.hops import place
from vllm_mods.keeping.branches import PREFIX, LibraryHome
from vllm_mods.trees import git_process

_BRANCHES = f"refs/heads/{PREFIX}*"


class Remote(NamedTuple):
    """A remote: its default branch ``base``, and the ``tips`` of its branches that are ours."""

    home: LibraryHome
    url: str
    environ: Mapping[str, str]
    base: str
    base_tip: str
    tips: Mapping[str, str]

    def push(self, branch: str, commit: str) -> None:
        """Push a branch of ours, if the remote has it as it was looked at. Raises ``Refused``."""
        name = f"refs/heads/{branch}"
        assert branch.startswith(PREFIX) and branch != self.base  # noqa: S101, PT018  (no other is ever pushed)
        lease = f"--force-with-lease={name}:{self.tips.get(branch, '')}"
        words = ("push", "--quiet", "--no-verify", lease, "--", self.url, f"{commit}:{name}")
        _run(self.home, self.environ, f"{branch} was not pushed", *words)

    def has(self, commit: str) -> bool:
        """Tell whether the default branch has a commit."""
        words = ("merge-base", "--is-ancestor", commit, self.base_tip)
        return self.home.repository.run(*words).code == 0


def find_url(home: LibraryHome, name: str | None) -> str:
    """Return the URL to push to, of a remote or of the only one. Raises ``UsageError``."""
    names = home.run("the remotes cannot be read", "remote").decode().split()
    if name is None and len(names) != 1:
        why = f"has {len(names)} remotes, {', '.join(names)}" if names else "has no remote"
        raise UsageError(
            f"{home.repository.folder} {why}: nothing says where pull requests are opened",
            hint=f"--remote {names[0]}" if names else "git remote add origin URL",
        )
    words = ("remote", "get-url", "--push", "--all", name or names[0])
    done = home.repository.run(*words)
    if done.why:
        raise UsageError(f"{home.repository.folder} has no remote {name}", hint="git remote -v")
    urls = done.text.splitlines()
    if len(urls) != 1:
        raise UsageError(
            f"the remote {name or names[0]} is pushed to {len(urls)} URLs", hint="git remote -v"
        )
    return urls[0]


def open_remote(home: LibraryHome, url: str, token: str) -> Remote:
    """Look at a remote, and fetch its branches that are ours. Raises ``Refused`` where HEAD is not of its default branch."""
    parts = urlsplit(url)
    settings = [("http.followRedirects", "false")]
    scheme = "ssh"
    if parts.scheme in {"http", "https"}:
        scheme = parts.scheme
        url = urlunsplit(parts._replace(netloc=place(url)))
        login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        # The empty one takes away what a checkout in CI has left in the repository's settings.
        settings += [
            (f"http.{url}.extraHeader", value) for value in ("", f"Authorization: Basic {login}")
        ]
    environ = git_process.environment(os.environ, transports=scheme, settings=settings)
    environ |= {"GIT_DIR": home.repository.git_dir, "GIT_WORK_TREE": home.repository.folder}
    if home.run("it cannot be read", "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise Refused(
            f"{home.repository.folder} is a shallow clone: what its branches have of each other cannot be told",
            hint="git fetch --unshallow  # in CI: fetch-depth: 0, GIT_DEPTH: 0",
        )
    what = "the remote cannot be read"
    listed = _run(home, environ, what, "ls-remote", "--symref", "--", url, "HEAD", _BRANCHES)
    rows = [line.split("\t") for line in listed.splitlines()]
    refs = {name: value for value, name in rows if not value.startswith("ref: ")}
    heads = [value for value, name in rows if value.startswith("ref: ") and name == "HEAD"]
    base = heads[0].removeprefix("ref: refs/heads/") if heads else ""
    if not base or base.startswith(PREFIX):
        raise Refused(
            f"{what}: it has no default branch to merge into",
            hint="git ls-remote --symref NAME HEAD",
        )
    _run(
        home,
        environ,
        what,
        "fetch",
        "--quiet",
        "--no-tags",
        "--",
        url,
        "HEAD",
        f"{_BRANCHES}:{_BRANCHES}",
    )
    tips = {name.removeprefix("refs/heads/"): tip for name, tip in refs.items() if name != "HEAD"}
    remote = Remote(home, url, environ, base, refs["HEAD"], tips)
    if not remote.has("HEAD"):
        raise Refused(
            f"HEAD of {home.repository.folder} has commits that {base} of the remote lacks, and each request would have them",
            hint=f"git checkout {base}  # and push what is to be there first",
        )
    return remote


def _run(home: LibraryHome, environ: Mapping[str, str], what: str, *words: str) -> str:
    done = git_process.run(home.repository.folder, words, environ)
    if done.why:
        why = secrets.clean(done.why, os.environ)
        hint = "git fetch NAME '+refs/heads/vllm-mods/*:refs/heads/vllm-mods/*'  # the remote's in place of yours, then run keep again"
        if words[0] == "ls-remote":
            hint = "git ls-remote NAME  # does it answer? the token must be allowed to push"
        raise Refused(f"{what}: {why}", hint=hint)
    return done.text
