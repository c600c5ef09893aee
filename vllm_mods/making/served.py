"""``curl``, ``wget`` and ``git`` with what was taken before: what a command asks for, and what it gets.

A recording runs this file in its sandbox in place of the three, so it shares nothing with the package. A file is put
where the command would put it; of git the real one works on a copy of the repository.
"""

from __future__ import annotations

import getopt
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable

INDEX, ASKED = "index.json", "repositories"

# What neither changes the bytes that come nor asks for others.
_CURL = "LfsSkgO#vo:m:A:"
_CURL_LONG = (
    *("location", "fail", "silent", "show-error", "insecure", "globoff", "remote-name", "verbose"),
    *("compressed", "progress-bar", "no-progress-meter", "create-dirs", "fail-with-body", "ipv4"),
    *("output=", "max-time=", "connect-timeout=", "retry=", "retry-delay=", "user-agent=", "url="),
    *("retry-all-errors", "retry-connrefused", "proto=", "tlsv1.2", "http1.1", "output-dir="),
)
_WGET = "qcvO:P:t:T:U:n:46"
_WGET_LONG = (
    *("quiet", "continue", "verbose", "no-verbose", "no-check-certificate", "show-progress"),
    *("output-document=", "directory-prefix=", "tries=", "timeout=", "user-agent=", "progress="),
    *("https-only", "no-clobber", "inet4-only"),
)
_GLOBAL = ("-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--config-env")
_NETWORK = {
    *("clone", "fetch", "pull", "ls-remote", "submodule", "remote", "archive", "lfs", "subtree"),
}
_PLAIN = (
    *("quiet", "verbose", "progress", "no-progress", "no-tags", "single-branch", "depth="),
    *("filter=", "jobs=", "no-recurse-submodules", "ipv4", "ipv6"),
)  # what neither asks for more nor for other objects
_CLONE = (*_PLAIN, "branch=", "no-checkout", "origin=", "bare", "config=")
_FETCH = (*_PLAIN, "force", "prune", "update-head-ok", "no-write-fetch-head", "update-shallow")
_REF = re.compile(r"[A-Za-z0-9][\w.+-]*(?:/[\w.+-]+)*\Z", re.ASCII)
Asked = tuple[str, str, int]
"""A URL, a ref of it, and how many commits deep, 0 for all."""


def parse(argv: list[str]) -> tuple[str, str] | None:
    """Return the URL of a ``curl`` or ``wget``, and the file that it writes, ``""`` for its output.

    None for a use that is not known: what it gets may be something else than what lies at the URL.
    """
    curl = os.path.basename(argv[0]) == "curl"
    try:
        options, urls = getopt.gnu_getopt(
            argv[1:], *((_CURL, [*_CURL_LONG]) if curl else (_WGET, [*_WGET_LONG]))
        )
    except getopt.GetoptError:
        return None
    given = dict(options)
    urls += [value for name, value in options if name == "--url"]
    if len(urls) != 1:
        return None
    url = urls[0]
    own = url.partition("?")[0].rpartition("/")[2]
    if curl:
        named = given.get("-o", given.get("--output"))
        if named is None and not given.keys() & {"-O", "--remote-name"}:
            return url, ""
        folder = given.get("--output-dir", "")
    else:
        named = given.get("-O", given.get("--output-document"))
        folder = given.get("-P", given.get("--directory-prefix", "")) if named is None else ""
    if named == "-":
        return url, ""
    name = named or own
    return (url, os.path.join(folder, name)) if name else None


def parse_git(words: list[str], remote: Callable[[str], str | None]) -> Asked | None:
    """Return what ``clone`` or ``fetch`` with these words asks for; ``remote`` gives the URL of a name.

    None for a use that is not known: it may ask for something else.
    """
    clones = words[0] == "clone"
    try:
        short, long = ("qvb:no:c:j:46", _CLONE) if clones else ("qvfpuj:46", _FETCH)
        options, given = getopt.gnu_getopt(words[1:], short, [*long])
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
    """Serve one call out of the folder that this file was put in; keep what is not there, or fails."""
    home = os.path.dirname(os.path.abspath(__file__))
    name, *words = sys.argv[1:]
    with open(os.path.join(home, INDEX), encoding="utf-8") as file:
        index = json.load(file)
    if name == "git":
        code = _git(home, words, index["repositories"])
    else:
        code = _file(home, [name, *words], index["files"])
    if code:  # is kept, as the other stand-ins do
        with open(os.path.join(home, "..", "asked"), "ab") as log:
            parts = (str(code), os.environ.get("VLLM_MODS_LINE", ""), name, *words)
            log.writelines(part.encode("utf-8", "surrogateescape") + b"\0" for part in parts)
            log.write(b"\n")
    return code


def _file(home: str, argv: list[str], index: dict[str, str]) -> int:
    asked = parse(argv)
    if asked is None or asked[0] not in index:
        sys.stderr.write(f"{argv[0]}: not taken before\n")
        return 6 if argv[0] == "curl" else 4
    url, place = asked
    with open(os.path.join(home, index[url]), "rb") as file:
        data = file.read()
    if not place:
        sys.stdout.buffer.write(data)
        return 0
    if "--create-dirs" in argv or argv[0] == "wget":
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
    with open(place, "wb") as out:
        out.write(data)
    return 0


def _git(home: str, words: list[str], index: dict[str, str]) -> int:
    """Run git; what it would have from the network it has from beside this file, or not at all."""
    found = (os.path.join(one, "git") for one in os.environ["VLLM_MODS_PATH"].split(":"))
    git = next((one for one in found if os.access(one, os.X_OK)), None)
    if git is None:
        sys.stderr.write("git: not found\n")
        return 127
    start = 0
    while start < len(words) and words[start].startswith("-"):
        start += 2 if words[start] in _GLOBAL else 1
    action = words[start] if start < len(words) else ""
    settings = {"safe.directory": "*"}
    if action in _NETWORK and not (action == "remote" and "update" not in words):

        def remote(name: str) -> str | None:
            asks = [git, *words[:start], "config", "--get", f"remote.{name}.url"]
            return subprocess.run(asks, capture_output=True, text=True).stdout.strip() or None  # noqa: PLW1510

        asked = parse_git(words[start:], remote) if action in ("clone", "fetch") else None
        if asked is None or key(asked) not in index:
            if asked is not None:
                with open(os.path.join(home, "..", ASKED), "a", encoding="utf-8") as log:
                    log.write(json.dumps(asked) + "\n")
            sys.stderr.write(f"git {action}: not taken before\n")
            return 128
        settings[f"url.file://{home}/{index[key(asked)]}.insteadOf"] = asked[0]
        words = _whole(words)
    environ = dict(os.environ)
    count = int(environ.get("GIT_CONFIG_COUNT", "0"))
    for number, (name, value) in enumerate(settings.items(), count):
        environ[f"GIT_CONFIG_KEY_{number}"], environ[f"GIT_CONFIG_VALUE_{number}"] = name, value
    environ["GIT_CONFIG_COUNT"] = str(count + len(settings))
    return subprocess.run([git, *words], env=environ).returncode  # noqa: PLW1510


def _whole(words: list[str]) -> list[str]:
    """Return the words without what would leave objects to be fetched later."""
    kept = [word for word in words if not word.startswith("--filter=")]
    if "--filter" in kept:
        at = kept.index("--filter")
        del kept[at : at + 2]
    return kept


if __name__ == "__main__":
    sys.exit(main())
