"""What a mod's script has from git repositories: taken once, outside of every sandbox, when the mod is imported.

By https only, without hooks, submodules, anybody's settings or login, one ref at a time; it is pinned by its commit.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.base.hops import redact
from vllm_mods.making import served
from vllm_mods.making.served import Asked
from vllm_mods.trees import git_process

_SETTINGS = {
    "core.hooksPath": os.devnull,
    "credential.helper": "",
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # one pack, whose size is bounded, and not files of any number
    "gc.auto": "0",
    "http.followRedirects": "false",
    "maintenance.auto": "false",
}
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")


class TakenRepository(NamedTuple):
    """A repository with one ref, in a folder: what was asked for, and the commit that it was then."""

    asked: Asked
    folder: str
    commit: str
    text: bytes
    """The commit as git has it; its hash is ``commit``."""


def take(asked: Asked, folder: str) -> TakenRepository:
    """Take a ref of a repository into an empty folder. Raises ``TreeError`` if it cannot be had."""
    url, ref, depth = asked
    _git(folder, "init", "--bare", "--quiet", "--template=", ".")
    full, head = _resolved(url, ref, folder)
    kept = f"refs/taken/{full}" if _COMMIT.match(full) else full
    deep = [f"--depth={depth}"] if depth else []
    _git(folder, "fetch", "--quiet", "--no-tags", *deep, "--", url, f"+{full}:{kept}")
    if head:
        _git(folder, "symbolic-ref", "HEAD", head)
    for name in ("allowAnySHA1InWant", "allowFilter"):
        _git(folder, "config", f"uploadpack.{name}", "true")
    commit = _git(folder, "rev-parse", "--verify", f"{kept}^{{commit}}").decode().strip()
    return TakenRepository(asked, folder, commit, _git(folder, "cat-file", "commit", commit))


def _resolved(url: str, ref: str, folder: str) -> tuple[str, str]:
    """Return the full name of a ref there, as git would take it, and the branch that is HEAD there or empty."""
    rows = _git(folder, "ls-remote", "--symref", "--", url).decode("utf-8", "replace").splitlines()
    pairs = [row.partition("\t")[::2] for row in rows]
    heads = [
        left.removeprefix("ref: ")
        for left, right in pairs
        if left[:5] == "ref: " and right == "HEAD"
    ]
    names = {right for left, right in pairs if left[:5] != "ref: "}
    head = heads[0] if heads else ""
    if ref == "HEAD" and head in names:
        return head, head
    for full in (ref, f"refs/{ref}", f"refs/tags/{ref}", f"refs/heads/{ref}"):
        if full in names:
            return full, full if full.startswith("refs/heads/") else ""
    if _COMMIT.match(ref):
        return ref, ""
    raise TreeError(f"{redact(url)} has no {ref}", hint=f"git ls-remote {redact(url)}")


def _git(folder: str, *words: str) -> bytes:
    """Run git in a folder, which gets no file larger than a mod may be. Raises ``TreeError``."""
    kept = ("GIT_SSL_CAINFO", "GIT_SSL_CAPATH")
    environ = {
        name: value for name, value in os.environ.items() if name[:4] != "GIT_" or name in kept
    }
    environ |= {
        "GIT_ALLOW_PROTOCOL": "https",
        "GIT_ASKPASS": "",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
    }
    settings = (word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair)))
    most, seconds = limits.MOD_BYTES, limits.TOOL_SECONDS
    command = (*settings, *words)
    out, why = git_process.run(folder, command, environ, most=most, seconds=seconds)
    if why:
        url = next((word for word in words if "://" in word), "")
        last = why.rpartition("\n")[2]
        raise TreeError(f"git {words[0]} {redact(url)}: {last}", hint="a copy in the mod's folder")
    return out


def asked(folder: str) -> Iterator[Asked]:
    """Yield what a recording's command asked for and did not get; it may have written there itself."""
    place = os.path.join(folder, served.ASKED)
    if not os.path.exists(place):
        return
    with open(place, "rb") as file:
        for line in file.read(limits.SCRIPT).splitlines():
            try:
                one = json.loads(line)
            except ValueError:
                continue
            if isinstance(one, list) and [*map(type, one)] == [str, str, int]:
                url, ref, depth = one
                words = [f"--depth={depth}"] if depth else []
                parsed = served.parse_git(["fetch", *words, "--", url, ref], lambda _: None)
                if parsed is not None:
                    yield parsed
