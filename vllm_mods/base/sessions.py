"""Sessions of HTTP that ask again what may be answered the next time; and why one could not be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import requests
import urllib3
from requests.adapters import HTTPAdapter

from vllm_mods import __version__
from vllm_mods.base.untrusted import number_of

if TYPE_CHECKING:
    import ssl

BROKEN = (
    requests.exceptions.ConnectionError,
    requests.exceptions.Timeout,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
    urllib3.exceptions.HTTPError,
)
"""What says that a connection could not be made, or broke."""
AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 527})
_LONGEST_WAIT = 10.0


def session(
    retries: int, *, backoff: float = 0.25, context: ssl.SSLContext | None = None
) -> requests.Session:
    """Return a session whose requests an ``Adapter`` carries."""
    made = requests.Session()
    made.headers["User-Agent"] = f"vllm-mods/{__version__}"
    for scheme in ("http://", "https://"):
        made.mount(scheme, Adapter(retries, backoff=backoff, context=context))
    return made


class Adapter(HTTPAdapter):
    """Asks ``retries`` times more, where the answer is one of ``AGAIN`` or none comes.

    ``backoff`` is the first wait in seconds; each further one is twice as long, and none over ten. What
    breaks off in its body is the caller's to ask for again. Nothing is sent twice but GET and HEAD.
    ``context`` says which certificates count.
    """

    def __init__(
        self, retries: int, *, backoff: float = 0.25, context: ssl.SSLContext | None = None
    ) -> None:
        self._given = {} if context is None else {"ssl_context": context}
        retry = _Retry(
            total=retries,
            backoff_factor=backoff,
            backoff_max=_LONGEST_WAIT,
            status_forcelist=AGAIN,
            allowed_methods={"GET", "HEAD"},
            raise_on_status=False,
        )
        super().__init__(max_retries=retry)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, D102  (as in its class)
        super().init_poolmanager(*args, **kwargs | self._given)


class _Retry(urllib3.Retry):
    """As urllib3 does it; but certificates do not get better, and no server says how long to wait."""

    def increment(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        error = kwargs.get("error")
        if isinstance(error, urllib3.exceptions.SSLError):
            raise urllib3.exceptions.MaxRetryError(kwargs["_pool"], "", error)
        return super().increment(*args, **kwargs)

    def get_retry_after(self, response: urllib3.BaseHTTPResponse) -> float | None:
        asked = number_of(response.headers.get("Retry-After", ""))
        return None if asked is None else min(float(asked), _LONGEST_WAIT)


def reason(error: BaseException) -> str:
    """Return the innermost reason: requests wraps urllib3, which wraps the system's words.

    The outer texts repeat the URL, and with it what must not be shown.
    """
    inner: BaseException = error
    for _ in range(8):
        deeper = getattr(inner, "reason", None)
        if not isinstance(deeper, BaseException):
            deeper = next((one for one in inner.args if isinstance(one, BaseException)), None)
        if deeper is None:
            break
        inner = deeper
    if isinstance(inner.__cause__, OSError):
        inner = inner.__cause__
    text = str(inner.args[-1] if isinstance(inner, OSError) and inner.args else inner)
    return text.rpartition(">: ")[2] or type(inner).__name__
