"""A Dockerfile as instructions; of ``RUN`` the script, on the lines where it stands. Nothing is run.

https://docs.docker.com/reference/dockerfile/
"""

from __future__ import annotations

import json
import re
import shlex
from typing import NamedTuple

from vllm_mods.scripts.statements import BashError

_INSTRUCTION = re.compile(r"[ \t]*([A-Za-z]+)(?:[ \t]+|$)")
_FLAG = re.compile(r"--([a-z-]+)(?:=(\S*))?[ \t]*(?:\\\n[ \t]*)?")
_HEREDOC = re.compile(r"<<(-?)([\"']?)(\w+)\2")
_DIRECTIVE = re.compile(r"#\s*escape\s*=\s*`", re.IGNORECASE)
_FIRST = re.compile(r"(?:FROM|ARG)[ \t]+\S", re.IGNORECASE)
SHELL: tuple[str, ...] = ("/bin/sh", "-c")


class Instruction(NamedTuple):
    """One instruction: its name in capitals, and what follows its flags.

    Of ``RUN``, ``text`` is the script, with as many empty lines before it as there are in the file;
    ``shell`` is what runs it.
    """

    line: int
    name: str
    text: str
    shell: tuple[str, ...] = SHELL


def is_one(text: str) -> bool:
    """Tell a Dockerfile from a script: by its first instruction."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "")
    return _FIRST.match(first) is not None


def read(text: str) -> tuple[Instruction, ...]:
    """Read a Dockerfile. Raises ``BashError`` at the first line that is none."""
    lines = text.replace("\r\n", "\n").split("\n")
    if any(map(_DIRECTIVE.match, lines[:3])):
        raise BashError(1, "a Dockerfile for Windows, with ` at the ends of lines, is not read")
    shell = SHELL
    found = []
    at = 0
    while at < len(lines):
        start, at = at, at + 1
        if not lines[start].strip() or lines[start].lstrip().startswith("#"):
            continue
        match = _INSTRUCTION.match(lines[start])
        if match is None:
            raise BashError(start + 1, "this is no instruction of a Dockerfile")
        part = [lines[start][match.end() :]]
        while part[-1].rstrip().endswith("\\") and at < len(lines):
            following = lines[at]
            empty = not following.strip() or following.lstrip().startswith("#")
            part.append("\\" if empty else following)  # it goes on behind these
            at += 1
        if part[-1] == "\\":
            part[-1] = ""
        body = _without_flags("\n".join(part))
        name = match[1].upper()
        documents = list(_HEREDOC.finditer(body)) if name in {"RUN", "COPY", "ADD"} else []
        script = [body]
        for document in documents:
            size = _size(lines[at:], document, start + 1)
            script += lines[at : at + size]
            at += size
        if name == "SHELL":
            shell = _words(body) or shell
        down = "\n" * (start + len(part) - 1 - body.count("\n"))
        text = _script(script, down) if name == "RUN" else "\n".join(script)
        found.append(Instruction(start + 1, name, text, shell))
    return tuple(found)


def _size(lines: list[str], document: re.Match[str], line: int) -> int:
    """Return how many lines a document has, its end included."""
    for i, text in enumerate(lines, 1):
        if (text.lstrip("\t") if document[1] else text) == document[3]:
            return i
    raise BashError(line, f"<<{document[3]} has no end")


def _script(script: list[str], down: str) -> str:
    """Return what ``RUN`` gives a shell: a command, a list of words, or a document alone."""
    words = _words(script[0])
    if words:
        return down + shlex.join(words)
    alone = _HEREDOC.fullmatch(script[0].strip())
    if alone is None:
        return down + "\n".join(script)
    return down + "\n" + "\n".join(script[1:-1])


def _without_flags(body: str) -> str:
    while match := _FLAG.match(body):
        body = body[match.end() :]
    return body


def _words(body: str) -> tuple[str, ...]:
    """Return the words of the form that is a list in JSON; none for another form."""
    if not body.lstrip().startswith("["):
        return ()
    try:
        found = json.loads(body.replace("\\\n", " "))
    except ValueError:
        return ()
    return tuple(map(str, found)) if isinstance(found, list) else ()
