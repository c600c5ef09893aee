"""What is asked again and when, and what is said of a connection that broke."""

from __future__ import annotations

import socket
import time
from types import SimpleNamespace
from typing import Any

import pytest
import urllib3

from vllm_mods import __version__
from vllm_mods.base import limits, sessions


def retry_of(tries: int, **more: Any) -> Any:
    return sessions.Adapter(tries, **more).max_retries


def test_a_session_says_who_asks_and_how_often() -> None:
    with sessions.session(3, backoff=0.5) as new:
        assert new.headers["User-Agent"] == f"vllm-mods/{__version__}"
        assert new.max_redirects == limits.REDIRECTS
        for url in ("http://a.org/", "https://a.org/"):
            adapter: Any = new.get_adapter(url)
            retry = adapter.max_retries
            assert (retry.total, retry.backoff_factor) == (3, 0.5)
            assert retry.backoff_max == limits.PAUSE_SECONDS


@pytest.mark.parametrize(
    ("method", "status", "again"),
    [
        ("GET", 503, True),
        ("HEAD", 429, True),
        ("GET", 404, False),
        ("POST", 503, False),
        ("PUT", 503, False),
    ],
)
def test_only_what_changes_nothing_is_asked_again(
    method: str,
    status: int,
    again: bool,  # noqa: FBT001
) -> None:
    assert retry_of(1).is_retry(method, status) is again
    assert retry_of(1).raise_on_status is False


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("9999", 10.0), ("Wed, 21 Oct 2099 07:28:00 GMT", None), ("", None), (None, None)],
)
def test_no_server_says_how_long_to_wait(header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"Retry-After": header}
    answer: Any = SimpleNamespace(headers=headers)
    assert retry_of(1).get_retry_after(answer) == seconds


def test_certificates_are_not_asked_for_again_and_nothing_is_behind_its_end() -> None:
    pool: Any = None
    broken = urllib3.exceptions.ProtocolError("reset")
    assert retry_of(2).increment("GET", "/", error=broken, _pool=pool).total == 1
    bad = urllib3.exceptions.SSLError("expired")
    with pytest.raises(urllib3.exceptions.MaxRetryError) as caught:
        retry_of(2).increment("GET", "/", error=bad, _pool=pool)
    assert caught.value.reason is bad
    with sessions.until(time.monotonic() - 1), pytest.raises(urllib3.exceptions.MaxRetryError):
        retry_of(2).increment("GET", "/", error=broken, _pool=pool)


def test_the_nearest_end_counts_and_is_forgotten_behind_it() -> None:
    assert not sessions.is_over()
    with sessions.until(time.monotonic() - 1):
        assert sessions.is_over()
        with sessions.until(time.monotonic() + 60):
            assert sessions.is_over()
    with sessions.until(time.monotonic() + 60):
        assert not sessions.is_over()
    assert not sessions.is_over()


def nested(depth: int, inner: BaseException) -> BaseException:
    for _ in range(depth):
        inner = Exception(inner)
    return inner


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(111, "Connection refused"), "Connection refused"),
        (OSError(), "OSError"),
        (ValueError(""), "ValueError"),
        (sessions.BROKEN[0](OSError(104, "Connection reset")), "Connection reset"),
        (urllib3.exceptions.MaxRetryError(None, "/secret", TimeoutError("slow")), "slow"),  # type: ignore[arg-type]
        (ValueError("<Connection(host='a.org') at 0x7f>: it broke"), "it broke"),
        (caused(ValueError("outer"), OSError(110, "timed out")), "timed out"),
        (caused(ValueError("outer"), KeyError("inner")), "outer"),
        (nested(8, ValueError("deep")), "deep"),
        (nested(9, ValueError("deeper")), "deeper"),
    ],
)
def test_the_innermost_reason_is_said_without_the_url(error: BaseException, why: str) -> None:
    assert sessions.reason(error) == why


@pytest.mark.parametrize(
    ("seconds", "silence", "why"),
    [(5, 0.05, "timed out"), (0.05, 5, "the server took too long to answer")],
)
def test_a_server_that_says_nothing_is_waited_for_until_the_nearer_end(
    seconds: float, silence: float, why: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, sessions.session(0) as asking:
        asking.trust_env = False
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        started = time.monotonic()
        with sessions.until(started + seconds), pytest.raises(sessions.BROKEN) as caught:
            asking.get(url, timeout=silence)
    assert why in sessions.reason(caught.value)
