"""A git server by https, under a name and with a certificate of its own authority: ``git http-backend`` behind Python."""

from __future__ import annotations

import contextlib
import os
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from vllm_mods.making import fetching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "git.example"
WHO = {
    **{f"GIT_{who}_{what}": "a@b" if what == "EMAIL" else "A" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *words: str) -> str:
    """Run git in a repository of a test."""
    environ = {**os.environ, **WHO}
    done = subprocess.run(
        ["git", *words], cwd=folder, env=environ, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


class _Backend(BaseHTTPRequestHandler):
    root: str
    asked: list[str]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.asked.append(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        environ = {
            **os.environ,
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "GIT_CONFIG_COUNT": "2",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_CONFIG_KEY_1": "uploadpack.allowAnySHA1InWant",
            "GIT_CONFIG_VALUE_1": "true",
        }
        done = subprocess.run(
            ["git", "http-backend"], env=environ, input=body, capture_output=True, check=False
        )
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n")]
        status = next((text.split()[0] for name, text in fields if name == "Status"), "200")
        self.send_response(int(status))
        for name, text in fields:
            if name != "Status":
                self.send_header(name, text)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815  (as its base calls it)


@contextlib.contextmanager
def serving(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Serve the bare repositories in a folder; give the URL that they have, and what is asked for."""
    made, both = root / "key.pem", root / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", made,
         "-out", root / "cert.pem", "-subj", f"/CN={HOST}", "-addext", f"subjectAltName=DNS:{HOST}"],
        check=True, capture_output=True,
    )  # fmt: skip
    both.write_bytes(made.read_bytes() + (root / "cert.pem").read_bytes())
    asked: list[str] = []
    handler = type("Backend", (_Backend,), {"root": str(root), "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    port = server.server_port
    monkeypatch.setenv("GIT_SSL_CAINFO", str(root / "cert.pem"))
    here = {**fetching._SETTINGS, "http.curloptResolve": f"{HOST}:{port}:127.0.0.1"}
    monkeypatch.setattr(fetching, "_SETTINGS", here)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://{HOST}:{port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
