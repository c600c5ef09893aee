"""HTTP with pip's settings: pages, byte ranges and whole files, asked for again where they break off."""

import gzip
import io
import ssl
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import requests
import urllib3

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, Unreachable, no_network
from vllm_mods.base.hops import is_local, place, redact
from vllm_mods.base.sessions import (
    AGAIN,
    BROKEN,
    Adapter,
    is_over,
    is_unconnected,
    reason,
    session,
    until,
)
from vllm_mods.base.untrusted import number_of
from vllm_mods.trees.index import WebPage
from vllm_mods.trees.pip_config import PipSettings

T = TypeVar("T")

_ABSENT = frozenset({404, 410})
_CHUNK = 1 << 18
_LONGEST_ETAG = 256


class _CutError(urllib3.exceptions.HTTPError):
    """More or less came than there is."""


class ByteSpan(NamedTuple):
    """A part of a file, the length of the whole, and what the server calls its state (``ETag``), or ``""``."""

    data: bytes
    total: int
    etag: str = ""


class Http:
    """A connection pool. ``received`` counts the body bytes that came over the wire.

    ``backoff`` is the first wait between two tries in seconds; each further one is twice as long. An ``anonymous``
    one gives nobody's login to anybody, not what ``.netrc`` has either.
    """

    def __init__(
        self, settings: PipSettings, *, backoff: float = 0.25, anonymous: bool = False
    ) -> None:
        self.received = 0
        self._settings = settings
        self._backoff = backoff
        # The system's certificates too, as pip has them since 24.2, beside those of certifi.
        context = ssl.create_default_context() if settings.verify is None else None
        self._session = session(
            settings.retries,
            backoff=backoff,
            context=context,
            plain=settings.trusts,
            verify=lambda url: False if settings.trusts(url) else (settings.verify or True),
        )
        for host in settings.trusted_hosts:
            # A context of one's own insists on host names, also where nothing is to be checked.
            self._session.mount(f"https://{host}", Adapter(settings.retries, backoff=backoff))
        self._anonymous = anonymous
        logins = ((url, _login(url)) for url in (*settings.index_urls, *settings.find_links))
        self._logins = {place(url): login for url, login in logins if login is not None}

    def page(self, url: str, accept: str) -> WebPage | None:
        """Return a page, ``None`` if the server has none there. Raises ``TreeError``."""

        def read(response: requests.Response) -> WebPage | None:
            if response.status_code in _ABSENT:
                return None
            self._check(response, url)
            # without user and password: those of an index are known by its host
            return WebPage(
                url=urlunsplit(urlsplit(response.url)._replace(netloc=place(response.url))),
                content_type=response.headers.get("Content-Type", ""),
                body=_unpacked(self._body(response, limits.PAGE), response, url),
            )

        headers = {"Accept": accept, "Accept-Encoding": "gzip"}
        return self._ask(url, headers, read, limits.ANSWER_SECONDS)

    def span(self, url: str, start: int, end: int) -> ByteSpan | None:
        """Return the bytes from ``start`` up to ``end`` of a file that has them all.

        ``None`` if the server does not do ranges; that is known before any of the body is read.
        """

        def read(response: requests.Response) -> ByteSpan | None:
            # 416: a server that counts otherwise than it says. 501: one that knows no ranges.
            if response.status_code in {416, 501}:
                return None
            self._check(response, url)
            total = _content_range(response, start, end)
            if total is None:
                return None
            if end - start > limits.SPAN:
                why = f"{redact(url)}: a part of the file has {end - start:,} bytes; the limit is {limits.SPAN}"
                raise TreeError(why, hint=_OTHER)
            data = self._body(response, end - start)
            if len(data) != end - start:
                raise _CutError(f"{len(data)} of {end - start} bytes were received")
            return ByteSpan(data, total, response.headers.get("ETag", "")[:_LONGEST_ETAG])

        headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
        return self._ask(url, headers, read, limits.SPAN_SECONDS)

    def download(
        self, url: str, file: BinaryIO, progress: Callable[[int, int | None], None] | None = None
    ) -> None:
        """Write a whole file into ``file``, from its start again at each try."""

        def read(response: requests.Response) -> None:
            self._check(response, url)
            file.seek(0)
            file.truncate()
            total = number_of(response.headers.get("Content-Length", ""))
            done = 0
            for chunk in self._chunks(response):
                done += file.write(chunk)
                if done > limits.DOWNLOAD:
                    raise TreeError(f"{redact(url)} sends more than {limits.DOWNLOAD}", hint=_OTHER)
                if progress is not None:
                    progress(done, total)
            if total is not None and done != total:
                raise _CutError(f"{done} of {total} bytes were received")

        self._ask(url, {"Accept-Encoding": "identity"}, read, limits.DOWNLOAD_SECONDS)

    def _ask(
        self,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[requests.Response], T],
        seconds: int,
    ) -> T:
        """Ask again if an answer breaks off; the session retries a server that does not answer."""
        why = ""
        with until(time.monotonic() + seconds):
            for attempt in range(self._settings.retries + 1):
                if attempt:
                    time.sleep(min(self._backoff * 2**attempt, limits.PAUSE_SECONDS))
                try:
                    with self._get(url, headers) as response:
                        return read(response)
                except BROKEN as error:
                    why = f"the connection was interrupted: {reason(error)}"
                    if is_over():
                        why = f"no complete answer within {seconds}"
                        break
        raise self._given_up(f"cannot read {redact(url)}: {why}")

    def _given_up(self, why: str) -> Unreachable:
        tries = self._settings.retries + 1
        times = "once" if tries == 1 or is_over() else f"{tries} times"
        return Unreachable(f"{why} (tried {times})", hint=_SETTINGS)

    def _get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        parts = urlsplit(url)
        trusted = self._settings.trusts(url)
        if parts.scheme != "https" and not trusted and not is_local(parts.hostname):
            why = f"{redact(url)}: plain http is refused, as by pip, because anybody on the network can change the data"
            hint = f"pip config set global.trusted-host {parts.hostname}  # if you trust that host"
            raise TreeError(why, hint=hint)
        if trusted:
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        proxy = self._settings.proxy
        try:
            return self._session.get(
                url,
                headers=dict(headers),
                # a request as it is stands for a login: otherwise one is looked for
                auth=(lambda request: request)
                if self._anonymous
                else _login(url) or self._logins.get(place(url)),
                cert=self._settings.client_cert,
                proxies={"http": proxy, "https": proxy} if proxy else None,
                timeout=self._settings.timeout or None,
                stream=True,
            )
        except requests.exceptions.SSLError as error:
            why = f"{redact(url)}: the server's certificate is not trusted: {reason(error)}"
            hint = "pip config set global.cert FILE  # the certificates of your network"
            raise TreeError(why, hint=hint) from error
        except BROKEN as error:
            why = f"cannot read {redact(url)}: {reason(error)}"
            why = no_network(parts.hostname, reason(error)) if is_unconnected(error) else why
            raise self._given_up(why) from error
        except (requests.exceptions.RequestException, OSError, ValueError) as error:
            # A ValueError is about the URL, a redirect's or the proxy's, and quotes it, passwords and all.
            why = "not a usable URL or proxy" if isinstance(error, ValueError) else reason(error)
            raise TreeError(f"{redact(url)}: {why}", hint=_SETTINGS) from error

    def _check(self, response: requests.Response, url: str) -> None:
        status = response.status_code
        if status in {200, 206}:
            return
        answer = f"the server answered {status} {response.reason or ''}".rstrip()
        if status in AGAIN:
            raise self._given_up(f"cannot read {redact(url)}: {answer}")
        hint = _SETTINGS
        if status in {401, 403, 407}:
            hint = "put the user and the password into the index URL or into ~/.netrc, as for pip"
        raise TreeError(f"{redact(url)}: {answer}", hint=hint)

    def _body(self, response: requests.Response, limit: int) -> bytes:
        """Read the body, of a server that sends more than ``limit`` no more than that."""
        body = bytearray()
        for chunk in self._chunks(response):
            body += chunk
            if len(body) > limit:
                why = f"{redact(response.url)}: the server sent more than the {int(limit):,} bytes of the file"
                raise TreeError(why, hint=_SETTINGS)
        return bytes(body)

    def _chunks(self, response: requests.Response) -> Iterator[bytes]:
        """Yield a body as it comes: some servers call a .tar.gz encoded, and requests would undo it."""
        try:
            yield from response.raw.stream(_CHUNK, decode_content=False)
        finally:
            self.received += response.raw.tell()


def _unpacked(data: bytes, response: requests.Response, url: str) -> bytes:
    """Undo the encoding of a page, to the limit of one."""
    if response.headers.get("Content-Encoding") != "gzip":
        return data
    try:
        page = gzip.GzipFile(fileobj=io.BytesIO(data)).read(limits.PAGE + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _CutError(str(error)) from error
    if len(page) > limits.PAGE:
        raise TreeError(f"{redact(url)}: it unpacks to more than {limits.PAGE}", hint=_SETTINGS)
    return page


def _content_range(response: requests.Response, start: int, end: int) -> int | None:
    """Return the total of ``Content-Range``; ``None`` if the answer is not the range asked for."""
    is_packed = response.headers.get("Content-Encoding", "identity") != "identity"
    if response.status_code != requests.codes.partial_content or is_packed:
        return None  # a range of a compressed stream is of no use
    extent, _, total = response.headers.get("Content-Range", "").partition("/")
    return number_of(total) if extent == f"bytes {start}-{end - 1}" else None


def _login(url: str) -> tuple[str, str] | None:
    parts = urlsplit(url)
    user, password = parts.username, parts.password or ""
    return None if user is None else (unquote(user), unquote(password))


_OTHER = "the file differs from the index's description: try another index"
_SETTINGS = "pip config list  # its index-url, proxy, cert, timeout and retries are used; a folder needs no network"
