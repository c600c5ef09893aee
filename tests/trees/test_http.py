"""HTTP: ranges, retries, passwords."""

from __future__ import annotations

import base64
import gzip
import io
import shutil
import socket
import subprocess
import threading
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from package_server import WHEEL, PackageServer, serving
from web_site import Site, site

from vllm_mods.base.errors import TreeError
from vllm_mods.base.hops import redact
from vllm_mods.trees.http import Http
from vllm_mods.trees.pip_config import PipSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DATA = bytes(range(256)) * 4
SETTINGS = PipSettings(index_urls=(), retries=2, timeout=5)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def server() -> Iterator[PackageServer]:
    with serving(PackageServer(files={WHEEL: DATA})) as running:
        yield running


def client(settings: PipSettings = SETTINGS) -> Http:
    return Http(settings, backoff=0.001)


def wheel_url(server: PackageServer) -> str:
    return f"{server.url}/files/{WHEEL}"


def test_a_span_is_the_bytes_asked_for_and_no_more(server: PackageServer) -> None:
    http = client()
    span = http.span(wheel_url(server), 10, 20)
    assert span is not None
    assert (span.data, span.total) == (DATA[10:20], len(DATA))
    assert http.received == 10


def test_a_server_without_ranges_is_noticed_before_the_body_is_read(server: PackageServer) -> None:
    server.ranges = False
    http = client()
    assert http.span(wheel_url(server), 10, 20) is None
    assert http.received == 0


def test_another_range_than_the_one_asked_for_is_not_taken(server: PackageServer) -> None:
    server.wrong_range = True
    assert client().span(wheel_url(server), 10, 20) is None


def test_pages_and_downloads_are_counted_as_they_travel(server: PackageServer) -> None:
    http = client()
    file = io.BytesIO(b"what was here before, and was longer than what comes" * 99)
    seen: list[tuple[int, int | None]] = []
    http.download(wheel_url(server), file, lambda done, total: seen.append((done, total)))
    assert file.getvalue() == DATA
    assert seen[-1] == (len(DATA), len(DATA))
    assert http.received == len(DATA)
    server.compress = True
    page = http.page(f"{server.index}/vllm/", "text/html")
    assert page is not None
    assert WHEEL.encode() in page.body
    assert http.received < len(DATA) + len(page.body)


def test_a_page_that_is_not_there_is_none(server: PackageServer) -> None:
    assert client().page(f"{server.index}/other/", "text/html") is None
    assert len(server.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["failures", "truncations"])
def test_passing_faults_are_tried_again(server: PackageServer, fault: str) -> None:
    for _ in range(3):
        setattr(server, fault, 2)
        span = client().span(wheel_url(server), 10, 20)
        assert span is not None
        assert span.data == DATA[10:20]
    setattr(server, fault, 2)
    file = io.BytesIO()
    client().download(wheel_url(server), file)
    assert file.getvalue() == DATA
    setattr(server, fault, 2)
    assert client().page(f"{server.index}/vllm/", "text/html") is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "why"), [("failures", "503 Service Unavailable"), ("truncations", "was interrupted:")]
)
def test_faults_that_do_not_pass_are_said(server: PackageServer, fault: str, why: str) -> None:
    setattr(server, fault, 99)
    with pytest.raises(TreeError, match=rf"{WHEEL}: .*{why}.* \(tried 3 times\)") as caught:
        client().span(wheel_url(server), 10, 20)
    assert caught.value.hint
    assert len(server.requests) == 3
    with pytest.raises(TreeError, match=why):
        client().download(wheel_url(server), io.BytesIO())


@pytest.mark.slow
def test_a_connection_that_is_reset_is_tried_again() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    accepted: list[int] = []

    def hang_up() -> None:
        for _ in range(3):
            connection, _ = listener.accept()
            accepted.append(1)
            connection.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/simple/vllm/"
    with pytest.raises(TreeError, match="tried 3 times"):
        client().page(url, "*/*")
    thread.join()
    listener.close()
    assert len(accepted) == 3
    with pytest.raises(TreeError, match="refused"):
        client().page(url, "*/*")


def test_what_will_not_pass_is_not_tried_again(server: PackageServer) -> None:
    with pytest.raises(TreeError, match="answered 404"):
        client().download(f"{server.url}/files/gone", io.BytesIO())
    server.login = "user:pa%ss"
    with pytest.raises(TreeError, match="answered 401") as caught:
        client().page(f"{server.index}/vllm/", "*/*")
    assert caught.value.hint
    assert "netrc" in caught.value.hint
    assert len(server.requests) == 2


def test_the_index_password_is_used_for_its_host_and_never_shown(server: PackageServer) -> None:
    server.login = "user:pa%ss"
    index = server.index.replace("http://", "http://user:pa%25ss@")
    http = client(SETTINGS._replace(index_urls=(index,), retries=0))
    page = http.page(f"{index}/vllm/", "text/html")
    assert page is not None
    assert page.url == f"{server.index}/vllm/"
    assert http.span(wheel_url(server), 0, 4) is not None
    server.failures = 1
    with pytest.raises(TreeError) as caught:
        http.page(f"{index}/vllm/?token=hidden", "text/html")
    for secret in ("pa%", "pa%25ss", "user", "hidden"):
        assert secret not in str(caught.value)


def test_netrc_is_honoured(
    server: PackageServer, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(f"{tmp_path}/.netrc", "w", encoding="utf-8") as file:
        file.write("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", f"{tmp_path}/.netrc")
    server.login = "me:secret"
    assert client().page(f"{server.index}/vllm/", "text/html") is not None


def test_plain_http_to_another_machine_needs_trust() -> None:
    with pytest.raises(TreeError, match="plain http is refused") as caught:
        client().page("http://mirror.example/simple/vllm/", "*/*")
    assert caught.value.hint
    assert "trusted-host mirror.example" in caught.value.hint
    trusting = SETTINGS._replace(
        trusted_hosts=("mirror.example",), proxy="http://127.0.0.1:9", retries=0
    )
    with pytest.raises(TreeError, match="tried once"):
        client(trusting).page("http://mirror.example/simple/vllm/", "*/*")


def test_a_proxy_is_used_and_its_password_not_shown(server: PackageServer) -> None:
    proxy = server.url.replace("http://", "http://u:secret@")
    through = SETTINGS._replace(proxy=proxy, trusted_hosts=("mirror.example",))
    page = client(through).page("http://mirror.example/simple/vllm/", "text/html")
    assert page is not None
    assert WHEEL.encode() in page.body
    broken = SETTINGS._replace(proxy="http://u:secret@[", trusted_hosts=("mirror.example",))
    with pytest.raises(TreeError) as caught:
        client(broken).page("http://mirror.example/simple/vllm/", "text/html")
    assert "secret" not in str(caught.value)


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate and key for 127.0.0.1 that nobody has signed."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl program")
    path = tmp_path / "own.pem"
    subprocess.run(
        (
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
            "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 "
            f"-keyout {path} -out {tmp_path}/cert.pem"
        ).split(),
        check=True,
        capture_output=True,
    )
    path.write_bytes(path.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    return path


@pytest.mark.slow
def test_certificates(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    with serving(PackageServer(files={WHEEL: DATA}), certificate=str(certificate)) as server:
        url = wheel_url(server)
        with pytest.raises(TreeError, match="certificate is not trusted") as caught:
            client().span(url, 0, 4)
        assert caught.value.hint
        assert "global.cert" in caught.value.hint
        assert server.requests == []
        # The system's certificates count where pip's settings name none.
        with monkeypatch.context() as patch:
            patch.setenv("SSL_CERT_FILE", str(certificate))
            assert client().span(url, 0, 4) is not None
        # What requests would prefer does not win over pip's setting.
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/other.pem")
        for settings in (
            SETTINGS._replace(verify=str(certificate)),
            SETTINGS._replace(trusted_hosts=("127.0.0.1",)),
            SETTINGS._replace(trusted_hosts=(server.url.removeprefix("https://"),)),
        ):
            span = client(settings).span(url, 0, 4)
            assert span is not None
            assert span.data == DATA[:4]
        gone = SETTINGS._replace(verify="/gone.pem")
        with pytest.raises(TreeError, match=r"invalid path: /gone\.pem"):
            client(gone).span(url, 0, 4)


def test_redact_leaves_what_may_be_shown() -> None:
    assert redact("https://u:p@h.example:8/a/b?t=1#sha256=2") == "https://h.example:8/a/b"


SETTINGS_HINT = "pip config list  # its index-url, proxy, cert, timeout and retries are used; a folder needs no network"
LOGIN = "put the user and the password into the index URL or into ~/.netrc, as for pip"


def alone(**settings: Any) -> Http:
    return Http(PipSettings(**{"retries": 0, **settings}), backoff=0)


@pytest.mark.parametrize(
    ("status", "why", "hint"),
    [
        (500, "cannot read {0}: the server answered 500 Internal Server Error (tried once)", SETTINGS_HINT),
        (429, "cannot read {0}: the server answered 429 Too Many Requests (tried once)", SETTINGS_HINT),
        (418, "{0}: the server answered 418 I'm a Teapot", SETTINGS_HINT),
        (599, "{0}: the server answered 599", SETTINGS_HINT),
        (401, "{0}: the server answered 401 Unauthorized", LOGIN),
        (403, "{0}: the server answered 403 Forbidden", LOGIN),
        (407, "{0}: the server answered 407 Proxy Authentication Required", LOGIN),
    ],
)  # fmt: skip
def test_what_a_server_refuses_is_said(status: int, why: str, hint: str) -> None:
    with site({"/x": lambda to: to.say(status)}) as (url, _):
        ask = alone()
        calls: list[Callable[[], object]] = [
            lambda: ask.page(f"{url}/x", "text/html"),
            lambda: ask.span(f"{url}/x", 0, 9),
            lambda: ask.download(f"{url}/x", io.BytesIO()),
        ]
        for call in calls:
            with pytest.raises(TreeError) as caught:
                call()
            assert caught.value.message == why.format(f"{url}/x")
            assert caught.value.hint == hint


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_was_taken_away_is_none(status: int) -> None:
    with site({"/x": lambda to: to.say(status)}) as (url, _):
        assert alone().page(f"{url}/x", "text/html") is None


@pytest.mark.parametrize("status", [416, 501])
def test_a_server_that_does_not_take_a_range_has_none(status: int) -> None:
    with site({"/x": lambda to: to.say(status)}) as (url, _):
        assert alone().span(f"{url}/x", 0, 9) is None


@pytest.mark.parametrize(
    ("content_range", "total"),
    [
        ("bytes 2-4/9", 9),
        ("bytes 2-4/*", None),
        ("bytes 2-5/9", None),
        ("bytes 1-4/9", None),
        ("items 2-4/9", None),
        ("", None),
    ],
)
def test_a_range_has_to_be_the_one_that_was_asked_for(
    content_range: str, total: int | None
) -> None:
    answer = {"Content_Range": content_range, "ETag": "e" * 300}
    with site({"/x": lambda to: to.say(206, b"abc", **answer)}) as (url, _):
        span = alone().span(f"{url}/x", 2, 5)
    assert span == (None if total is None else (b"abc", total, "e" * 256))


def test_a_range_of_a_whole_or_packed_answer_is_none() -> None:
    pages = {
        "/whole": lambda to: to.say(200, b"abc", Content_Range="bytes 2-4/9"),
        "/packed": lambda to: to.say(
            206, b"abc", Content_Range="bytes 2-4/9", Content_Encoding="gzip"
        ),
    }
    with site(pages) as (url, _):
        assert [alone().span(url + path, 2, 5) for path in pages] == [None, None]


def test_what_is_asked_for_is_named_in_the_headers() -> None:
    with site({"/x": lambda to: to.say(200, b"x", Content_Type="text/html")}) as (url, handler):
        ask = alone()
        page = ask.page(f"{url}/x?a=b", "text/html")
        assert page == (f"{url}/x?a=b", "text/html", b"x")
        assert ask.span(f"{url}/x", 5, 9) is None
        ask.download(f"{url}/x", io.BytesIO())
    headers = [
        (seen.get("Accept"), seen.get("Range"), seen["Accept-Encoding"])
        for _, _, seen in handler.seen
    ]
    assert headers == [
        ("text/html", None, "gzip"),
        ("*/*", "bytes=5-8", "identity"),
        ("*/*", None, "identity"),
    ]


@pytest.mark.parametrize(
    "body",
    [b"x", gzip.compress(b"page", mtime=0)[:-9], gzip.compress(b"page", mtime=0)[:-1] + b"x"],
)
def test_a_page_that_is_packed_badly(body: bytes) -> None:
    with site({"/x": lambda to: to.say(200, body, Content_Encoding="gzip")}) as (url, _):
        with pytest.raises(TreeError) as caught:
            alone().page(f"{url}/x", "text/html")
        assert f"{url}/x" in caught.value.message
        assert caught.value.hint


def test_a_download_tells_how_far_it_is_and_starts_anew() -> None:
    seen: list[tuple[int, int | None]] = []
    file = io.BytesIO(b"of an earlier try, which is longer")
    with site({"/x": lambda to: to.say(200, b"data")}) as (url, _):
        alone().download(f"{url}/x", file, lambda *words: seen.append(words))
    assert file.getvalue() == b"data"
    assert seen == [(4, 4)]


def test_more_than_there_can_be_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PAGE", 3)
    lower(monkeypatch, "DOWNLOAD", 3)
    lower(monkeypatch, "SPAN", 3)
    answers: dict[str, Callable[[Site], None]] = {
        "/3": lambda to: to.say(200, b"abc"),
        "/4": lambda to: to.say(200, b"abcd"),
        "/s": lambda to: to.say(206, b"abcd", Content_Range="bytes 0-3/9"),
    }
    with site(answers) as (url, _):
        ask = alone()
        page = ask.page(f"{url}/3", "text/html")
        assert page is not None
        assert page.body == b"abc"
        ask.download(f"{url}/3", io.BytesIO())
        with pytest.raises(TreeError) as caught:
            ask.page(f"{url}/4", "text/html")
        message = f"{url}/4: the server sent more than the 3 bytes of the file"
        assert caught.value.message == message
        with pytest.raises(TreeError) as caught:
            ask.download(f"{url}/4", io.BytesIO())
        assert caught.value.message == f"{url}/4 sends more than 3 bytes"
        with pytest.raises(TreeError) as caught:
            ask.span(f"{url}/s", 0, 4)
        assert (
            caught.value.message == f"{url}/s: a part of the file has 4 bytes; the limit is 3 bytes"
        )
        assert ask.received == 14


@pytest.mark.slow
def test_nobodys_login_is_given_by_one_that_is_anonymous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password x\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with site({"/x": lambda to: to.say(200)}) as (url, handler):
        host = url.removeprefix("http://")
        settings = PipSettings(retries=0, find_links=(f"http://you:pw@{host}/links",))
        for anonymous in (True, False):
            Http(settings, anonymous=anonymous).page(f"{url}/x", "text/html")
        alone().page(f"{url}/x", "text/html")
    logins = [seen.get("Authorization") for _, _, seen in handler.seen]
    basic = [base64.b64encode(login).decode() for login in (b"you:pw", b"me:x")]
    assert logins == [None, f"Basic {basic[0]}", f"Basic {basic[1]}"]


def test_plain_http_is_refused_with_the_way_to_allow_it() -> None:
    with pytest.raises(TreeError) as caught:
        alone().page("http://h.example/x", "text/html")
    why = "plain http is refused, as by pip, because anybody on the network can change the data"
    assert caught.value.message == f"http://h.example/x: {why}"
    hint = "pip config set global.trusted-host h.example  # if you trust that host"
    assert caught.value.hint == hint
