"""HTTP with pip's settings: pages, byte ranges and whole files, asked for again where they break off."""

from __future__ import annotations

import ipaddress
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
import urllib3

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.base.sessions import AGAIN, BROKEN, Adapter, reason, session
from vllm_mods.base.untrusted import number_of
from vllm_mods.trees.index import WebPage, place, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vllm_mods.trees.pip_config import PipSettings

T = TypeVar("T")

_ABSENT = frozenset({404, 410})
_CHUNK = 1 << 18
_LONGEST_WAIT = 10.0
# PyPI's page of vLLM takes 0.3 MB, its largest wheel 0.5 GB, and what is read of that at a time 1 MB.
_LARGEST_PAGE = 64 << 20
_LARGEST_SPAN = 512 << 20
_LARGEST_FILE = 16 << 30


class _CutError(urllib3.exceptions.HTTPError):
    """More or less came than there is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ByteSpan:
    """A part of a file, and the length of the whole."""

    data: bytes
    total: int


class Http:
    """A connection pool. ``received`` counts the body bytes that came over the wire.

    ``backoff`` is the first wait between two tries in seconds; each further one is twice as long.
    """

    def __init__(self, settings: PipSettings, *, backoff: float = 0.25) -> None:
        self.received = 0
        self._settings = settings
        self._backoff = backoff
        # The system's certificates too, as pip has them since 24.2, beside those of certifi.
        context = ssl.create_default_context() if settings.verify is None else None
        self._session = session(settings.retries, backoff=backoff, context=context)
        for host in settings.trusted_hosts:
            # A context of one's own insists on host names, also where nothing is to be checked.
            self._session.mount(f"https://{host}", Adapter(settings.retries, backoff=backoff))
        self._logins = {
            place(url): login
            for url in (*settings.index_urls, *settings.find_links)
            if (login := _login(url)) is not None
        }

    def page(self, url: str, accept: str) -> WebPage | None:
        """Return a page, ``None`` if the server has none there. Raises ``TreeError``."""

        def once() -> WebPage | None:
            with self._get(url, {"Accept": accept}) as response:
                if response.status_code in _ABSENT:
                    return None
                self._check(response, url)
                return WebPage(
                    url=_without_login(response.url),
                    content_type=response.headers.get("Content-Type", ""),
                    body=self._body(response, _LARGEST_PAGE),
                )

        return self._retried(url, once)

    def span(self, url: str, start: int, end: int) -> ByteSpan | None:
        """Return the bytes from ``start`` up to ``end`` of a file that has them all.

        ``None`` if the server does not do ranges; that is known before any of the body is read.
        """

        def once() -> ByteSpan | None:
            headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
            with self._get(url, headers) as response:
                # 416: a server that counts otherwise than it says. 501: one that knows no ranges.
                if response.status_code in {416, 501}:
                    return None
                self._check(response, url)
                total = _content_range(response, start, end)
                if total is None:
                    return None
                if end - start > _LARGEST_SPAN:
                    raise TreeError(
                        f"{redact(url)}: a part of {end - start:,} bytes, too long to be read",
                        hint="the file is not what it says it is: try another index",
                    )
                data = self._body(response, end - start)
                if len(data) != end - start:
                    raise _CutError(f"{len(data)} bytes came of {end - start}")
                return ByteSpan(data=data, total=total)

        return self._retried(url, once)

    def download(
        self, url: str, file: BinaryIO, progress: Callable[[int, int | None], None] | None = None
    ) -> None:
        """Write a whole file into ``file``, from its start again at each try."""

        def once() -> None:
            file.seek(0)
            file.truncate()
            with self._get(url, {"Accept-Encoding": "identity"}) as response:
                self._check(response, url)
                stated = response.headers.get("Content-Length", "")
                total = number_of(stated)
                done = 0
                try:
                    # As it comes: some servers call a .tar.gz encoded, and requests would undo it.
                    for chunk in response.raw.stream(_CHUNK, decode_content=False):
                        file.write(chunk)
                        done += len(chunk)
                        if done > _LARGEST_FILE:
                            raise TreeError(
                                f"{redact(url)}: more than {_LARGEST_FILE >> 30} GiB, and no end",
                                hint="the file is not what it says it is: try another index",
                            )
                        if progress is not None:
                            progress(done, total)
                finally:
                    self.received += response.raw.tell()
                if total is not None and done != total:
                    raise _CutError(f"{done} bytes came of {total}")

        self._retried(url, once)

    def _retried(self, url: str, once: Callable[[], T]) -> T:
        """Ask again for what breaks off. Whether anything comes is the session's to try."""
        why = ""
        for attempt in range(self._settings.retries + 1):
            if attempt:
                time.sleep(min(self._backoff * 2**attempt, _LONGEST_WAIT))
            try:
                return once()
            except BROKEN as error:
                why = f"the answer broke off: {reason(error)}"
        raise self._given_up(url, why)

    def _given_up(self, url: str, why: str) -> Unreachable:
        tries = self._settings.retries + 1
        times = "once" if tries == 1 else f"{tries} times"
        return Unreachable(f"cannot read {redact(url)}: {why} (tried {times})", hint=_SETTINGS)

    def _get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        parts = urlsplit(url)
        trusted = _is_trusted(url, self._settings)
        if parts.scheme != "https" and not trusted and not _is_local(parts.hostname):
            raise TreeError(
                f"{redact(url)}: refusing plain http, as pip does: anybody on the way can change "
                "what comes",
                hint=f"pip config set global.trusted-host {parts.hostname}  # if you mean it",
            )
        if trusted:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        proxy = self._settings.proxy
        try:
            return self._session.get(
                url,
                headers=dict(headers),
                auth=_login(url) or self._logins.get(place(url)),
                # Given with each call: requests would prefer its environment variables otherwise.
                verify=False if trusted else (self._settings.verify or True),
                cert=self._settings.client_cert,
                proxies={"http": proxy, "https": proxy} if proxy else None,
                timeout=self._settings.timeout or None,
                stream=True,
            )
        except requests.exceptions.SSLError as error:
            raise TreeError(
                f"{redact(url)}: the server's certificate is not trusted: {reason(error)}",
                hint="pip config set global.cert FILE  # the certificates of your network",
            ) from error
        except BROKEN as error:
            raise self._given_up(url, reason(error)) from error
        except (requests.exceptions.RequestException, OSError, ValueError) as error:
            # A ValueError is about the URL, a redirect's or the proxy's, and quotes it, passwords and all.
            why = "no usable URL or proxy" if isinstance(error, ValueError) else reason(error)
            raise TreeError(f"{redact(url)}: {why}", hint=_SETTINGS) from error

    def _check(self, response: requests.Response, url: str) -> None:
        status = response.status_code
        if status in {200, 206}:
            return
        said = f"the server answered {status} {response.reason or ''}".rstrip()
        if status in AGAIN:
            raise self._given_up(url, said)
        hint = _SETTINGS
        if status in {401, 403, 407}:
            hint = "put the user and the password into the index URL or ~/.netrc, as for pip"
        raise TreeError(f"{redact(url)}: {said}", hint=hint)

    def _body(self, response: requests.Response, limit: int) -> bytes:
        """Read the body, of a server that sends more than ``limit`` no more than that."""
        parts: list[bytes] = []
        size = 0
        try:
            for chunk in response.iter_content(_CHUNK):
                parts.append(chunk)
                size += len(chunk)
                if size > limit:
                    raise _CutError(f"more than the {limit} bytes that there can be came")
        finally:
            self.received += response.raw.tell()
        return b"".join(parts)


def _without_login(url: str) -> str:
    """Return the URL without user and password: those of an index are known by its host."""
    return urlunsplit(urlsplit(url)._replace(netloc=place(url)))


def _content_range(response: requests.Response, start: int, end: int) -> int | None:
    """Return the total of ``Content-Range``; ``None`` if the answer is not the range asked for."""
    if response.status_code != requests.codes.partial_content:
        return None
    if response.headers.get("Content-Encoding", "identity") != "identity":
        return None  # A range of a compressed stream is of no use.
    unit, _, rest = response.headers.get("Content-Range", "").partition(" ")
    extent, _, total = rest.partition("/")
    if unit != "bytes" or extent != f"{start}-{end - 1}":
        return None
    return number_of(total)


def _login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    if parts.username is None:
        return None
    return unquote(parts.username), unquote(parts.password or "")


def _is_trusted(url: str, settings: PipSettings) -> bool:
    parts = urlsplit(url)
    return parts.hostname is not None and any(
        host in {parts.hostname, f"{parts.hostname}:{parts.port}"}
        for host in settings.trusted_hosts
    )


def _is_local(host: str | None) -> bool:
    if host is None or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_SETTINGS = "pip config list  # index-url, proxy, cert, timeout and retries are taken from there"
