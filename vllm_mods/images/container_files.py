"""The files of a container, running or not, as a docker engine gives them out."""

import base64
import contextlib
import json
import math
import posixpath
import re
import tarfile
from collections.abc import Iterator
from functools import cached_property
from typing import BinaryIO, cast

import docker.errors
import requests
import urllib3
from docker.api.client import APIClient

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError
from vllm_mods.base.sessions import reason
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tars
from vllm_mods.images import streams
from vllm_mods.images.model import DIR, FILE, LINK, Base, ImageEntry

# What is kept of a listing, so that a search in vllm/ does not cost a request for each file.
_LARGEST_KEPT = 1 << 20
_KEPT = re.compile(r"\.(?:pyi?|pth|jinja|json)\Z|\.dist-info/|/\.vllm-mods/")
_LARGEST_PASSED = 8 << 20  # less than what another request costs; libraries of vLLM's are larger
# What is read as one stream: vLLM if it has no large library, else each package in it; metadata; a receipt with all it needs.
_PACKAGE = re.compile(r"(?s).*-packages/(?:vllm(?:/[^/]+)?|[^/]+\.dist-info|\.vllm-mods)(?=/|\Z)")
# os.ModeDir of Go, in which the engine is written, its links, and all that is no file
_GO_FOLDER, _GO_LINK, _GO_OTHERS = 1 << 31, 1 << 27, 0b1111 << 24
_NO_OWNER = -1
_ROOT = ImageEntry("", DIR, 0o755, _NO_OWNER, 0, 0)
_RECORDS, _FORMAT, _DAYS = "engine-images", "2", 90


class ContainerFiles(Base):
    """The files of a container, running or not; ``_url``, where they are asked for, is made with the first of them.

    It has what the engine puts into each: ``.dockerenv``, ``etc/hosts`` and its like, ``dev``.
    """

    def __init__(self, client: APIClient, reference: str, cache: Cache) -> None:
        self.reference = reference
        self._client = client
        self._cache = cache
        self._image: tuple[str, ...] = ()
        self._entries: dict[str, ImageEntry | None] = {"": _ROOT}
        self._contents: dict[str, bytes] = {}
        self._listed: set[str] = set()
        self._begun: set[str] = set()
        self._read: set[str] = set()
        self._unsure = False
        self._kept: dict[str, str] = {}

    @cached_property
    def _url(self) -> str:
        raise NotImplementedError

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path. Links on the way are not followed, though the engine would."""
        for read in (self._read_package, self._stream):
            known = self._entries.get(path, _ROOT)
            if known is not None and known.uid == _NO_OWNER and self._may_be(path):
                read(path)
        return self._entries.get(path)

    def look(self, path: str) -> ImageEntry | None:
        """Return the entry of a path, of a file or a folder without its owner, and of a link where it ends."""
        if path not in self._entries and self._may_be(path):
            self._read_package(path)
            if path not in self._entries:
                self._entries[path] = self._stat(path)
        return self._entries.get(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        entry = self.entry(path)
        if entry is None or entry.kind != FILE:
            return None
        if path in self._kept and (data := self._cache.get(self._kept[path])) is not None:
            return data
        self._read.add(path)
        if path not in self._contents:
            self._read_package(path)
        if path not in self._contents:
            self._stream(path, content=True)
        return self._contents.get(path)

    def remember(self, *image: str) -> None:
        """Begin with what ``finish`` has kept of an image, which never changes."""
        self._image = image
        try:
            kept = json_of(self._cache.lookup(_RECORDS, _FORMAT, *image) or b"null")
            entries = {path: row and ImageEntry(*row) for path, row in kept["entries"].items()}
            self._listed, self._kept = set(kept["listed"]), {**kept["read"]}
            self._entries |= entries
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # Of another version, or cut short.

    def finish(self) -> None:
        """Keep what is known of an image, if the engine was asked for anything, and the files that were read.

        Raises ``TreeError`` if the container is gone: the engine says of anything in it that it is not there, too.
        """
        if self._unsure and self._stat("") is None:
            said = "the container was removed while it was being read"
            raise TreeError(f"{self.reference}: {said}", hint=AGAIN)
        if self._image and "_url" in vars(self):
            for path in self._read & self._contents.keys():
                self._kept[path] = self._cache.put(self._contents[path])
            record = {"entries": self._entries, "listed": sorted(self._listed), "read": self._kept}
            self._cache.sweep(_RECORDS, _DAYS)
            self._cache.record(_RECORDS, _FORMAT, *self._image, data=json.dumps(record).encode())

    def paths(self, under: str) -> Iterator[ImageEntry]:
        """Return everything below a folder. The engine sends the contents along."""
        if self._is_folder(under) and under not in self._listed:
            self._stream(under, math.inf)
        top = f"{under}/" if under else ""
        for path, entry in [*self._entries.items()]:
            if entry is not None and path and path.startswith(top):
                yield entry

    def _is_folder(self, path: str) -> bool:
        looked = self.look(path)
        return looked is not None and looked.kind == DIR

    def _may_be(self, path: str) -> bool:
        """Tell whether something may lie at a path, as far as that is known of what it lies in."""
        folder = posixpath.dirname(path)
        return not path or (self._is_folder(folder) and folder not in self._listed)

    def _read_package(self, path: str) -> None:
        """Read what a path lies in as one stream, once. Each request for files costs as much as some MB."""
        package = _PACKAGE.match(path)
        if package and package[0] not in self._begun:
            self._begun.add(package[0])
            self._stream(package[0], _LARGEST_PASSED)

    def _stream(self, under: str, most: float = 100, *, content: bool = False) -> None:
        """Read a path, and of a folder what is in it, up to a file of more than ``most`` bytes, or as many entries."""
        what = f"{self.reference}: /{under}"
        with self._ask("GET", under) as response:
            if self._unsure:
                self._entries[under] = None
                return
            if response.status_code != requests.codes.ok:
                said = f"the engine answered {response.status_code}: {_said(response)}"
                raise TreeError(f"{what}: {said}", hint=AGAIN)
            with streams.reading(what, AGAIN), asking(self.reference):
                file = cast("BinaryIO", streams.Forward(response.raw))
                with tarfile.open(fileobj=file, mode="r|", tarinfo=tars.Info) as archive:
                    self._take(archive, under, most, content=content)

    def _take(self, archive: tarfile.TarFile, under: str, most: float, *, content: bool) -> None:
        entries: dict[str, ImageEntry] = {}
        for member in archive:
            if entries and max(member.size, len(entries)) > most:
                break
            # Its first component is the path itself.
            path = posixpath.join(under, member.name.strip("/").partition("/")[2]).rstrip("/")
            first = member.islnk() and posixpath.join(under, member.linkname.partition("/")[2])
            entries[path] = streams.entry(member, path, entries.get(first) if first else None)
            is_kept = member.size <= _LARGEST_KEPT and (path == under or _KEPT.search(path))
            if member.isreg() and (content or is_kept):
                self._contents[path] = streams.content(archive, member)
        else:
            self._listed |= {path for path, one in entries.items() if one.kind == DIR}
        if not entries or (under and under not in entries):
            raise TreeError(f"{self.reference}: the engine sent nothing for /{under}", hint=AGAIN)
        self._entries |= entries

    def _stat(self, path: str) -> ImageEntry | None:
        """Ask for what lies at a path, without its owner."""
        with self._ask("HEAD", path) as response:
            if self._unsure:
                return None
        stat = response.headers.get("X-Docker-Container-Path-Stat", "")
        try:
            said = json_of(base64.b64decode(stat))
            mode, target = int(said["mode"]), str(said.get("linkTarget") or "")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            why = f"{self.reference}: /{path}: the engine answered {response.status_code} without a valid X-Docker-Container-Path-Stat"
            raise TreeError(why, hint=AGAIN) from error
        kind = DIR if mode & _GO_FOLDER else LINK if mode & _GO_LINK and target else FILE
        if kind == FILE and mode & _GO_OTHERS:
            self._stream(path)
            return self._entries[path]
        return ImageEntry(path, kind, mode & 0o777, _NO_OWNER, 0, 0, target if kind == LINK else "")

    def _ask(self, verb: str, path: str) -> requests.Response:
        with asking(self.reference):
            response: requests.Response = self._client.request(
                verb,
                self._url,
                params={"path": f"/{path}"},
                headers={"Accept-Encoding": "identity"},  # packing would cost more than it saves
                stream=True,
                timeout=self._client.timeout,
            )
        self._unsure = response.status_code == requests.codes.not_found
        return response


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Raise ``TreeError`` where the engine does not answer, or breaks off."""
    try:
        yield
    except docker.errors.APIError as error:
        words = error.explanation or str(error)
        raise TreeError(f"{what}: the engine refused: {words}", hint=AGAIN) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        why = f"{what}: the engine stopped in the middle: {reason(error)}"
        raise TreeError(why, hint=AGAIN) from error


def _said(response: requests.Response) -> str:
    try:
        return str(response.json()["message"])
    except (ValueError, LookupError, TypeError):
        return response.reason or ""


AGAIN = "try again; `docker version` shows whether the engine works"
