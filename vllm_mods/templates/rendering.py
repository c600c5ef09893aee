"""Chat templates rendered: the sandbox is started and given a case, and what it says is read.

A template may come from anybody. It gets ``limits.TEMPLATE_SECONDS`` and ``TEMPLATE_MEMORY`` for all of its
conversations; what it does past that, or to the process that it is in, is an error of the template.
"""

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from packaging.version import Version

from vllm_mods.base import limits, own_process
from vllm_mods.base.errors import NotRendered
from vllm_mods.base.untrusted import DEEP, is_deep, json_of
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import SPECIAL, Template

_PATIENCE = 5
"""A machine may be busy: so many times that by the clock, and then it hangs."""
_MOST_OF_LETTER = 16
"""The bytes that a letter takes in JSON, and more."""
SANDBOX = "vllm_mods.templates.sandbox"


class Rendered(NamedTuple):
    """The prompt of one conversation; or why there is none, and the template's line.

    ``refused`` is said by the template itself, with ``raise_exception``.
    """

    prompt: str | None
    error: str | None = None
    line: int | None = None
    refused: bool = False


def place(where: str, line: int | None) -> str:
    """Return a line of a template as it stands in messages."""
    return where if line is None else f"{where}:{line}"


class RenderAnswer(NamedTuple):
    """What a template reads, what vLLM takes it for (``formats.detect_formats``), and its prompts.

    vLLM passes on all ``variables``; ``arguments`` are those that the template does not set itself.
    """

    variables: tuple[str, ...]
    arguments: tuple[str, ...]
    formats: tuple[tuple[str, str], ...]
    rendered: tuple[Rendered, ...]


def format_on(formats: Sequence[tuple[str, str]], release: str | None) -> str:
    """Return which of the ``formats`` of ``RenderAnswer`` a release takes; the newest, if it is not known which it is."""
    version = Version(release) if release else None
    known = [name for since, name in formats if version is None or Version(since) <= version]
    return (known or [formats[0][1]])[-1]


def render(
    template: Template,
    conversations: Sequence[Conversation],
    *,
    marked: bool = False,
    rust: bool = False,
    later: bool = False,
) -> RenderAnswer:
    """Render conversations with a template in UTF-8.

    ``marked`` gives it special tokens, ``bos_token`` and so on: the model's, a stand-in for one that is not known.
    ``rust`` takes minijinja, as vLLM's Rust frontend does, in place of transformers' Jinja.
    ``later`` has every message begin a minute after the one before; otherwise it is now.

    Raises ``NotRendered`` for what is no template. One that fails for a conversation says so there.
    """
    where = template.path
    if len(template.data) > limits.TEMPLATE:
        raise NotRendered(f"{where}: a template can have at most {limits.TEMPLATE}")
    try:
        text = template.data.decode()
    except UnicodeDecodeError as error:
        raise NotRendered(f"{where}: not UTF-8: byte {error.start}") from error
    for conversation in conversations:
        if is_deep((conversation.messages, conversation.tools, conversation.kwargs)):
            raise NotRendered(f"{conversation.name}: {DEEP}")
    tokens = {name: f"<{name}>" for name in SPECIAL} | dict(template.tokens) if marked else {}
    jobs = [one._replace(kwargs={**tokens, **one.kwargs})._asdict() for one in conversations]
    case = {
        "template": text,
        "jobs": jobs,
        "rust": rust,
        "later": later,
        "seconds": limits.TEMPLATE_SECONDS,
        "memory": limits.TEMPLATE_MEMORY,
        "letters": limits.PROMPT,
        "output": _MOST_OF_LETTER * (limits.PROMPT + limits.TEMPLATE),
    }
    _, (head, *answers) = run_apart(SANDBOX, case, 1 + len(jobs))
    if "error" in head:
        raise NotRendered(f"{place(where, head.get('line'))}: {head['error']}")
    rendered = [
        Rendered(one.get("prompt"), one.get("error"), one.get("line"), one.get("refused", False))
        for one in answers
    ]
    return RenderAnswer(
        variables=tuple(head["variables"]),
        arguments=tuple(name for name in head["variables"] if name not in head["own"]),
        formats=tuple((since, name) for since, name in head["formats"]),
        rendered=tuple(rendered),
    )


def run_apart(
    module: str, case: Mapping[str, Any], count: int
) -> tuple[tuple[str, ...], list[dict[str, Any]]]:
    """Have a module that does ``fence.serve`` answer a case, which has its limits, in a process of its own.

    Returns what is not installed there, and ``count`` answers. It may run code that says anything: an answer that is
    no object in JSON is left out, or empty. For one that it did not get to, an ``error`` says how it ended. If it has not
    ended within ``_PATIENCE`` times its seconds by the clock, it is killed, and has computed for too long.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            code = subprocess.run(
                own_process.command(module),
                input=json.dumps(case).encode(),
                stdout=out,
                stderr=errors,
                timeout=_PATIENCE * case["seconds"],
                check=False,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name == "TZ"},
            ).returncode
        except subprocess.TimeoutExpired:
            code = -signal.SIGXCPU
        lines: list[dict[str, Any]] = []
        out.seek(0)
        for line in out.read().split(b"\n")[:-1]:
            with contextlib.suppress(ValueError):
                read = json_of(line)
                lines.append(read if isinstance(read, dict) else {})
        errors.seek(0)
        complaint = errors.read(limits.STDERR).decode("utf-8", "replace")
    head, *answers = lines or [{}]
    end = head.get("error") or _how_it_ended(module, case, code, complaint)
    answers += [{"error": end}, *[{"error": "not tried again"}] * count]
    return tuple(head.get("missing", ())), answers[:count]


def _how_it_ended(module: str, case: Mapping[str, Any], code: int, complaint: str) -> str:
    if code in {-signal.SIGXCPU, -signal.SIGKILL}:
        return f"it takes more than {case['seconds']}"
    if code == -signal.SIGXFSZ:
        return f"it prints more than {case['output']}"
    if code < 0:
        return f"the process that ran it died of {signal.Signals(-code).name}"
    if "MemoryError" in complaint:
        return f"it needs more than {case['memory']} of memory"
    if code and module == SANDBOX:  # which runs nothing but templates
        raise RuntimeError(f"the sandbox: {complaint}")
    return "it ended too early"
