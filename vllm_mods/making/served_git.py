"""``git`` with what was taken before: which repository and ref a command asks for, and the real one on a copy of that.

A recording runs this file in its sandbox in place of git, so it shares nothing with the package.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

INDEX, ASKED = "repositories.json", "repositories"
_GLOBAL = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env")
_NETWORK = {
    "clone",
    "fetch",
    "pull",
    "ls-remote",
    "submodule",
    "remote",
    "archive",
    "lfs",
    "subtree",
}
_PLAIN = (
    *(
        "quiet",
        "verbose",
        "progress",
        "no-progress",
        "no-tags",
        "single-branch",
        "depth=",
        "filter=",
    ),
    *("jobs=", "no-recurse-submodules", "ipv4", "ipv6"),
)  # what neither asks for more nor for other objects
_CLONE = (*_PLAIN, "branch=", "no-checkout", "origin=", "bare", "config=")
_FETCH = (*_PLAIN, "force", "prune", "update-head-ok", "no-write-fetch-head", "update-shallow")
_REF = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.+-]+)*\Z", re.ASCII)
Asked = tuple[str, str, int]
"""A URL, a ref of it, and how many commits deep, 0 for all."""


def parse(words: list[str], remote: Callable[[str], str | None]) -> Asked | None:
    """Return what ``clone`` or ``fetch`` with these words asks for; ``remote`` gives the URL of a name.

    None for a use that is not known: it may ask for something else.
    """
    clones = words[0] == "clone"
    try:
        options, given = getopt.gnu_getopt(
            words[1:],
            "qvb:no:c:j:46" if clones else "qvfpuj:46",
            [*(_CLONE if clones else _FETCH)],
        )
    except getopt.GetoptError:
        return None
    values = dict(options)
    depth = values.get("--depth", "0")
    if not given or not depth.isdigit():
        return None
    url = given[0] if "://" in given[0] else None if clones else remote(given[0])
    if clones:
        ref = values.get("-b", values.get("--branch", "HEAD")) if len(given) <= 2 else ""
    else:
        ref = given[1].lstrip("+").partition(":")[0] if len(given) == 2 else ""
        ref = "HEAD" if len(given) == 1 and "://" in given[0] else ref
    if url is None or not _REF.match(ref) or ".." in ref or ref.endswith((".lock", ".")):
        return None
    return url, ref, int(depth)


def key(asked: Asked) -> str:
    """Return what stands for a request in the index."""
    return " ".join(map(str, asked))


def main() -> int:
    """Run git; what it would have from the network it has from beside this file, or not at all."""
    home = os.path.dirname(os.path.abspath(__file__))
    found = (os.path.join(one, "git") for one in os.environ["VLLM_MODS_PATH"].split(":"))
    git = next((one for one in found if os.access(one, os.X_OK)), None)
    words = sys.argv[1:]
    if git is None:
        sys.stderr.write("git: not found\n")
        return _kept(home, 127)
    start = _subcommand(words)
    action = words[start] if start < len(words) else ""
    settings = {"safe.directory": "*"}
    if action in _NETWORK and not (action == "remote" and "update" not in words):

        def remote(name: str) -> str | None:
            asks = [git, *words[:start], "config", "--get", f"remote.{name}.url"]
            return subprocess.run(asks, capture_output=True, text=True).stdout.strip() or None  # noqa: PLW1510

        asked = parse(words[start:], remote) if action in ("clone", "fetch") else None
        with open(os.path.join(home, INDEX), encoding="utf-8") as file:
            index = json.load(file)
        if asked is None or key(asked) not in index:
            if asked is not None:
                with open(os.path.join(home, "..", ASKED), "a", encoding="utf-8") as log:
                    log.write(json.dumps(asked) + "\n")
            sys.stderr.write(f"git {action}: not taken before\n")
            return _kept(home, 128)
        settings[f"url.file://{home}/{index[key(asked)]}.insteadOf"] = asked[0]
        words = _whole(words)
    environ = dict(os.environ)
    count = int(environ.get("GIT_CONFIG_COUNT", "0"))
    for number, (name, value) in enumerate(settings.items(), count):
        environ[f"GIT_CONFIG_KEY_{number}"], environ[f"GIT_CONFIG_VALUE_{number}"] = name, value
    environ["GIT_CONFIG_COUNT"] = str(count + len(settings))
    code = subprocess.run([git, *words], env=environ).returncode  # noqa: PLW1510
    return _kept(home, code) if code else 0


def _whole(words: list[str]) -> list[str]:
    """Return the words without what would leave objects to be fetched later."""
    kept = [word for word in words if not word.startswith("--filter=")]
    if "--filter" in kept:
        at = kept.index("--filter")
        del kept[at : at + 2]
    return kept


def _subcommand(words: list[str]) -> int:
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _GLOBAL else 1
    return at


def _kept(home: str, code: int) -> int:
    """Keep that a command failed, as the other stand-ins do."""
    with open(os.path.join(home, "..", "asked"), "ab") as log:
        parts = (str(code), os.environ.get("VLLM_MODS_LINE", ""), "git", *sys.argv[1:])
        log.writelines(part.encode("utf-8", "surrogateescape") + b"\0" for part in parts)
        log.write(b"\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
