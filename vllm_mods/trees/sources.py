"""Ask every index and folder that pip would ask for the files of a project."""

import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, Unreachable, reading
from vllm_mods.base.hops import redact
from vllm_mods.base.untrusted import json_of
from vllm_mods.trees.index import ACCEPT, PROJECT, ReleaseFile, WebPage, parse_page, release_file
from vllm_mods.trees.pip_config import PipSettings

if TYPE_CHECKING:
    from vllm_mods.trees.http import Http

FRESH_SECONDS = 600.0
"""How long what an index said counts as new: PyPI itself lets its pages be ten minutes old."""


class IndexAnswer(NamedTuple):
    """What all sources together know, and why those that could not be asked could not.

    ``old`` means that a kept page stood in for an index that could have been asked.
    """

    files: tuple[ReleaseFile, ...]
    failures: tuple[str, ...]
    old: bool


class IndexSources:
    """The sources of ``settings`` for a project. ``http`` is ``None`` when no connection may be opened."""

    def __init__(
        self,
        settings: PipSettings,
        cache: Cache,
        http: "Http | None",
        note: Callable[[str], None] | None = None,
        project: str = PROJECT,
    ) -> None:
        self._settings = settings
        self._project = project
        self._cache = cache
        self._http = http
        self._note = note
        self._used_kept = False
        self._answer: IndexAnswer | None = None

    def ask(self, *, fresh: bool) -> IndexAnswer:
        """Return every file of the project, the first source that has a file name winning.

        With ``fresh`` every index is asked anew; without, the last answer will do, or a page kept for less
        than ten minutes. A source that cannot be asked is answered for by the page kept of it, however old.
        """
        if self._answer is not None and not fresh:
            return self._answer
        self._used_kept = False
        files: dict[str, ReleaseFile] = {}
        failures: list[str] = []
        indexes = (f"{url.rstrip('/')}/{self._project}/" for url in self._settings.index_urls)
        for url in (*self._settings.find_links, *indexes):
            try:
                for file in self._ask_one(url, fresh=fresh):
                    files.setdefault(file.filename, file)
            except TreeError as error:
                failures.append(error.message)
        self._answer = IndexAnswer(tuple(files.values()), tuple(failures), self._used_kept)
        return self._answer

    def _ask_one(self, url: str, *, fresh: bool) -> tuple[ReleaseFile, ...]:
        place = local_path(url)
        if place is not None:
            return _local_files(place, self._project)
        page = self._page(url, fresh=fresh)
        if page is None:
            return ()
        try:
            return parse_page(page.body, page.content_type, page.url, self._project)
        except ValueError as error:
            raise TreeError(f"{redact(url)}: not a page of a package index: {error}") from error

    def _page(self, url: str, *, fresh: bool) -> WebPage | None:
        last = self._kept(url)
        if last is not None and not fresh and 0 <= time.time() - last[1] < FRESH_SECONDS:
            self._used_kept = self._http is not None
            return last[0]
        if self._http is None:
            if last is None:
                why = "this page is not in the cache, and --offline forbids the network"
                raise Unreachable(f"{redact(url)}: {why}")
            return last[0]
        try:
            page = self._http.page(url, ACCEPT)
        except TreeError as error:
            if last is None:
                raise
            if self._note is not None:
                self._note(f"{error.message}; using the cached page")
            return last[0]
        self._keep(url, page)
        return page

    def _kept(self, url: str) -> tuple[WebPage | None, float] | None:
        data = self._cache.lookup("pages", url)
        try:
            record = json_of(data or b"{}")
            asked, blob = float(record["time"]), record["blob"]
            body = None if blob is None else self._cache.get(blob)
            page = body and WebPage(record["url"], record["content_type"], body)
        except (ValueError, KeyError, TypeError):
            return None  # Written by another version, or cut short.
        if blob is None:
            return None, asked  # the index had none
        return (page, asked) if page else None

    def _keep(self, url: str, page: WebPage | None) -> None:
        record: dict[str, object] = {"time": time.time(), "blob": None}
        if page is not None:
            blob = self._cache.put(page.body)
            record |= {"url": page.url, "content_type": page.content_type, "blob": blob}
        self._cache.record("pages", url, data=json.dumps(record).encode())


def local_path(url: str) -> str | None:
    """Return the path of a ``file:`` URL or of a plain path; ``None`` for anything else."""
    if "://" not in url and not url.startswith("file:"):
        return os.path.abspath(os.path.expanduser(url))
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" else None


def _local_files(place: str, project: str) -> tuple[ReleaseFile, ...]:
    """Read a page, or a folder: its ``index.html`` first, then the archives in it."""
    is_folder = os.path.isdir(place)
    page = os.path.join(place, "index.html") if is_folder else place
    files: list[ReleaseFile | None] = []
    with reading(place):
        if os.path.isfile(page):
            with open(page, "rb") as file:
                body = limits.bounded(file, limits.PAGE, page)
            files += parse_page(body, "text/html", f"file://{quote(page)}", project)
        for name in sorted(os.listdir(place)) if is_folder else ():
            files.append(release_file(name, f"file://{quote(f'{place}/{name}')}", project))
    # Neither: an extra index that does not have the project.
    return tuple(file for file in files if file is not None)
