"""A forge on this machine: a bare repository by HTTP, and the pull requests of its REST API, as GitHub, GitLab or Gitea have it."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from git_host import git, run_backend

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

TOKEN = "t0ken-of-a-job"  # noqa: S105  (of no forge)
VARIABLES = {
    "github": ("GITHUB_SERVER_URL", "GITHUB_TOKEN"),
    "gitlab": ("CI_SERVER_URL", "GITLAB_TOKEN"),
    "gitea": ("GITEA_SERVER_URL", "GITEA_TOKEN"),
}
_APIS = {"github": "/api/v3", "gitlab": "/api/v4", "gitea": "/api/v1"}


@dataclass
class Request:
    """A pull request, and what it is about."""

    number: int
    head: str
    base: str
    title: str
    body: str
    state: str = "open"
    fork: bool = False

    @property
    def ours(self) -> bool:
        return not self.fork


@dataclass
class ForgeServer:
    """``kind`` is that of the forge; ``answers`` are given in place of its own, one after the other."""

    kind: str
    repository: Path
    url: str = ""
    requests: list[Request] = field(default_factory=list)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    replied: list[tuple[int, Any]] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    git_asked: list[str] = field(default_factory=list)
    git_moved: str = ""

    @property
    def remote(self) -> str:
        return f"{self.url}/us/mods.git"

    @property
    def api(self) -> str:
        where = (
            "/projects/us%2Fmods/merge_requests"
            if self.kind == "gitlab"
            else "/repos/us/mods/pulls"
        )
        return _APIS[self.kind] + where

    def written(self) -> list[tuple[str, str]]:
        """The requests that changed something: method and path behind that of the list."""
        return [
            (method, path.removeprefix(self.api))
            for method, path, _ in self.asked
            if method != "GET"
        ]

    def merge(self, number: int, *, squash: bool = False) -> None:
        """Merge a request as a person does, and delete its branch."""
        request = self.requests[number - 1]
        work = self.repository.parent / f"merging-{number}"
        git(self.repository.parent, "clone", "-q", str(self.repository), str(work))
        how = ("--squash",) if squash else ("--no-ff", "-m", "merged")
        git(work, "merge", "-q", *how, f"origin/{request.head}")
        if squash:
            git(work, "commit", "-q", "-m", "squashed")
        git(work, "push", "-q", "origin", "HEAD:main", f":refs/heads/{request.head}")
        request.state = "merged"

    def answer(self, method: str, path: str, data: dict[str, Any]) -> tuple[int, Any]:
        """Answer as the forge does."""
        url, query = urlsplit(path), dict(parse_qsl(urlsplit(path).query))
        if not url.path.startswith(self.api):
            return 404, {"message": "Not Found"}
        rest = url.path.removeprefix(self.api).strip("/")
        if method == "GET":
            return 200, self._list(query)
        if method == "POST":
            return self._open(data)
        request = self.requests[int(rest) - 1]
        if method != ("PUT" if self.kind == "gitlab" else "PATCH"):
            return 405, {"message": "405 Method Not Allowed"}
        request.title = data.get("title", request.title)
        request.body = data.get("description" if self.kind == "gitlab" else "body", request.body)
        if data.get("state") == "closed" or data.get("state_event") == "close":
            request.state = "closed"
        return 201 if self.kind == "gitea" else 200, self.show(request)

    def _list(self, query: Mapping[str, str]) -> list[Any]:
        states = {"all": {"open", "closed", "merged"}, "closed": {"closed", "merged"}}
        wanted = states.get(query["state"], {"open"})
        shown = [request for request in reversed(self.requests) if request.state in wanted]
        size = min(int(query["limit" if self.kind == "gitea" else "per_page"]), 50)
        begin = (int(query["page"]) - 1) * size
        return [self.show(request) for request in shown[begin : begin + size]]

    def _open(self, data: dict[str, Any]) -> tuple[int, Any]:
        gitlab = self.kind == "gitlab"
        names = ("source_branch", "target_branch", "title", "description")
        head, base, title, body = (
            data[key] for key in (names if gitlab else ("head", "base", "title", "body"))
        )
        if any(one.head == head and one.state == "open" and one.ours for one in self.requests):
            return self._duplicate(head)
        if self._tip(head) is None:
            return (400 if gitlab else 422), {
                "message": "Validation Failed",
                "errors": [{"field": "head"}],
            }
        request = Request(len(self.requests) + 1, head, base, title, body)
        self.requests.append(request)
        return 201, self.show(request)

    def _duplicate(self, head: str) -> tuple[int, Any]:
        why = f"A pull request already exists for us:{head}."
        if self.kind == "gitlab":
            return 409, {
                "message": [
                    f"Another open merge request already exists for this source branch: {head}"
                ]
            }
        if self.kind == "gitea":
            return 409, {"message": why, "url": f"{self.url}/api/swagger"}
        return 422, {
            "message": "Validation Failed",
            "errors": [{"resource": "PullRequest", "message": why}],
        }

    def _tip(self, head: str) -> str | None:
        words = [
            "git",
            "-C",
            str(self.repository),
            "rev-parse",
            "--verify",
            "-q",
            f"refs/heads/{head}",
        ]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout.strip() or None

    def show(self, request: Request) -> dict[str, Any]:
        """A request as the API has it: the keys that every forge gives, as far as they matter."""
        merged = "2026-11-27T00:00:00Z" if request.state == "merged" else None
        tip, side = self._tip(request.head), 2 if request.fork else 1
        if self.kind == "gitlab":
            return {
                "id": 1000 + request.number,
                "iid": request.number,
                "title": request.title,
                "description": request.body,
                "state": "opened" if request.state == "open" else request.state,
                "merged_at": merged,
                "source_branch": request.head,
                "target_branch": request.base,
                "source_project_id": side,
                "target_project_id": 1,
                "web_url": f"{self.url}/us/mods/-/merge_requests/{request.number}",
            }
        record: dict[str, Any] = {
            "id": 1000 + request.number,
            "number": request.number,
            "title": request.title,
            "body": request.body,
            "state": "open" if request.state == "open" else "closed",
            "merged_at": merged,
            "html_url": f"{self.url}/us/mods/pull/{request.number}",
        }
        ref = request.head
        if self.kind == "gitea":
            ref = ref if tip else f"refs/pull/{request.number}/head"
            sides = {
                "head": {"label": request.head, "repo_id": side},
                "base": {"label": request.base, "repo_id": 1},
            }
        else:
            owner = "them" if request.fork else "us"
            sides = {
                "head": {"label": f"{owner}:{request.head}", "repo": {"id": side}},
                "base": {"label": f"us:{request.base}", "repo": {"id": 1}},
            }
        sides["head"] |= {"ref": ref, "sha": tip or "0" * 40}
        sides["base"]["ref"] = request.base
        return record | sides


@contextlib.contextmanager
def serving(
    kind: str, folder: Path, make: type[ForgeServer] = ForgeServer
) -> Iterator[ForgeServer]:
    """Serve a forge of a kind with a bare repository in a folder."""
    bare = folder / "us/mods.git"
    bare.mkdir(parents=True)
    git(bare, "init", "-q", "--bare", "-b", "main")
    git(bare, "config", "http.receivepack", "true")
    forge = make(kind, bare)

    class Answer(_Handler):
        state = forge
        root = folder

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    forge.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield forge
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    state: ForgeServer
    root: Path

    def log_message(self, *_: object) -> None:
        """Be silent."""

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/api/"):
            return self._api(body)
        return self._git(body)

    do_POST = do_PUT = do_PATCH = do_GET  # noqa: N815

    def _api(self, body: bytes) -> None:
        forge = self.state
        data = json.loads(body) if body else {}
        forge.asked.append((self.command, self.path, data))
        extra: dict[str, str] = {}
        if forge.answers:
            status, extra, answer = forge.answers.pop(0)
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            status, answer = 401, {"message": "Bad credentials"}
        else:
            status, answer = forge.answer(self.command, self.path, data)
            forge.replied.append((status, answer))
        self._send(
            status, {"Content-Type": "application/json", **extra}, json.dumps(answer).encode()
        )

    def _git(self, body: bytes) -> None:
        self.state.git_asked.append(self.path)
        if self.state.git_moved:
            return self._send(302, {"Location": self.state.git_moved + self.path}, b"")
        login = base64.b64encode(f"x-access-token:{TOKEN}".encode()).decode()
        if self.headers.get_all("Authorization") != [f"Basic {login}"]:
            return self._send(401, {"WWW-Authenticate": 'Basic realm="here"'}, b"")
        return self._send(*run_backend(self, self.root, body, REMOTE_USER="us"))

    def _send(self, status: int, fields: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in fields.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
