"""What a mod's script has from the network: taken once, outside of every sandbox, when the mod is imported.

https only, by name and not by address, without anybody's login. A file is pinned by its sha256; of a git repository
one ref is taken, without hooks, submodules or anybody's settings, and pinned by its commit. What came lies in the
mod's folder from then on.
"""

from __future__ import annotations

import ipaddress
import json
import os
import posixpath
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.base.hops import is_local, redact
from vllm_mods.making import served
from vllm_mods.making.effects import Fetch, Left
from vllm_mods.making.served import Asked
from vllm_mods.making.shell_state import DONE, Result, ShellCommand, ShellState, short
from vllm_mods.trees import git_process
from vllm_mods.trees.git_process import GitSettings

FOLDER = "fetched"
_ROUNDS = 8
_NETWORK = (
    "what the network sends is not in the mod: --fetch takes it once, or keep a copy in its folder"
)


class Lacked(Refused):
    """A run that lacked what lies at these URLs, and these refs of repositories."""

    urls: tuple[str, ...] = ()
    repositories: tuple[Asked, ...] = ()


class TakenFile(NamedTuple):
    """What came from a URL, and its file in the mod's folder."""

    url: str
    data: bytes
    file: str


def command(shell: ShellState, command: ShellCommand) -> Result:
    """``curl`` or ``wget`` in a script that is read."""
    asked = served.parse(command.argv)
    if asked is None:
        return shell.leave(command, f"this use of `{command.argv[0]}` is not known")
    url, name = asked
    data = shell.fetched.get(url)
    if data is None:
        shell.effects.append(Left(command.place, short(command.text), _NETWORK, url))
        return Result(status=True)
    shell.effects.append(Fetch(command.place, url, sha256(data) or ""))
    if not name:
        return Result(status=True, out=data.decode("utf-8", "surrogateescape"))
    shell.write(command.place, command.text, shell.path(name), data)
    return DONE


def check(url: str) -> None:
    """Raise ``UsageError`` for a URL that is not taken."""
    parts = urlsplit(url)
    why = ""
    if parts.scheme != "https":
        why = "only https is taken: anybody on the way could change what comes"
    elif parts.username is not None or parts.password is not None:
        why = "it has a login in it, and a mod is passed on"
    elif not parts.hostname or _is_address(parts.hostname):
        why = "it names this machine, or a machine by its address"
    if why:
        raise UsageError(f"{redact(url)}: {why}", hint="keep a copy of it in the mod's folder")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return is_local(host)
    return True


class Fetcher:
    """Takes what scripts ask for, each URL once. ``note`` is told of each before it is asked for."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self.taken: dict[str, bytes] = {}
        self.repositories: dict[Asked, TakenRepository] = {}
        self._note = note

    def take(self, urls: Iterable[str], repositories: Iterable[Asked] = ()) -> bool:
        """Take what lies at URLs, and refs of repositories; tell whether anything is new.

        Raises ``TreeError``, ``UsageError``.
        """
        known = len(self.taken) + len(self.repositories)
        for url in urls:
            if url not in self.taken:
                check(url)
                self._note(f"fetching {url}")
                self.taken[url] = data = _downloaded(url)
                self._note(f"{len(data):,} bytes, sha256 {sha256(data)}")
        for one in repositories:
            if one not in self.repositories:
                check(one[0])
                self._note(f"fetching {one[1]} of {one[0]}")
                folder = tempfile.mkdtemp(prefix="vllm-mods-git-")
                weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
                self.repositories[one] = taken = take_repository(one, folder)
                self._note(f"commit {taken.commit}")
        return len(self.taken) + len(self.repositories) > known

    def files(self) -> tuple[TakenFile, ...]:
        """Return all that was taken, each with a file of its own; of a repository that is the commit."""
        found: dict[str, TakenFile] = {}
        for url, data in self.taken.items():
            stem = posixpath.basename(urlsplit(url).path)
            name = re.sub(r"[^A-Za-z0-9._-]", "-", stem).lstrip(".-") or "file"
            while name in found:
                name = f"{len(found)}-{name}"
            found[name] = TakenFile(url, data, f"{FOLDER}/{name}")
        commits = {
            f"{one.commit}.commit": (f"{url}#{ref}", one.text)
            for (url, ref, _), one in self.repositories.items()
        }
        named = (TakenFile(*pair, f"{FOLDER}/{name}") for name, pair in commits.items())
        return (*found.values(), *named)

    def until_read(self, read: Callable[[Mapping[str, bytes]], tuple[object, ...]]) -> None:
        """Read a script until it asks for nothing more that could be taken."""
        for _ in range(_ROUNDS):
            left = (one for one in read(self.taken) if isinstance(one, Left) and one.url)
            if not self.take(one.url for one in left):
                return


def _downloaded(url: str) -> bytes:
    from vllm_mods.trees.http import Http  # noqa: PLC0415  (requests: 0.2 s)
    from vllm_mods.trees.pip_config import read_settings  # noqa: PLC0415

    def bounded(done: int, _total: int | None) -> None:
        if done > limits.MOD_BYTES:
            raise UsageError(
                f"{redact(url)}: more than {limits.MOD_BYTES}", hint="a copy in the mod's folder"
            )

    with tempfile.TemporaryFile() as file:
        Http(read_settings(os.environ), anonymous=True).download(url, file, bounded)
        file.seek(0)
        return file.read()


def serve(
    folder: str,
    home: str,
    fetched: Mapping[str, bytes],
    repositories: Sequence[TakenRepository] | None,
) -> None:
    """Put what was taken into the folder of a recording that its command sees as ``home``."""
    place = Path(folder, FOLDER)
    place.mkdir()
    files, copies = {}, {}
    for number, (url, data) in enumerate(fetched.items()):
        files[url] = str(number)
        (place / str(number)).write_bytes(data)
    for number, one in enumerate(repositories or ()):
        copies[served.key(one.asked)] = f"{number}.git"
        shutil.copytree(one.folder, place / f"{number}.git")
    index = json.dumps({"files": files, "repositories": copies})
    (place / served.INDEX).write_text(index, encoding="utf-8")
    shutil.copyfile(served.__file__, place / "served.py")
    for name in (*(("curl", "wget") if files else ()), *(() if repositories is None else ("git",))):
        Path(folder, "bin", name).write_text(
            f'#!/bin/sh\nexec "$(PATH=$VLLM_MODS_PATH; command -v python3)" -I {home}/{FOLDER}/served.py {name} "$@"\n',
            encoding="utf-8",
        )


_SETTINGS = {
    "fetch.fsckObjects": "true",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # one pack, whose size is bounded, and not files of any number
    "http.followRedirects": "false",
}
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")


class TakenRepository(NamedTuple):
    """A repository with one ref, in a folder: what was asked for, and the commit that it was then."""

    asked: Asked
    folder: str
    commit: str
    text: bytes
    """The commit as git has it; its hash is ``commit``."""


def take_repository(asked: Asked, folder: str) -> TakenRepository:
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
    environ = git_process.environment(GitSettings.NOBODYS, os.environ)
    settings = (word for pair in _SETTINGS.items() for word in ("-c", "=".join(pair)))
    done = git_process.run(folder, (*settings, *words), environ, largest=limits.MOD_BYTES)
    if done.why:
        url = next((word for word in words if "://" in word), "")
        last = done.why.rpartition("\n")[2]
        raise TreeError(f"git {words[0]} {redact(url)}: {last}", hint="a copy in the mod's folder")
    return done.out


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
