"""A registry in memory that keeps what it is sent, as OCI's distribution 1.1 has it; and that can lie.

``lies`` are answers in place of its own: by the end of a path, status, body and headers. What is
written to a path that ends with ``refused`` finds no room.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from making_images import INDEX, MANIFEST, digest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Answer = tuple[int, bytes, dict[str, str]]


@dataclass
class SmallRegistry:
    """``login`` is what ``Authorization`` has to be; ``asked`` are method, path and that header."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    lies: dict[str, Answer] = field(default_factory=dict)
    refused: str | None = None
    login: str | None = None
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    host: str = ""

    @property
    def written(self) -> list[str]:
        """The paths of what was sent, in order."""
        return [path for method, path, _ in self.asked if method == "PUT"]

    def put(self, manifest: Mapping[str, Any], *blobs: bytes, tag: str = "1") -> str:
        """Put an artifact there, whatever it says."""
        data = json.dumps(manifest).encode()
        self.blobs |= {digest(one): one for one in blobs}
        self.manifests |= {tag: data, digest(data): data}
        return digest(data)

    def answer(self, method: str, path: str, query: str, body: bytes) -> Answer:
        for end, lie in self.lies.items():
            if path.endswith(end):
                return lie
        if method == "PUT" and self.refused is not None and path.endswith(self.refused):
            return 507, b"", {}
        if method == "POST":
            return 202, b"", {"Location": f"{path}1"}
        return self._put(path, query, body) if method == "PUT" else self._get(path)

    def _put(self, path: str, query: str, body: bytes) -> Answer:
        if "/uploads/" in path:
            (given,) = parse_qs(query)["digest"]
            self.blobs[given] = body
            return (201 if digest(body) == given else 400), b"", {}
        self.manifests |= {path.rpartition("/")[2]: body, digest(body): body}
        subject = json.loads(body).get("subject")
        return 201, b"", {"OCI-Subject": subject["digest"]} if subject else {}

    def _get(self, path: str) -> Answer:
        name = path.rpartition("/")[2]
        if "/referrers/" in path:
            return 200, self.referrers(name), {"Content-Type": INDEX}
        there = (self.manifests if "/manifests/" in path else self.blobs).get(name)
        if there is None:
            return 404, b"", {}
        kind = json.loads(there).get("mediaType", MANIFEST) if "/manifests/" in path else "x/y"
        return 200, there, {"Content-Type": kind, "Docker-Content-Digest": digest(there)}

    def referrers(self, of: str) -> bytes:
        found = {}
        for data in self.manifests.values():
            one = json.loads(data)
            if one.get("subject", {}).get("digest") == of:
                found[digest(data)] = {
                    "mediaType": MANIFEST,
                    "digest": digest(data),
                    "size": len(data),
                    "artifactType": one["artifactType"],
                }
        return json.dumps({"schemaVersion": 2, "manifests": list(found.values())}).encode()


@contextlib.contextmanager
def small_registry() -> Iterator[SmallRegistry]:
    made = SmallRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            given = self.headers.get("Authorization", "")
            made.asked.append((self.command, parts.path, given))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if made.login is not None and given != made.login:
                answer: Answer = (401, b"", {"WWW-Authenticate": 'Basic realm="here"'})
            else:
                answer = made.answer(
                    "GET" if self.command == "HEAD" else self.command, parts.path, parts.query, body
                )
            status, data, headers = answer
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                with contextlib.suppress(ConnectionError):  # a reader that has seen enough
                    self.wfile.write(data)

        do_HEAD = do_POST = do_PUT = do_GET  # noqa: N815  (the base's names)

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
