"""A small web site that answers as it is told, wrongly and without end too."""

from __future__ import annotations

import contextlib
import http.server
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

OK = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "head": (OK, b"x", 0.05),
    "headers": (OK, b"A: b\r\n", 0.05),
    "body": (OK + b"Content-Length: 100000\r\n\r\n", b"x", 0.05),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", 0.05),
    "nothing but 100": (b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.05),
    "no length": (OK + b"Connection: close\r\n\r\n", b"x", 0.05),
}


class Site(http.server.BaseHTTPRequestHandler):
    """Answers as ``answers`` says for each path; every request with its headers is in ``seen``."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    answers: Mapping[str, Callable[[Site], None]]
    seen: list[tuple[str, str, Mapping[str, str]]]

    def do_GET(self) -> None:
        self.seen.append((self.command, self.path, dict(self.headers)))
        answer = self.answers.get(self.path.partition("?")[0])
        self.say(404) if answer is None else answer(self)

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815  (the base's names)

    def say(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def drip(self, head: bytes, piece: bytes, pause: float) -> None:
        """Send ``piece`` without end."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(head)
            while True:
                self.wfile.write(piece)
                time.sleep(pause)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextlib.contextmanager
def site(answers: Mapping[str, Callable[[Site], None]]) -> Iterator[tuple[str, type[Site]]]:
    handler = type("Handler", (Site,), {"answers": answers, "seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def moved(to: str) -> Callable[[Site], None]:
    return lambda site: site.say(302, Location=to)
