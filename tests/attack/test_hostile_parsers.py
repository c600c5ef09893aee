"""A tree whose parsers attack who runs them: they compute, and that is all that they can."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest
from lowering import lower
from toy_release import TEMPLATE, toy_release

from vllm_mods.base.errors import TreeError
from vllm_mods.templates import check, parser_process, rendering
from vllm_mods.templates.source import Template

if TYPE_CHECKING:
    from pathlib import Path

_TRY = """
import ctypes, os, signal, socket, sys, threading, time
resource = sys.modules['resource']

def tried(what):
    try:
        what()
    except BaseException as error:
        return type(error).__name__
    return "done"

"""


def _said(attack: str) -> str:
    """Return the error of a tree that says what its attack came to."""
    with pytest.raises(TreeError) as caught:
        parser_process.open_release(toy_release(_TRY + attack))
    return caught.value.message


_ATTACKS = (
    "open('{place}/new', 'w')",
    "open('{place}/secret').read()",
    "os.unlink('{place}/secret')",
    "os.rename('{place}/secret', '{place}/other')",
    "os.truncate('{place}/secret', 0)",
    "os.chmod('{place}/secret', 0)",
    "os.mkdir('{place}/new')",
    "os.symlink('/', '{place}/new')",
    "os.link('{place}/secret', '{place}/new')",
    "os.listdir('{place}')",
    "os.stat('{place}/secret')",
    "os.kill({parent}, signal.SIGTERM)",
    "os.fork()",
    "os.execv('/bin/sh', ['sh', '-c', 'touch {place}/new'])",
    "os.posix_spawn('/bin/sh', ['sh', '-c', 'touch {place}/new'], dict())",
    "threading.Thread(target=print).start()",
    "socket.create_connection(('127.0.0.1', {port}))",
    "socket.socket().connect(('127.0.0.1', {port}))",
    "socket.socketpair()",
    "time.sleep(10000)",
    "os.setpriority(os.PRIO_PROCESS, {parent}, 19)",
    "os.memfd_create('x')",
    "resource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "(os.close(0), open('{place}/secret'))",
)


@pytest.mark.slow
@pytest.mark.started
def test_nothing_outside_of_the_process_can_be_reached(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        calls = [one.format(place=tmp_path, parent=os.getpid(), port=port) for one in _ATTACKS]
        tries = ", ".join(f"tried(lambda: {call})" for call in calls)
        said = _said(f"done = [{tries}]\nraise Exception(done.count('done'), len(done))")
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()
    assert f"Exception: (0, {len(_ATTACKS)})" in said
    assert os.listdir(tmp_path) == ["secret"]
    assert (tmp_path / "secret").read_text() == "s3cret"


@pytest.mark.slow
def test_a_system_call_made_by_hand_is_refused_too(tmp_path: Path) -> None:
    path = tmp_path / "new"
    call = f"ctypes.CDLL(None, use_errno=True).mkdir({str(path)!r}.encode(), 0o777)"
    assert "Exception: -1" in _said(f"raise Exception({call})")
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.started
def test_what_was_in_the_environment_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "s3cret")
    assert "Exception: []" in _said("raise Exception(list(os.environ))")


@pytest.mark.slow
def test_modules_that_act_when_they_are_imported_are_none() -> None:
    assert "ModuleNotFoundError" in _said("import antigravity")


@pytest.mark.slow
@pytest.mark.started
def test_memory_is_limited() -> None:
    assert "MemoryError" in _said("bytearray(8 << 30)")


def test_what_is_said_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PARSER_OUTPUT", 1 << 20)
    assert "it prints more than 1 MiB" in _said("while True: sys.stdout.write('x' * 10000)")


@pytest.mark.slow
def test_waiting_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PARSER_SECONDS", 1)
    # as long as that, of a second of computing
    monkeypatch.setattr(rendering, "_PATIENCE", 0.5)
    assert "more than 1 seconds" in _said("threading.Lock().acquire() and threading.Event().wait()")


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "line",
    [
        '"tools": 5',
        '"tools": ["toy", 5, null]',
        '"tools": {"toy": 1}, "reasoners": [[["x"]]]',
        '"tools": ["toy"], "reasoners": "\\x1b[2J"',
    ],
)
def test_lines_of_its_own_are_taken_for_what_they_are(line: str) -> None:
    forged = (
        f"os.write(1, b'''{{{line}}}\\n''')\n"
        "os.write(1, b'[' * 100000 + b'\\n' + b'\\xff\\xfe\\n' + b'5\\n{\"whole\": 5}\\n{\"whole\": {\"calls\": 1}}\\n')\n"
        "os._exit(0)\n"
    )
    release = parser_process.open_release(toy_release(_TRY + forged))
    found = check.check(Template("t.jinja", "t.jinja", TEMPLATE), (), release)
    assert not found.ok
