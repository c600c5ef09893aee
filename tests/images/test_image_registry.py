"""A registry with tokens, as the large ones have it: who is asked for what, with which login."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest
from making_images import MANIFEST, Image, digest, layer

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import names
from vllm_mods.images.open import open_base
from vllm_mods.images.registry import is_plain

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

IMAGE = Image([layer({"a/b": b"low"}), layer({"a/c": b"high"})])


class Fake:
    """A registry that gives blobs from another place, and tokens from a third."""

    def __init__(self) -> None:
        self.manifest, self.blobs = IMAGE.blobs("gzip")
        self.user: tuple[str, str] | None = None
        self.identity = ""
        self.seen: list[tuple[str, str]] = []
        self.scopes: list[str] = []
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                fake.answer(self)

            def do_POST(self) -> None:
                fake.answer(self)

            def log_message(self, *_arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def reference(self) -> str:
        return f"registry:127.0.0.1:{self.port}/some/image:1"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        login = request.headers.get("Authorization", "")
        self.seen.append((parts.path, login))
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0)).decode()
        if parts.path == "/token":
            self._token(request, login, parse_qs(parts.query or body), post=bool(body))
        elif parts.path.startswith("/store/"):
            # A store with signed URLs refuses a request that brings a login of its own.
            data = self.blobs[parts.path.removeprefix("/store/")]
            self._send(request, 400 if login else 200, data)
        elif login != "Bearer good":
            realm = f'Bearer realm="http://127.0.0.1:{self.port}/token",service="fake"'
            scope = ',scope="repository:some/image:pull"'
            self._send(request, 401, b"", {"WWW-Authenticate": realm + scope})
        elif "/manifests/" in parts.path:
            self._send(request, 200, self.manifest, {"Content-Type": MANIFEST})
        else:
            name = parts.path.rpartition("/")[2]
            place = f"http://localhost:{self.port}/store/{name}"
            self._send(request, 307, b"", {"Location": place})

    def _token(
        self,
        request: BaseHTTPRequestHandler,
        login: str,
        asked: dict[str, list[str]],
        *,
        post: bool,
    ) -> None:
        self.scopes += asked["scope"]
        if self.identity:
            good = post and asked["refresh_token"] == [self.identity]
        else:
            text = (
                "" if self.user is None else base64.b64encode(":".join(self.user).encode()).decode()
            )
            good = login == (f"Basic {text}" if text else "")
        kind = "access_token" if post else "token"
        self._send(request, 200 if good else 401, json.dumps({kind: "good"}).encode())

    @staticmethod
    def _send(
        request: BaseHTTPRequestHandler,
        status: int,
        data: bytes,
        headers: dict[str, str] | None = None,
    ) -> None:
        request.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(data))}.items():
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(data)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    for name in ("REGISTRY_AUTH_FILE", "DOCKER_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    fake = Fake()
    yield fake
    fake.server.shutdown()
    fake.server.server_close()


def keep(folder: Path, host: str, entry: dict[str, str]) -> None:
    (folder / ".docker").mkdir(exist_ok=True)
    (folder / ".docker/config.json").write_text(json.dumps({"auths": {host: entry}}))


def test_without_a_login_a_token_for_nobody_is_asked_for(fake: Fake) -> None:
    base = open_base(fake.reference)
    assert base.read("a/c") == b"high"
    assert base.read("a/b") == b"low"
    assert base.config == IMAGE.config
    assert set(fake.scopes) == {"repository:some/image:pull"}
    assert {login for path, login in fake.seen if path.startswith("/store/")} == {""}


def test_a_login_goes_to_the_tokens_place_and_nowhere_else(fake: Fake, tmp_path: Path) -> None:
    fake.user = ("me", "pass:word")
    with pytest.raises(TreeError, match=r"401 Unauthorized \(asked without a login\)"):
        open_base(fake.reference)
    text = base64.b64encode(b"me:pass:word").decode()
    keep(tmp_path, f"127.0.0.1:{fake.port}", {"auth": text})
    fake.seen.clear()
    assert open_base(fake.reference).read("a/b") == b"low"
    assert {path for path, login in fake.seen if login.startswith("Basic")} == {"/token"}


def test_an_identity_token(fake: Fake, tmp_path: Path) -> None:
    fake.identity = "long-lived"
    keep(tmp_path, f"127.0.0.1:{fake.port}", {"identitytoken": "long-lived", "auth": "Og=="})
    assert open_base(fake.reference).read("a/b") == b"low"


def test_a_manifest_that_is_another(fake: Fake) -> None:
    other = fake.reference.rpartition(":")[0] + f"@sha256:{'0' * 64}"
    with pytest.raises(TreeError, match="the registry sent a manifest with the digest"):
        open_base(other)


def test_a_blob_that_is_another(fake: Fake) -> None:
    name = json.loads(fake.manifest)["layers"][0]["digest"]
    fake.blobs[name] = fake.blobs[name][:-1] + b"x"
    base = open_base(fake.reference)
    assert base.read("a/c") == b"high"
    with pytest.raises(TreeError, match=f"its contents do not match {name}|broken or cut short"):
        base.read("a/b")
    assert digest(fake.blobs[name]) != name


def test_a_registry_that_is_not_there(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between two tries
    fake.server.shutdown()
    fake.server.server_close()
    with pytest.raises(
        TreeError, match=r"no network connection to .*: Connection refused"
    ) as caught:
        open_base(fake.reference)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"curl -sS http://127.0.0.1:{fake.port}/v2/")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("python", "docker.io/library/python:latest"),
        ("vllm/vllm-openai:v0.21.0", "docker.io/vllm/vllm-openai:v0.21.0"),
        ("index.docker.io/a/b", "docker.io/a/b:latest"),
        ("localhost/x", "localhost/x:latest"),
        ("host:5000/x/y:t", "host:5000/x/y:t"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ("ghcr.io/o/n:t@sha256:" + "a" * 64, "ghcr.io/o/n@sha256:" + "a" * 64),
    ],
)
def test_names(text: str, name: str) -> None:
    assert str(names.parse(text)) == name


@pytest.mark.parametrize(
    "text",
    ["", "UPPER/x", "a//b", "a:b:c", "a@sha256:1", "a b", "../x", "h.io/", "-x", "a:-t", "x@"],
)
def test_names_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="not an image name:"):
        names.parse(text)


@pytest.mark.parametrize(
    ("host", "plain"),
    [
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000", True),
        ("10.0.0.1:5000", False),
        ("localhost.example.org", False),
        ("mine:5000", True),
        ("mine", False),
    ],
)
def test_plain_http_is_for_this_machine_and_what_the_user_lists(host: str, plain: bool) -> None:  # noqa: FBT001
    assert is_plain(host, {"VLLM_MODS_PLAIN_HTTP": "mine:5000,other"}) is plain
