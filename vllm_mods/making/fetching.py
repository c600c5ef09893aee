"""What a mod's script has from the network: fetched once, outside of the sandbox, when the mod is imported.

https only, by name and not by address, without anybody's login. Each file is pinned by its sha256 and lies in the
mod's folder from then on.
"""

import ipaddress
import os
import posixpath
import re
import tempfile
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.hops import is_local, redact

FOLDER = "fetched"
_MOST = 100  # the time may be part of a URL, and then it is new in each run


class Lacked(Refused):
    """A run that lacked what lies at these URLs."""

    urls: tuple[str, ...] = ()


class DownloadedFile(NamedTuple):
    """What came from a URL, and its file in the mod's folder."""

    url: str
    data: bytes
    file: str


def check(url: str) -> None:
    """Raise ``UsageError`` for a URL that is not fetched."""
    parts = urlsplit(url)
    why = ""
    if parts.scheme != "https":
        why = "only https is allowed: anybody on the network could change the data"
    elif parts.username is not None or parts.password is not None:
        why = "the URL contains a login, and mods are published"
    elif not parts.hostname or _is_address(parts.hostname):
        why = "URLs of this machine or of an IP address are refused"
    if why:
        raise UsageError(f"{redact(url)}: {why}", hint="put the file into the mod's folder")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return is_local(host)
    return True


class Fetcher:
    """Fetches what scripts ask for, each URL once. ``note`` is told of each before it is asked for."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._data: dict[str, bytes] = {}
        self._note = note

    def take(self, urls: Iterable[str]) -> bool:
        """Fetch what lies at URLs; return True if any is new. Raises ``TreeError``, ``UsageError``."""
        new = [url for url in dict.fromkeys(urls) if url not in self._data]
        if len(self._data) + len(new) > _MOST:
            why = (
                f"the command asks for more than {_MOST} URLs in all its runs; nothing was written"
            )
            raise UsageError(why, hint="put the files into the mod's folder")
        for url in new:
            check(url)
            self._note(f"fetching {url}")
            self._data[url] = data = _download(url)
            self._note(f"{len(data):,} bytes, sha256 {sha256(data)}")
        return bool(new)

    def files(self) -> tuple[DownloadedFile, ...]:
        """Return all that was fetched, each with a file of its own."""
        files: dict[str, DownloadedFile] = {}
        for url, data in self._data.items():
            stem = posixpath.basename(urlsplit(url).path)
            name = re.sub(r"[^A-Za-z0-9._-]", "-", stem).lstrip(".-") or "file"
            while name in files:
                name = f"{len(files)}-{name}"
            files[name] = DownloadedFile(url, data, f"{FOLDER}/{name}")
        return tuple(files.values())


def _download(url: str) -> bytes:
    from vllm_mods.trees.http import Http  # noqa: PLC0415  (requests: 0.2 s)
    from vllm_mods.trees.pip_config import read_settings  # noqa: PLC0415

    def check_size(done: int, _total: int | None) -> None:
        if done > limits.MOD_BYTES:
            why = f"{redact(url)}: more than {limits.MOD_BYTES}"
            raise UsageError(why, hint="put the file into the mod's folder")

    with tempfile.TemporaryFile() as file:
        Http(read_settings(os.environ), anonymous=True).download(url, file, check_size)
        file.seek(0)
        return file.read()
