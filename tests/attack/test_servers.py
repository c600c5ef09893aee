"""Servers that lead elsewhere, that never end, and that ask for logins of others."""

from __future__ import annotations

import contextlib
import gzip
import io
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
from lowering import lower
from package_server import WHEEL, PackageServer, make_wheel, serving
from web_site import DRIPS, Site, moved, site

from vllm_mods.base import limits, sessions
from vllm_mods.base.errors import TreeError
from vllm_mods.base.hops import check_hop
from vllm_mods.building.outputs.registry import Pusher
from vllm_mods.images import names
from vllm_mods.images.model import Descriptor
from vllm_mods.images.registry import Client
from vllm_mods.trees.http import Http
from vllm_mods.trees.index import parse_page
from vllm_mods.trees.pip_config import PipSettings
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTP_PROXY",
        "http_proxy",
        "HTTPS_PROXY",
        "https_proxy",
        "ALL_PROXY",
        "all_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("HOME", tmp_path), ("VLLM_MODS_CACHE", tmp_path / "cache")):
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")


def http_of(**settings: object) -> Http:
    return Http(PipSettings(retries=0, timeout=5.0, **settings), backoff=0)  # type: ignore[arg-type]


# --- where it may lead -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "then", "may"),
    [
        ("https://a.org/x", "https://b.org/y", True),
        ("https://a.org/x", "http://a.org/x", False),
        ("https://a.org/x", "http://127.0.0.1/x", False),
        ("https://a.org/x", "http://trusted.org/x", False),
        ("http://localhost/x", "https://b.org/y", True),
        ("http://localhost/x", "http://[::1]:8/y", True),
        ("http://localhost/x", "http://b.org/y", False),
        ("http://localhost/x", "http://trusted.org/y", True),
        ("http://trusted.org/x", "http://localhost/y", False),
        ("http://localhost/x", "file:///etc/passwd", False),
        ("http://localhost/x", "ftp://localhost/x", False),
        ("https://a.org/x", "x:/etc/passwd", False),
        ("https://a.org/x", "FILE:///etc/passwd", False),
        ("file:///srv/index.html", "file:///srv/a.whl", True),
        ("file:///srv/index.html", "https://a.org/a.whl", True),
    ],
)
def test_every_hop_obeys_the_rule_of_the_first(first: str, then: str, may: bool) -> None:  # noqa: FBT001
    with contextlib.nullcontext() if may else pytest.raises(TreeError, match="leads to"):
        check_hop(first, then, lambda url: "trusted.org" in url)


@pytest.mark.parametrize("what", ["page", "span", "download"])
def test_a_redirect_to_plain_http_on_another_machine_is_not_followed(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    send = sessions.Adapter.send

    def sent(self: sessions.Adapter, request: Any, **given: Any) -> Any:
        asked.append(request.url or "")
        if "elsewhere" in (request.url or ""):
            raise AssertionError("asked without TLS")
        return send(self, request, **given)

    monkeypatch.setattr(sessions.Adapter, "send", sent)
    with site({"/x": moved("http://elsewhere.example/x")}) as (url, _):
        asks: dict[str, Callable[[], object]] = {
            "page": lambda: http_of().page(f"{url}/x", "*/*"),
            "span": lambda: http_of().span(f"{url}/x", 0, 9),
            "download": lambda: http_of().download(f"{url}/x", io.BytesIO()),
        }
        with pytest.raises(TreeError, match=r"leads to http://elsewhere\.example/x: refused"):
            asks[what]()
    assert len(asked) == 1


def test_a_redirect_from_https_to_plain_http_is_not_followed(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    server = PackageServer({})
    with site({}) as (plain, seen), serving(server, certificate=str(pem)):
        server.moved = f"{plain}/x"
        with pytest.raises(TreeError, match="anybody on the network could change the data"):
            http_of(verify=str(pem)).page(f"{server.index}/vllm/", "*/*")
    assert not seen.seen


@pytest.mark.slow
def test_redirects_within_this_machine_are_followed_and_have_an_end() -> None:
    with site({"/x": moved("/y"), "/y": lambda one: one.say(200, b"here"), "/z": moved("/z")}) as (
        url,
        _,
    ):
        page = http_of().page(f"{url}/x", "*/*")
        assert page is not None
        assert page.body == b"here"
        with pytest.raises(TreeError, match="Exceeded 10 redirects"):
            http_of().page(f"{url}/z", "*/*")


def certificate(folder: Path) -> Path:
    pem = folder / "both.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=x"
    )
    subprocess.run(
        [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "k", "-out", "c"],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    pem.write_bytes((folder / "k").read_bytes() + (folder / "c").read_bytes())
    return pem


@pytest.mark.slow
def test_the_certificate_of_where_a_trusted_host_redirects_to_is_checked(tmp_path: Path) -> None:
    pem = certificate(tmp_path)
    server = PackageServer({WHEEL: make_wheel()})
    with serving(server, certificate=str(pem)):
        port = server.url.rpartition(":")[2]
        trusted = f"localhost:{port}"
        other = PackageServer({}, moved=f"{server.index}/vllm/")
        with serving(other, certificate=str(pem)):
            settings = {"trusted_hosts": (f"127.0.0.1:{other.url.rpartition(':')[2]}", trusted)}
            with pytest.raises(TreeError, match="certificate is not trusted"):
                http_of(**settings).page(f"{other.index}/vllm/", "*/*")
    assert not server.requests


@pytest.mark.parametrize("link", ["file://{}", "x:{}", "FILE://{}"])
def test_a_page_of_a_server_names_no_file_of_this_machine(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / WHEEL
    wheel.write_bytes(make_wheel())
    monkeypatch.chdir("/")
    page = f'<a href="{link.format(wheel)}">x</a>'.encode()
    with site({"/simple/vllm/": lambda one: one.say(200, page, Content_Type="text/html")}) as (
        url,
        _,
    ):
        monkeypatch.setenv("PIP_INDEX_URL", f"{url}/simple")
        with pytest.raises(TreeError, match=r"leads to \w+:/.*: refused"):
            Releases().open("0.19.1")
        with pytest.raises(TreeError, match="refused"):  # and so the kept page
            Releases(offline=True).open("0.19.1")


# --- logins ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_login_is_not_sent_where_a_redirect_or_an_upload_leads() -> None:
    said = {"/v2/": lambda one: one.say(200)}
    with site(said) as (other, elsewhere):
        answers = {
            "/page": moved(f"{other}/page"),
            "/v2/a/b/blobs/uploads/": lambda one: one.say(202, Location=f"{other}/upload"),
        }
        with site(answers) as (url, here):
            http_of(index_urls=(url.replace("//", "//u:p@"),)).page(f"{url}/page", "*/*")
            pusher = Pusher(names.parse(f"{url[7:]}/a/b:c"), {"HOME": "/nonexistent"}, None)
            pusher._session.auth = ("u", "p")
            with pytest.raises(TreeError, match="404"):
                pusher.upload("sha256:00", b"x")
            pusher._session.close()
    assert all("Authorization" in headers for _, _, headers in here.seen)
    assert [path.partition("?")[0] for _, path, _ in elsewhere.seen] == ["/page", "/upload"]
    assert not any("Authorization" in headers for _, _, headers in elsewhere.seen)


def test_a_registry_has_no_login_sent_without_tls() -> None:
    challenge = 'Bearer realm="http://elsewhere.example/token",service="s"'
    answers = {"/v2/a/b/manifests/c": lambda one: one.say(401, WWW_Authenticate=challenge)}
    with site(answers) as (url, _):
        client = Client(names.parse(f"{url[7:]}/a/b:c"), {"HOME": "/nonexistent"})
        with pytest.raises(TreeError, match=r"leads to .*: refused"):
            client.manifest("x")
        client._session.close()


LAYER = Descriptor("", "sha256:00", 100_000)

# --- ends --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRIPS)
def test_a_page_at_one_byte_after_the_other_has_an_end(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lower(monkeypatch, "ANSWER_SECONDS", 0.2)
    with site({"/x": lambda one: one.drip(*DRIPS[kind])}) as (url, _):
        http = Http(PipSettings(retries=5, timeout=5.0), backoff=0)
        started = time.monotonic()
        with pytest.raises(
            TreeError, match=r"the server took too long to answer|within 0.2 seconds"
        ):
            http.page(f"{url}/x", "*/*")
        assert time.monotonic() - started < 3
        http._session.close()


@pytest.mark.slow
@pytest.mark.parametrize("what", ["span", "download", "layer", "token"])
def test_whatever_else_is_waited_for_has_an_end(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANSWER_SECONDS", "SPAN_SECONDS", "DOWNLOAD_SECONDS"):
        lower(monkeypatch, name, 0.2)
    part = b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 0-98/99\r\nContent-Length: 99\r\n\r\n"
    head, pieces, pause = DRIPS["body"]

    def drip(one: Site) -> None:
        one.drip(part if what == "span" else head, pieces, pause)

    with site(dict.fromkeys(("/x", "/v2/a/b/blobs/sha256:00", "/v2/a/b/manifests/c"), drip)) as (
        url,
        _,
    ):
        client = Client(names.parse(f"{url[7:]}/a/b:c"), {"HOME": "/nonexistent"})
        asks: dict[str, Callable[[], object]] = {
            "span": lambda: http_of().span(f"{url}/x", 0, 99),
            "download": lambda: http_of().download(f"{url}/x", io.BytesIO()),
            "layer": lambda: client.open(LAYER).read(),
            "token": lambda: client.manifest("x"),
        }
        started = time.monotonic()
        with pytest.raises(TreeError):
            asks[what]()
        assert time.monotonic() - started < 3
        client._session.close()


@pytest.mark.parametrize("status", [b"302 Found", b"503 Busy", b"401 No"])
def test_a_refusal_without_end_is_not_read(status: bytes) -> None:
    head = b"HTTP/1.1 %b\r\nLocation: /y\r\nConnection: close\r\n\r\n" % status
    sent = [0]

    def flood(one: Site) -> None:
        one.close_connection = True
        with contextlib.suppress(OSError):
            one.wfile.write(head)
            for _ in range(2_000):
                sent[0] += one.wfile.write(bytes(1 << 16))

    with site({"/x": flood, "/y": lambda one: one.say(200, b"here")}) as (url, _):
        http = Http(PipSettings(retries=1, timeout=5.0), backoff=0)
        with contextlib.nullcontext() if status[:1] == b"3" else pytest.raises(TreeError):
            http.page(f"{url}/x", "*/*")
        http._session.close()
    assert sent[0] < 40 << 20  # what the kernel's buffers take in between


@pytest.mark.slow
def test_a_page_that_unpacks_to_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PAGE", limits.Limit(1 << 20, "bytes", ""), raising=False)
    bomb = gzip.compress(bytes(64 << 20), 9)
    answers = {"/x": lambda one: one.say(200, bomb, Content_Encoding="gzip")}
    with site(answers) as (url, _), pytest.raises(TreeError, match="unpacks to more than 1 MiB"):
        http_of().page(f"{url}/x", "*/*")


@pytest.mark.slow
def test_a_page_of_half_a_million_links_is_not_read_to_its_end() -> None:
    for page in (
        b'<a href="x">x</a>' * 500_000,
        b"<!--" * 100_000,
        b"<a " * 300_000,
        b"<![" * 99_999,
    ):
        started = time.monotonic()
        with contextlib.suppress(ValueError):
            assert not parse_page(page, "text/html", "https://a.org/")
        assert time.monotonic() - started < 5
    with pytest.raises(ValueError, match="more than 50,000 links"):
        parse_page(b'<a href="x">x</a>' * 500_000, "text/html", "https://a.org/")
    many = b'{"meta": {}, "files": [%b0]}' % (b"0," * 500_000)
    with pytest.raises(ValueError, match="more than 50,000 links"):
        parse_page(many, "application/json", "https://a.org/")


@pytest.mark.slow
def test_a_time_is_given_to_the_body_that_is_read_later() -> None:
    with site({"/x": lambda one: one.say(200, b"here")}) as (url, _), sessions.session(0) as asking:
        with sessions.until(time.monotonic() + 0.3):
            answer = asking.get(f"{url}/x", stream=True)
        time.sleep(0.4)
        answer.close()
