"""Small wheels and sdists of a made-up vLLM, and an HTTP server that offers them as an index does.

What a server can do wrong is a switch on ``PackageServer``; every request is in ``requests``.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import html
import io
import json
import os
import random
import ssl
import sys
import tarfile
import threading
import traceback
import zipfile
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import pytest

SOURCES = {
    "vllm/__init__.py": b"",
    "vllm/_version.py": b"__version__ = version = '0.19.1'\n",
    "vllm/config/model.py": b"class ModelConfig:\n    pass\n" * 40,
}
WHEEL = "vllm-0.19.1-cp38-abi3-manylinux_2_31_x86_64.whl"
SDIST = "vllm-0.19.1.tar.gz"
# Larger than the end of the file that is asked for first, and nothing that compresses.
BULK = {"vllm/_C.abi3.so": random.Random(0).randbytes(700_000)}


def settings_of_none(folder: Path, monkeypatch: pytest.MonkeyPatch, *, retries: int = 0) -> None:
    """Take pip's settings and this machine's proxies away; home and cache are below ``folder``."""
    for name in list(os.environ):
        if name.startswith("PIP_") or name.upper().endswith("_PROXY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", str(retries))
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("VLLM_MODS_CACHE", str(folder / "cache"))


def record_row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"


def make_wheel(
    files: Mapping[str, bytes] = SOURCES,
    *,
    version: str = "0.19.1",
    bulk: Mapping[str, bytes] = BULK,
    record: str | None = None,
    name: str = "vllm",
    requires: tuple[str, ...] = (),
) -> bytes:
    return _wheel((*files.items(), *bulk.items()), version, record, name, requires)


@functools.cache
def _wheel(
    files: tuple[tuple[str, bytes], ...],
    version: str,
    record: str | None,
    name: str,
    requires: tuple[str, ...],
) -> bytes:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    lines = "".join(f"Requires-Dist: {one}\n" for one in requires)
    metadata = f"Name: {name}\nVersion: {version}\n{lines}".encode()
    contents = {**dict(files), f"{info}/METADATA": metadata}
    rows = "".join(record_row(name, data) for name, data in contents.items())
    contents[f"{info}/RECORD"] = (rows if record is None else record).encode(
        "utf-8", "surrogateescape"
    )
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for path, data in contents.items():  # without the time of day: made twice, it is the same
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return stream.getvalue()


def make_sdist(files: Mapping[str, bytes] = SOURCES, *, version: str = "0.19.1") -> bytes:
    stream = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        pkg_info = f"Metadata-Version: 2.4\nName: vllm\nVersion: {version}\n\nText\n".encode()
        for name, data in {"PKG-INFO": pkg_info, **files}.items():
            member = tarfile.TarInfo(f"vllm-{version}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


@dataclass
class PackageServer:
    """``files`` by name; the switches say how it answers. ``login`` is ``user:password``."""

    files: dict[str, bytes]
    json: bool = False
    compress: bool = False
    ranges: bool = True
    wrong_range: bool = False
    grows: bool = False
    sizes: bool = True
    hashes: dict[str, str] = field(default_factory=dict)
    no_hashes: bool = False
    metadata_hash: str | None = None
    yanked: dict[str, str] = field(default_factory=dict)
    uploaded: dict[str, str] = field(default_factory=dict)
    failures: int = 0
    truncations: int = 0
    retry_after: str | None = None
    login: str | None = None
    absent: bool = False
    at: str = "simple"
    moved: str = ""
    etags: bool = False
    url: str = ""
    # Files that come only once somebody sets the event.
    held: dict[str, threading.Event] = field(default_factory=dict)
    requests: list[tuple[str, str | None]] = field(default_factory=list)

    @property
    def index(self) -> str:
        return f"{self.url}/{self.at}"

    def asked(self, ending: str) -> list[str | None]:
        """The Range headers of the requests for paths with this ending."""
        return [span for path, span in self.requests if path.endswith(ending)]


@contextlib.contextmanager
def serving(server: PackageServer, *, certificate: str | None = None) -> Iterator[PackageServer]:
    class Handler(_Handler):
        state = server

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_request: object) -> None:
            if not isinstance(
                sys.exception(), ConnectionError
            ):  # a client may leave when it has enough
                traceback.print_exc()

    httpd = Server(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake belongs to the connection's own thread, not to the accepting one.
        httpd.socket = context.wrap_socket(
            httpd.socket, server_side=True, do_handshake_on_connect=False
        )
    scheme = "http" if certificate is None else "https"
    server.url = f"{scheme}://127.0.0.1:{httpd.server_address[1]}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits until the head before it was acknowledged
    state: PackageServer

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the base's name)
        pass

    def do_GET(self) -> None:
        state, path = self.state, unquote(urlsplit(self.path).path)
        state.requests.append((path, self.headers.get("Range")))
        if state.login is not None:
            expected = "Basic " + base64.b64encode(state.login.encode()).decode()
            if self.headers.get("Authorization") != expected:
                return self._send(401, b"who are you")
        if state.failures > 0:
            state.failures -= 1
            extra = {"Retry-After": state.retry_after} if state.retry_after else {}
            return self._send(503, b"busy", extra)
        if state.moved:
            return self._send(302, b"", {"Location": state.moved})
        if path.startswith(f"/{state.at}/"):
            return self._project(path.removeprefix(f"/{state.at}/").rstrip("/"))
        if (event := state.held.get(path.removeprefix("/files/"))) is not None:
            event.wait()
        data = state.files.get(path.removeprefix("/files/"))
        if data is None or not path.startswith("/files/"):
            return self._send(404, b"no such thing")
        return self._file(data)

    def _project(self, project: str) -> None:
        files = any(name.startswith(f"{project.replace('-', '_')}-") for name in self.state.files)
        if not self.state.absent if project == "vllm" else files:
            self._page()
        else:
            self._send(404, b"no such project")

    def _page(self) -> None:
        kind, body = self._json() if self.state.json else self._html()
        extra = {"Content-Type": kind}
        if self.state.compress and "gzip" in self.headers.get("Accept-Encoding", ""):
            extra["Content-Encoding"] = "gzip"
            body = gzip.compress(body)
        self._send(200, body, extra)

    def _hash(self, name: str, data: bytes) -> str:
        return self.state.hashes.get(name, hashlib.sha256(data).hexdigest())

    def _json(self) -> tuple[str, bytes]:
        entries = [
            {
                "filename": name,
                "url": f"../../files/{name}",
                "hashes": {} if self.state.no_hashes else {"sha256": self._hash(name, data)},
                "yanked": self.state.yanked.get(name, False),
                "core-metadata": {"sha256": self.state.metadata_hash}
                if self.state.metadata_hash
                else False,
                **({"size": len(data)} if self.state.sizes else {}),
                **(
                    {"upload-time": self.state.uploaded[name]}
                    if name in self.state.uploaded
                    else {}
                ),
            }
            for name, data in self.state.files.items()
        ]
        page = {"meta": {"api-version": "1.1"}, "name": "vllm", "files": entries}
        return "application/vnd.pypi.simple.v1+json", json.dumps(page).encode()

    def _html(self) -> tuple[str, bytes]:
        lines = []
        for name, data in self.state.files.items():
            fragment = "" if self.state.no_hashes else f"#sha256={self._hash(name, data)}"
            reason = self.state.yanked.get(name)
            yanked = f' data-yanked="{html.escape(reason)}"' if reason is not None else ""
            if self.state.metadata_hash:
                yanked += f' data-dist-info-metadata="sha256={self.state.metadata_hash}"'
            lines.append(f'<a href="../../files/{name}{fragment}"{yanked}>{name}</a><br>')
        return "text/html; charset=utf-8", "\n".join(lines).encode()

    def _file(self, data: bytes) -> None:
        asked = self.headers.get("Range")
        tag = {"ETag": hashlib.sha256(data).hexdigest()} if self.state.etags else {}
        if asked is None or not self.state.ranges:
            return self._send(200, data, tag)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last) + 1, len(data))
        total = len(data) + (len(self.state.requests) if self.state.grows else 0)
        if self.state.wrong_range:
            start, end = 0, end - start
        extra = {"Content-Range": f"bytes {start}-{end - 1}/{total}", **tag}
        return self._send(206, data[start:end], extra)

    def _send(self, status: int, body: bytes, extra: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        cut = status in {200, 206} and self.state.truncations > 0
        if cut:
            self.state.truncations -= 1
            self.close_connection = True
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # A reader that has seen enough hangs up.
            self.wfile.write(body[: len(body) // 2] if cut else body)
