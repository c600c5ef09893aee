"""Why a server does not serve, by its log and what its engine says of it; and the line to type next. Pure.

The cause is the first exception of an engine or a worker: what the other processes say afterwards comes of it.
"""

import itertools
import math
import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from vllm_mods.base.limits import Limit
from vllm_mods.running import server_log
from vllm_mods.running.engine import EngineContainer
from vllm_mods.running.service import TYPED_LABEL, Typed
from vllm_mods.scripts.command_line import flag_value

_TRACEBACK = "Traceback (most recent call last):"
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")
_MORE_FOLLOWS = re.compile(r":$|validation errors? for ")
_CONSEQUENCE = re.compile(
    r"[Ss]ee (?:root cause|(?:the )?stack trace)|stack trace above|Executor failed|KeyboardInterrupt\b|SystemExit\b"
)
_DIED = re.compile(
    r"(?:core proc\(s\): \{[^}]*: |\(exit code: )-(\d+)|(?:exited|died) unexpectedly|EngineDeadError"
)
_SHARE = re.compile(r"[01]?\.\d+\Z", re.ASCII)
_USAGE = re.compile(r"[\w./ -]+: error: (.+)")
_ADVICE = (
    (r"estimated maximum model length is (\d+)", "-- --max-model-len {0}"),
    (r"\(([\d.]+)/([\d.]+) GiB\) on startup is less", "-- --gpu-memory-utilization {free}"),
    (r"No available memory for the cache|KV cache is needed", "-- --gpu-memory-utilization {more}"),
    (r"out of memory|OutOfMemory|was killed", "-- --gpu-memory-utilization {less}"),
    (r"[Aa]ddress already in use", "-- --port {port}"),
    (r"401 Client Error|403 Client Error|[Gg]ated ?[Rr]epo", "--env-file hub.env"),
    (r"No space left on device|Bus error|/dev/shm", "--shm-size 32g"),
    (r"config\.json|\.safetensors|any model weights|[Ii]nvalid repository ID|Repo id", "{files}"),
    (r"not initialized|no module or param|size mismatch|KeyError: .*(weight|scale)", "{suggest}"),
    (r"not supported for now|not recognize this architecture", "{suggest}"),
    ("", "{logs}"),
)
"""What helps against which causes: arguments of vLLM, an option of ``run``, or a line of its own."""


class FailedStart(NamedTuple):
    """Why a server does not serve, and the line to type next."""

    cause: str
    hint: str


class _Raised(NamedTuple):
    """An exception of a log; ``linked`` is whether it came of the one before."""

    computes: bool
    text: str
    linked: bool


def failure_of(container: EngineContainer, log: bytes) -> FailedStart:
    """Return why a container ended, or does not come to serve."""
    cause = _cause(container, log)
    typed = Typed(tuple(shlex.split(container.labels.get(TYPED_LABEL, "run"))))
    match, advice = next(
        (match, advice) for pattern, advice in _ADVICE if (match := re.search(pattern, cause))
    )
    facts = _facts(container, *match.groups())
    words = [word.format(*match.groups(), **facts) for word in advice.split()]
    if words[0] == "--":
        words = [typed.again(("--replace",), arguments=tuple(words[1:]))]
    elif words[0].startswith("--"):
        words = [typed.again(("--replace",), tuple(words))]
    return FailedStart(cause, " ".join(words))


def _facts(container: EngineContainer, *numbers: str) -> dict[str, object]:
    """Return what a piece of advice may name; ``numbers`` are those of the cause."""
    port = flag_value(container.command, "--port") or ""
    share = flag_value(container.command, "--gpu-memory-utilization") or ""
    used = float(share) if _SHARE.match(share) else 0.9
    model = container.labels.get("vllm-mods.model", "MODEL")
    folder = container.folders.get(model)
    return {
        "free": math.floor(100 * float(numbers[0]) / float(numbers[1])) / 100 if numbers[1:] else 0,
        "more": min(0.98, round(used + 0.05, 2)),
        "less": max(0.1, round(used - 0.1, 2)),
        "port": int(port if port.isdigit() else 8000) + 1,
        "files": f"ls -laL {shlex.quote(folder)}" if folder else f"hf download {model}",
        "suggest": f"vllm-mods suggest {shlex.quote(folder or model)}",
        "logs": f"{container.program} logs {container.name}",
    }


def _cause(container: EngineContainer, log: bytes) -> str:
    if container.out_of_memory:
        limit = f", {Limit(container.memory, 'bytes', '')}" if container.memory else ""
        return f"out of memory: a process was killed at the container's memory limit{limit}"
    return cause_of(log)


def cause_of(log: bytes) -> str:
    """Return what a log tells of the cause, the surest first."""
    lines = tuple(server_log.lines(log))
    raised = _raised(lines)
    if text := _first(one for one in raised if one.computes):
        return text
    if died := next(filter(None, (_DIED.search(line.message) for line in lines)), None):
        if died[1] not in {None, "9"}:
            return f"a process of the engine crashed (signal {died[1]})"
        return "a process of the engine was killed, by a person or by the kernel for lack of memory"
    usage = (match[1] for line in lines if (match := _USAGE.match(line.message)))
    consequence = raised[0].text if raised else None
    if text := _first(raised) or next(usage, consequence):
        return text
    end = "\n".join(line.message for line in lines[-10:])[-2000:].strip()
    return f"the log has no exception; its end:\n{end}" if end else "the log is empty"


def _first(raised: Iterable[_Raised]) -> str | None:
    """Return the first exception that comes of no other process, with what became of it."""
    each = [one for one in raised if not _CONSEQUENCE.search(one.text)]
    chain = each[:1] + list(itertools.takewhile(lambda after: after.linked, each[1:]))
    words = [" ".join(one.text.partition(" [type=")[0].split())[:500] for one in chain]
    return ", which became ".join(dict.fromkeys((*words[:1], *words[-1:]))) or None


def _raised(lines: Iterable[server_log.LogLine]) -> list[_Raised]:
    """Return the exceptions of a log, in the order in which they were printed."""
    raised: list[_Raised] = []
    inside: set[str] = set()
    linked: set[str] = set()
    unfinished: dict[str, int] = {}
    for line in lines:
        printer, text = f"{line.processes}{line.file}", line.message
        if text.strip() == _TRACEBACK:
            inside.add(printer)
            unfinished.pop(printer, None)
        elif printer in inside:
            if text[:1].strip():  # what leads to it is indented
                inside.discard(printer)
                if _MORE_FOLLOWS.search(text):
                    unfinished[printer] = len(raised)
                raised.append(_Raised(line.computes, text, printer in linked))
                linked.discard(printer)
        elif text.startswith(_LINKS):
            linked.add(printer)
        elif text.strip() and (place := unfinished.pop(printer, None)) is not None:
            raised[place] = raised[place]._replace(text=f"{raised[place].text} {text.strip()}")
    return raised
