"""The remote of a library's repository: what it has, and the branches that are pushed to it.

git has the token in its environment, for the URL of the remote alone; no redirect takes it elsewhere.
"""

import base64
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.hops import place
from vllm_mods.keeping import branches

_BRANCHES = f"refs/heads/{branches.PREFIX}*"


class Remote(NamedTuple):
    """A remote: its default branch ``base``, and the ``tips`` of its branches that are ours."""

    home: branches.LibraryHome
    url: str
    base: str
    base_tip: str
    tips: Mapping[str, str]

    def push(self, branch: str, commit: str) -> None:
        """Push a branch of ours, if the remote has it as it was looked at. Raises ``Refused``."""
        name = f"refs/heads/{branch}"
        lease = f"--force-with-lease={name}:{self.tips.get(branch, '')}"
        words = ("push", "--quiet", "--no-verify", lease, "--", self.url, f"{commit}:{name}")
        self.home.run(f"{branch} was not pushed", *words)

    def has(self, commit: str) -> bool:
        """Tell whether the default branch has a commit."""
        words = ("merge-base", "--is-ancestor", commit, self.base_tip)
        return self.home.repository.run(*words).code == 0


def find_url(home: branches.LibraryHome, name: str | None) -> str:
    """Return the URL to push to, of a remote or of the only one. Raises ``UsageError``."""
    names = home.run("the remotes cannot be read", "remote").decode().split()
    if name is None and len(names) == 1:
        name = names[0]
    if name not in names:
        remotes = f"has the remotes {', '.join(names)}" if names else "has no remote"
        why = f"{home.repository.folder} {remotes}; pull requests need exactly one"
        raise UsageError(why, hint=f"--remote {names[0]}" if names else "git remote add origin URL")
    return home.run(f"{name} cannot be read", "remote", "get-url", "--push", name).decode().strip()


def open_remote(library: str, url: str, token: str) -> Remote:
    """Look at a remote, and fetch its branches that are ours. Raises ``Refused`` where HEAD is not of its default branch."""
    parts = urlsplit(url)
    settings = [("http.followRedirects", "false")]
    if parts.scheme.startswith("http"):
        url = urlunsplit(parts._replace(netloc=place(url)))
        login = base64.b64encode(f"x-access-token:{token}".encode()).decode()
        # The empty one takes away what a checkout in CI has left in the repository's settings.
        headers = ("", f"Authorization: Basic {login}")
        settings += [(f"http.{url}.extraHeader", header) for header in headers]
    home = branches.home(library, settings)
    what = "the remote cannot be read"
    if home.run(what, "rev-parse", "--is-shallow-repository").strip() == b"true":
        why = f"{library} is a shallow clone, so the commits of its branches are unknown"
        raise Refused(why, hint="git fetch --unshallow  # in CI: fetch-depth: 0, GIT_DEPTH: 0")
    listed = home.run(what, "ls-remote", "--symref", "--", url, "HEAD", _BRANCHES).decode()
    refs: dict[str, str] = {}
    for value, _, name in (line.partition("\t") for line in listed.splitlines()):
        refs[f"{name} is" if value.startswith("ref: ") else name] = value
    base = refs.get("HEAD is", "").removeprefix("ref: refs/heads/")
    if not base or base.startswith(branches.PREFIX):
        raise Refused(f"{what}: it has no default branch", hint="git ls-remote --symref NAME HEAD")
    home.run(what, "fetch", "--no-tags", "--", url, "HEAD", f"{_BRANCHES}:{_BRANCHES}")
    tips = {name.removeprefix("refs/heads/"): tip for name, tip in refs.items()}
    remote = Remote(home, url, base, refs["HEAD"], tips)
    if not remote.has("HEAD"):
        why = f"HEAD of {library} has commits that {base} of the remote lacks, so each pull request would contain these commits"
        raise Refused(why, hint=f"git checkout {base}  # first push the commits that belong there")
    return remote
