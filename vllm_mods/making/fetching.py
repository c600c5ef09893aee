"""What a mod's script has from the network: taken once, outside of every sandbox, when the mod is imported.

https only, by name and not by address, without anybody's login; what came is pinned by its sha256 and
lies in the mod's folder from then on.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.hops import is_local, redact
from vllm_mods.making import fetching_git, served
from vllm_mods.making.effects import Fetch, Left
from vllm_mods.making.fetching_git import TakenRepository
from vllm_mods.making.served import Asked
from vllm_mods.making.shell_state import DONE, Result, ShellCommand, ShellState, short

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
                self.repositories[one] = taken = fetching_git.take(one, folder)
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
    place = os.path.join(folder, FOLDER)
    os.mkdir(place)
    files, copies = {}, {}
    for number, (url, data) in enumerate(fetched.items()):
        files[url] = str(number)
        with open(os.path.join(place, str(number)), "wb") as file:
            file.write(data)
    for number, one in enumerate(repositories or ()):
        copies[served.key(one.asked)] = f"{number}.git"
        shutil.copytree(one.folder, os.path.join(place, f"{number}.git"))
    with open(os.path.join(place, served.INDEX), "w", encoding="utf-8") as out:
        json.dump({"files": files, "repositories": copies}, out)
    shutil.copyfile(served.__file__, os.path.join(place, "served.py"))
    for name in (*(("curl", "wget") if files else ()), *(() if repositories is None else ("git",))):
        program = os.path.join(folder, "bin", name)
        with open(program, "w", encoding="utf-8") as out:
            out.write(
                f'#!/bin/sh\nexec "$(PATH=$VLLM_MODS_PATH; command -v python3)" -I {home}/{FOLDER}/served.py {name} "$@"\n'
            )
