"""What a vLLM server logged: its own records since its last start, how far it came, and whether it serves. Pure.

A line is a record only in the form of vLLM's own formatter (``vllm/logging_utils``). That one puts a record's prefix
before each line of its message too, so that the text of a request stays behind the file that logged it.
"""

import io
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base import limits

_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_LINE = re.compile(
    r"((?:\([\w.:-]+ pid=\d+(?:, ip=[\w.:]+)?\) )*)"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[(?:[^]:\s]*/)?([\w.-]+):\d+\] )?(.*)",
    re.ASCII | re.DOTALL,
)
_COMPUTING = re.compile(r"(?:\(\w*(?:EngineCore|Worker)[^ ]* pid=[^)]*\) )+\Z", re.ASCII)
_HEADLESS = re.compile(r"Launching .* headless ")
# The logo has the version in its second line; without it, and before it, a sentence has it.
_START = re.compile(rf"[ ▄█▀]+ version |vLLM (?:API )?server version |{_HEADLESS.pattern}")
_STARTING_FILES = {"api_server.py", "utils.py", "api_utils.py", "startup.py", "serve.py"}
_READY = re.compile(r"Starting vLLM (?:API )?server |Server is ready to accept requests")
_PHASES = (
    (rb"Fetching \d+ files: .*\| (\d+)/(\d+) \[", "downloads the model, {} of {} files"),
    (rb"oading .*shards: .*\| (\d+)/(\d+) \[", "loads weights, {} of {} files"),
    (rb"Starting to load model", "loads the model"),
    (rb"Loading weights took|Model loading took", "has loaded the weights"),
    (rb"Compiling a graph|Dynamo bytecode transform", "compiles"),
    (rb"Available KV cache memory|KV cache size", "makes the KV cache"),
    (rb"Capturing CUDA graphs?", "captures CUDA graphs"),
    (rb"Graph capturing finished|init engine \(", "warms up"),
    (rb"Starting vLLM (?:API )?server |Server is ready to accept", "opens its port"),
    (rb"version \d|server version ", "starts"),
)
"""What a server says when it begins a part of its start: of two, the later line counts."""


class LogLine(NamedTuple):
    """One line: whether an engine's or a worker's process wrote it, the base name of the ``file`` that logged it, and what it says.

    ``processes`` are the names in front of it. What was printed, and not logged, has no file.
    """

    processes: str
    file: str
    message: str
    computes: bool


class ServerLog(NamedTuple):
    """The ``records`` since the last of so many ``starts``; ``ready`` is whether the server came to serve since then.

    A node without an API server is ready when it starts: nothing more is said of it.
    """

    records: tuple[LogLine, ...]
    starts: int
    ready: bool


def lines(data: bytes) -> Iterator[LogLine]:
    """Yield the lines of a log as the server wrote it; of one ``limits.LOG_LINE`` letters count."""
    for raw in io.BytesIO(data):
        text = _COLOR.sub("", raw.decode("utf-8", "replace")[: limits.LOG_LINE])
        line = _LINE.match(text.rstrip("\r\n"))
        assert line is not None  # noqa: S101  (it matches any text)
        who, file, message = line.groups("")
        yield LogLine(sys.intern(who), sys.intern(file), message, bool(_COMPUTING.match(who)))


def read(data: bytes) -> ServerLog:
    """Read the records of a log.

    One that names no process counts as an engine's only where none does: a server's processes all have names.
    """
    records: list[LogLine] = []
    starts, ready = 0, False
    for line in lines(data):
        if not line.file:
            continue
        if line.file in _STARTING_FILES and _START.match(line.message):
            starts, ready = starts + 1, bool(_HEADLESS.match(line.message))
            records.clear()
        ready = ready or bool(_READY.match(line.message) and not line.computes)
        records.append(line)
    if not any(record.processes for record in records):
        records = [record._replace(computes=True) for record in records]
    return ServerLog(tuple(records), starts, ready)


def phase(data: bytes) -> str:
    """Return what a server that starts is at, by the last line that tells."""
    for line in reversed(data.splitlines()):
        for pattern, words in _PHASES:
            if match := re.search(pattern, line):
                return words.format(*(int(number) for number in match.groups()))
    return "starts"
