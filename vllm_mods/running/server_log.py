"""What a vLLM server logged: its own records since its last start, and whether it came to serve. Pure.

A line is a record only in the form of vLLM's own formatter (``vllm/logging_utils``). That one puts a record's prefix
before each line of its message too, so that the text of a request stays behind the file that logged it.
"""

import io
import re
import sys
from typing import NamedTuple

from vllm_mods.base import limits

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_RECORD = re.compile(
    r"((?:\([\w.:-]+ pid=\d+(?:, ip=[\w.:]+)?\) )*)"
    r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[(?:[^]:\s]*/)?([\w.-]+):\d+\] (.*)",
    re.ASCII | re.DOTALL,
)
_COMPUTING = re.compile(r"(?:\(\w*(?:EngineCore|Worker)[^ ]* pid=[^)]*\) )+\Z", re.ASCII)
_HEADLESS = re.compile(r"Launching .* headless ")
# The logo has the version in its second line; without it, and before it, a sentence has it.
_START = re.compile(rf"[ ▄█▀]+ version |vLLM (?:API )?server version |{_HEADLESS.pattern}")
_STARTING_FILES = {"api_server.py", "utils.py", "api_utils.py", "startup.py", "serve.py"}
_READY = re.compile(r"Starting vLLM (?:API )?server |Server is ready to accept requests")


class LogRecord(NamedTuple):
    """One line of a record: the base name of the ``file`` that logged it, and what that says.

    ``computes`` is whether an engine's or a worker's process logged it.
    """

    file: str
    message: str
    computes: bool


class ServerLog(NamedTuple):
    """The ``records`` since the last of so many ``starts``; ``ready`` is whether the server came to serve since then.

    A node without an API server is ready when it starts: nothing more is said of it.
    """

    records: tuple[LogRecord, ...]
    starts: int
    ready: bool


def read(data: bytes) -> ServerLog:
    """Read a log as the server wrote it; of a line ``limits.LOG_LINE`` letters count.

    A record that names no process counts as an engine's only where none does: a server's processes all have names.
    """
    lines: list[tuple[str, str, str]] = []
    starts, ready = 0, False
    for raw in io.BytesIO(data):
        text = _COLOR.sub("", raw.decode("utf-8", "replace")[: limits.LOG_LINE])
        record = _RECORD.match(text.rstrip("\r\n"))
        if record is None:
            continue
        processes, file, message = record.groups()
        if file in _STARTING_FILES and _START.match(message):
            starts, ready = starts + 1, bool(_HEADLESS.match(message))
            lines.clear()
        ready = ready or bool(_READY.match(message) and not _COMPUTING.match(processes))
        lines.append((sys.intern(processes), sys.intern(file), message))
    names = {processes for processes, _, _ in lines}
    computing = {one for one in names if _COMPUTING.match(one)} if any(names) else {""}
    records = (LogRecord(file, text, who in computing) for who, file, text in lines)
    return ServerLog(tuple(records), starts, ready)
