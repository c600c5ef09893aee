"""What servers answer: index pages, byte ranges, registries."""

from __future__ import annotations

import functools
import io
import json
import os
import socket
import threading
from typing import Any

from package_server import WHEEL

from fuzz.contract import Target
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError
from vllm_mods.images import names, oci, registry
from vllm_mods.images.registry import Client
from vllm_mods.trees import index, pip_config, sources
from vllm_mods.trees.http import Http
from vllm_mods.trees.pip_config import PipSettings

INDEX = json.dumps(
    {
        "meta": {"api-version": "1.1"},
        "name": "vllm",
        "files": [
            {
                "filename": WHEEL,
                "url": f"../x/{WHEEL}",
                "hashes": {"sha256": "0" * 64},
                "size": 3,
                "requires-python": ">=3.9",
                "yanked": False,
                "core-metadata": {"sha256": "1" * 64},
            },
            {"filename": "vllm-0.19.1.tar.gz", "url": "vllm-0.19.1.tar.gz", "yanked": "no"},
        ],
    }
)
HTML = f'<html><base href="/b/"><a href="{WHEEL}#sha256={"0" * 64}" data-yanked="x">x</a></html>'


def _page(data: bytes, _folder: str) -> None:
    for kind in ("application/vnd.pypi.simple.v1+json", "text/html"):
        try:
            files = index.parse_page(data, kind, "https://example.org/simple/vllm/")
        except ValueError:
            continue
        for file in files:
            for name in (file.filename, file.version):
                index.choose(name, files)
            sources.local_path(file.url)


class _Server:
    """Answers every connection with the same bytes, whatever is asked."""

    def __init__(self) -> None:
        self.answer = b""
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            with connection:
                connection.settimeout(2)
                try:
                    connection.recv(65536)
                    connection.sendall(self.answer)
                except OSError:
                    continue


@functools.cache
def _server() -> _Server:
    return _Server()


def _http(data: bytes, folder: str) -> None:
    server = _server()
    server.answer = data
    url = f"http://127.0.0.1:{server.port}/simple/vllm/"
    settings = PipSettings(index_urls=(url,), retries=0, timeout=2.0)
    http = Http(settings, backoff=0)
    asks: tuple[Any, ...] = (
        lambda: http.page(url, "*/*"),
        lambda: http.span(url, 0, 4),
        lambda: http.download(url, io.BytesIO()),
        lambda: sources.IndexSources(settings, Cache(os.path.join(folder, "c")), http).ask(
            fresh=True
        ),
    )
    for ask in asks:
        try:
            ask()
        except TreeError:
            continue
    http._session.close()


def _registry(data: bytes, _folder: str) -> None:
    registry._TRIES = 1
    server = _server()
    server.answer = data
    client = Client(names.parse(f"127.0.0.1:{server.port}/a/b:latest"), {"HOME": "/nonexistent"})
    with client._session:
        found = client.manifest("x")
        oci.document_of(client.open, found, "x")


_OK = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
_HTTP = (
    _OK + b"Content-Type: application/vnd.pypi.simple.v1+json\r\n\r\n" + INDEX.encode(),
    _OK + b"Content-Type: text/html\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 206 Partial\r\nConnection: close\r\nContent-Range: bytes 0-3/10\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 503 Busy\r\nConnection: close\r\nRetry-After: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nConnection: close\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
    _OK + b"Transfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
)
_REGISTRY = (
    _OK + b"Content-Type: application/vnd.oci.image.manifest.v1+json\r\n\r\n{}",
    (
        b"HTTP/1.1 401 No\r\nConnection: close\r\nWWW-Authenticate: Bearer "
        b'realm="http://127.0.0.1:1/t",service="s",scope="x"\r\n\r\n{"token": "t"}'
    ),
    b"HTTP/1.1 404 No\r\nConnection: close\r\n\r\n",
)


def _pip(data: bytes, folder: str) -> None:
    place = os.path.join(folder, "pip.conf")
    with open(place, "wb") as file:
        file.write(data)
    Http(pip_config.read_settings({"PIP_CONFIG_FILE": place, "HOME": folder}, prefix=folder))


def _reference(data: bytes, _folder: str) -> None:
    names.parse(data.decode("utf-8", "surrogateescape"))


TARGETS = (
    Target("index-page", _page, lambda: (INDEX.encode(), HTML.encode())),
    Target("http", _http, lambda: _HTTP),
    Target("registry", _registry, lambda: _REGISTRY),
    Target(
        "pip-config",
        _pip,
        lambda: (
            b"[global]\nindex-url = https://u:p@example.org/simple\ntimeout = 3\nretries=1\n",
        ),
    ),
    Target("image-name", _reference, lambda: (b"host:5000/a/b:tag@sha256:" + b"0" * 64, b"ubuntu")),
)
