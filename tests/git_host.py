"""A library in a git repository, and a server that has it by HTTP."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

MOD = """\
schema = 1
name = "{name}"
version = "{version}"
summary = "A module more"
license = "MIT"
{more}
[[variant]]
id = "all"
vllm = ">=0.1"
overlay = [{{ source = "x.py", path = "vllm/{name}.py" }}]
"""


def mod(
    name: str, version: str = "1.0.0", *, text: str = "X = 1\n", more: str = ""
) -> dict[str, str]:
    """Return the files of a mod that brings a module of its name."""
    manifest = MOD.format(name=name, version=version, more=more)
    return {f"patches/{name}/mod.toml": manifest, f"patches/{name}/x.py": text}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def git(folder: Path, *words: str) -> str:
    who = (
        "-c",
        "user.name=me",
        "-c",
        "user.email=me@example.org",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "maintenance.auto=false",  # a process more of each commit
    )
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, files: Mapping[str, str], tag: str | None = None) -> str:
    """Commit files to a repository, which is made if there is none; return the commit."""
    write(folder, files)
    if not (folder / ".git").exists():
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "mods")
    if tag is not None:
        git(folder, "tag", "-f", tag)
    return git(folder, "rev-parse", "HEAD")


class GitHost(NamedTuple):
    """A server: its URL, and what it was asked."""

    url: str
    asked: list[str]


def run_backend(
    request: BaseHTTPRequestHandler, root: Path, body: bytes, **more: str
) -> tuple[int, dict[str, str], bytes]:
    """Answer a request by ``git http-backend``, whose variables may be ``more``: status, fields and body."""
    path, _, query = request.path.partition("?")
    environ = {
        **os.environ,
        "GIT_PROJECT_ROOT": str(root),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": unquote(path),
        "QUERY_STRING": query,
        "REQUEST_METHOD": request.command,
        "CONTENT_TYPE": request.headers.get("Content-Type") or "",
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding") or "",
        "GIT_PROTOCOL": request.headers.get("Git-Protocol") or "",
        **more,
    }
    done = subprocess.run(
        ["git", "http-backend"], input=body, env=environ, capture_output=True, check=False
    )
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
    return int(fields.pop("Status", "200").split()[0]), fields, rest


@contextlib.contextmanager
def served(folder: Path, *, password: str | None = None) -> Iterator[GitHost]:
    """Serve the repositories in a folder by ``git http-backend``, to ``me`` alone if there is a password."""
    asked: list[str] = []

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            wanted = base64.b64encode(f"me:{password}".encode()).decode()
            if password and self.headers.get("Authorization") != f"Basic {wanted}":
                self.send_response(401)
                self.send_header("WWW-Authenticate", 'Basic realm="here"')
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, fields, rest = run_backend(self, folder, body)
            self.send_response(status)
            for key, value in fields.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            """Be silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield GitHost(f"http://127.0.0.1:{server.server_port}", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
