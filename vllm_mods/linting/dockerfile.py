"""The ``RUN`` steps of a Dockerfile as scripts. Nothing is run.

https://docs.docker.com/reference/dockerfile/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.linting import commands
from vllm_mods.linting.commands import Command

_FIRST = re.compile(r"\s*(?:#[^\n]*\s+)*(?:FROM|ARG)[ \t]+\S", re.IGNORECASE)
_RUN = re.compile(r"[ \t]*RUN[ \t]+(?:--[a-z-]+(?:=\S*)?(?:[ \t]|\\\n)+)*", re.IGNORECASE)
_DOCUMENT = re.compile(r"<<-?[\"']?(\w+)[\"']?")


class RunStep(NamedTuple):
    """One ``RUN``: its script, and the commands of that."""

    text: str
    commands: tuple[Command, ...]


def is_dockerfile(text: str) -> bool:
    """Return True if the first instruction of a text is one of a Dockerfile."""
    return _FIRST.match(text) is not None


def run_steps(text: str) -> Iterator[RunStep]:
    """Yield each ``RUN``. Raises ``ScriptError``."""
    lines = text.replace("\r\n", "\n").splitlines()
    at = 0
    while at < len(lines):
        start, row = at, lines[at]
        part = [row]
        at += 1
        while part[-1].rstrip().endswith("\\") and at < len(lines):
            passed_over = not lines[at].strip() or lines[at].lstrip().startswith("#")
            part.append("\\" if passed_over else lines[at])
            at += 1
        instruction = "\n".join(part)
        for delimiter in _DOCUMENT.findall(instruction):
            size = next((i for i, one in enumerate(lines[at:]) if one.strip() == delimiter), 0)
            part += lines[at : at + size + 1]
            at += size + 1
        if run := _RUN.match("\n".join(part)):
            script = "\n".join(part)[run.end() :] + "\n"
            line = start + 1 + run[0].count("\n")
            if _DOCUMENT.fullmatch(instruction[run.end() :].strip()):  # the document is the script
                script = "\n".join(part[1:-1]) + "\n"
                line += 1
            yield RunStep(script, commands.split(script, line))
