"""Sandboxes of templates and parsers are forked from a process that has loaded what they run.

To start each takes a tenth of a second, and all but a hundredth of it is imports. What is forked runs what
would be started: the same function on the same input, in the same folder, with the same environment. The
tests marked ``started`` or as needing something far away, and all with VLLM_MODS_TEST_ALL=1, start them as
users do.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from alone import FAR
from client_table import chat_clients
from sampling import ALL

from vllm_mods.templates import parser_process, rendering

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import IO

_SERVER = """\
import importlib, json, os, socket, sys, time, traceback
line, name, more = socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3]
sys.path[:] = sys.argv[4:]
module = importlib.import_module(name)
for one in more.split():
    try:
        importlib.import_module(one)
    except ImportError:
        pass
getattr(module, "import_all", list)()
while True:
    said, files, _, _ = socket.recv_fds(line, 1 << 16, 3)
    if not said:
        break
    process = os.fork()
    if process == 0:
        line.close()
        for n, file in enumerate(files):
            os.dup2(file, n)
            os.close(file)
        asked = json.loads(said)
        os.environ.clear()
        os.environ.update(asked["env"])
        time.tzset()
        os.chdir(asked["cwd"])
        code = 1
        try:
            module.main()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    for file in files:
        os.close(file)
    line.send(str(process).encode())
    line.send(str(os.waitpid(process, 0)[1]).encode())
"""
_ENGINES = "encodings.unicode_escape html jinja2.constants jinja2.debug minijinja._internal pprint"
_PARSERS = "ijson openai_harmony partial_json_parser pydantic regex"
_KNOWN = {
    rendering.SANDBOX: _ENGINES,
    parser_process.SANDBOX: _PARSERS,
    chat_clients.SANDBOX: "openai",
}


class _Server(NamedTuple):
    """A process that forks sandboxes, and whose turn it is."""

    process: subprocess.Popen[bytes]
    line: socket.socket
    turn: threading.Lock


_servers: dict[tuple[int, str, tuple[str, ...]], _Server] = {}


def _server(start: str, places: Sequence[str]) -> _Server:
    # a fork of this process has servers of its own
    key = (os.getpid(), start, tuple(places))
    if key not in _servers:
        mine, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            command = [sys.executable, "-P", "-c", _SERVER, str(its.fileno()), start, _KNOWN[start]]
            process = subprocess.Popen(
                [*command, *places], pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, env={}
            )
        _servers[key] = _Server(process, mine, threading.Lock())
    return _servers[key]


def _run(
    command: Sequence[str], *, timeout: float, stdout: IO[bytes], stderr: IO[bytes], **how: Any
) -> subprocess.CompletedProcess[bytes]:
    start, places = command[4], command[5:]
    if start not in _KNOWN:
        return subprocess.run(command, timeout=timeout, stdout=stdout, stderr=stderr, **how)  # noqa: PLW1510
    server = _server(start, places)
    with server.turn, tempfile.TemporaryFile() as given:
        given.write(how["input"])
        given.seek(0)
        asked = json.dumps({"env": how["env"], "cwd": how["cwd"]}).encode()
        files = [given.fileno(), stdout.fileno(), stderr.fileno()]
        socket.send_fds(server.line, [asked], files)
        process = int(server.line.recv(32))
        server.line.settimeout(timeout)
        late = False
        try:
            status = server.line.recv(32)
        except TimeoutError:
            late = True
            os.kill(process, signal.SIGKILL)
            server.line.settimeout(None)
            status = server.line.recv(32)
        if late:
            raise subprocess.TimeoutExpired(command, timeout)
        return subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(int(status)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with pytest.MonkeyPatch.context() as patch:
        if not ALL and not any(map(item.get_closest_marker, ("started", *FAR))):
            forking = SimpleNamespace(**vars(subprocess) | {"run": _run})
            patch.setattr(rendering, "subprocess", forking)
        return (yield)


def pytest_unconfigure() -> None:
    for (owner, *_), server in _servers.items():
        if owner == os.getpid():
            server.line.close()
            server.process.wait()
