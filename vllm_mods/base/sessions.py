"""Sessions of HTTP: within a time, over hops that are allowed; what may be answered later is asked again."""

import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from vllm_mods import __version__
from vllm_mods.base import limits
from vllm_mods.base.hops import check_hop
from vllm_mods.base.untrusted import number_of

BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    urllib3.exceptions.HTTPError,
)
"""What says that a connection could not be made, or broke."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 527})
_END: ContextVar[float | None] = ContextVar("_END", default=None)


@contextlib.contextmanager
def until(end: float) -> Iterator[None]:
    """Give all that is asked for inside an end, by ``time.monotonic``: headers, bodies, each try and hop.

    What is asked for outside of any has ``limits.ANSWER_SECONDS`` each. A body that is read later keeps its end.
    """
    token = _END.set(min(end, _END.get() or end))
    try:
        yield
    finally:
        _END.reset(token)


def is_over() -> bool:
    """Tell whether the time is over that ``until`` gives."""
    end = _END.get()
    return end is not None and time.monotonic() >= end


def session(
    retries: int,
    *,
    backoff: float = 0.25,
    context: ssl.SSLContext | None = None,
    plain: Callable[[str], bool] = lambda _: False,
    verify: Callable[[str], bool | str] | None = None,
) -> requests.Session:
    """Return a session whose requests an ``Adapter`` carries.

    ``plain`` tells of a URL whether the user lets its host be asked without TLS, ``verify`` how its
    certificate is checked.
    """
    new = _Session(plain, verify)
    new.headers["User-Agent"] = f"vllm-mods/{__version__}"
    for scheme in ("http://", "https://"):
        new.mount(scheme, Adapter(retries, backoff=backoff, context=context))
    return new


class _Session(requests.Session):
    """Goes where the rule of the first hop lets it; how a certificate is checked is asked for each."""

    def __init__(
        self, plain: Callable[[str], bool], verify: Callable[[str], bool | str] | None
    ) -> None:
        super().__init__()
        self._plain = plain
        self._verify = verify
        self.max_redirects = int(limits.REDIRECTS)

    def rebuild_auth(
        self, prepared_request: requests.PreparedRequest, response: requests.Response
    ) -> None:
        """Hold a redirect to the rule, before the login is taken off that is not for its host."""
        check_hop(response.url, prepared_request.url or "", self._plain)
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]

    def send(self, request: requests.PreparedRequest, **given: Any) -> requests.Response:  # noqa: ANN401
        if self._verify is not None:
            given["verify"] = self._verify(request.url or "")
        with until(time.monotonic() + limits.ANSWER_SECONDS) if _END.get() is None else _NOTHING:
            return super().send(request, **given)


_NOTHING = contextlib.nullcontext()


class Adapter(HTTPAdapter):
    """Asks ``retries`` times more, where the answer is one of ``AGAIN`` or none comes.

    ``backoff`` is the first wait in seconds; each further one is twice as long, and none over
    ``limits.PAUSE_SECONDS``. What breaks off in its body is the caller's to ask for again. Nothing is sent
    twice but GET and HEAD. ``context`` says which certificates count.
    """

    def __init__(
        self, retries: int, *, backoff: float = 0.25, context: ssl.SSLContext | None = None
    ) -> None:
        self._given = {} if context is None else {"ssl_context": context}
        retry = _Retry(
            total=retries,
            backoff_factor=backoff,
            backoff_max=limits.PAUSE_SECONDS,
            status_forcelist=AGAIN,
            allowed_methods={"GET", "HEAD"},
            raise_on_status=False,
        )
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, D102  (as in its class)
        super().init_poolmanager(*args, **kwargs | self._given)
        _bound(self.poolmanager)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401, D102  (as in its class)
        manager = super().proxy_manager_for(*args, **kwargs)
        _bound(manager)
        return manager


def _bound(manager: urllib3.PoolManager) -> None:
    """Have a manager, of whatever kind of proxy, read its answers through ``_Ending``."""
    classes: dict[str, Any] = manager.pool_classes_by_scheme
    pools = {}
    for scheme, pool in classes.items():
        connection = type("_Connection", (pool.ConnectionCls,), {"response_class": _Ending})
        pools[scheme] = type("_Pool", (pool,), {"ConnectionCls": connection})
    manager.pool_classes_by_scheme = pools


_OVER = "the server took too long to answer"


class _Ending(http.client.HTTPResponse):
    """An answer that has an end in time; and one in bytes, if it is none that was asked for."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(sock, *args, **kwargs)
        self._until = _Until(self.fp.detach(), sock)
        self.fp = io.BufferedReader(self._until)

    def begin(self) -> None:
        super().begin()
        # requests and urllib3 read these to their end, to use the connection again
        if self.status >= http.client.MULTIPLE_CHOICES:
            self._until.left = limits.REFUSAL


class _Until(io.RawIOBase):
    """What comes over a socket until the time is over: each wait is no longer than what is left of it."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._silence = sock.gettimeout()
        self._end = _END.get() or time.monotonic() + limits.ANSWER_SECONDS
        self.left: int | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int | None:  # noqa: ANN401  (a buffer)
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError(_OVER)
        if self._silence is not None and self._silence <= left:
            count = self._raw.readinto(into)
        else:
            self._sock.settimeout(left)
            try:
                count = self._raw.readinto(into)
            except TimeoutError as error:
                raise TimeoutError(_OVER) from error
            self._sock.settimeout(self._silence)
        if self.left is not None:
            self.left -= count or 0
            if self.left < 0:
                raise OSError(f"more than {limits.REFUSAL}, the limit for {limits.REFUSAL.what}")
        return count

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Retry(urllib3.Retry):
    """As urllib3 does it; but certificates do not get better, and no server says how long to wait."""

    def increment(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        error = kwargs.get("error")
        if isinstance(error, urllib3.exceptions.SSLError) or (error is not None and is_over()):
            raise urllib3.exceptions.MaxRetryError(kwargs["_pool"], "", error)
        return super().increment(*args, **kwargs)

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        asked = number_of(response.headers.get("Retry-After", ""))
        return None if asked is None else min(float(asked), limits.PAUSE_SECONDS)


def is_unconnected(error: BaseException) -> bool:
    """Tell whether there was no connection at all: no route, name, proxy or listener."""
    early = requests.exceptions.ConnectTimeout | requests.exceptions.ProxyError
    return isinstance(error, early) or "Failed to " in str(error)  # establish, resolve: urllib3


def reason(error: BaseException) -> str:
    """Return the innermost reason: docker wraps requests, which wraps urllib3, which wraps the system's words.

    The outer texts repeat the URL, and with it what must not be shown.
    """
    inner: BaseException = error
    for _ in range(8):
        deeper = getattr(inner, "reason", None)
        if not isinstance(deeper, BaseException):
            deeper = next((one for one in inner.args if isinstance(one, BaseException)), None)
        cause = inner.__cause__
        if deeper is None and isinstance(cause, OSError) and not isinstance(inner, OSError):
            deeper = cause
        if deeper is None:
            break
        inner = deeper
    text = str(inner.args[-1] if isinstance(inner, OSError) and inner.args else inner)
    return text.rpartition(">: ")[2] or type(inner).__name__
