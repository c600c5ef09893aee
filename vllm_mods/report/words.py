"""What the words and numbers mean that commands end with, and what to do next: for a terminal and for the docs."""

import inspect
import os
import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_mods.base import errors
from vllm_mods.base.model import Verdict
from vllm_mods.report.text import MEANING

_PORT = "vllm-mods port MOD --to TREE --library DIR"
NEXT = {
    **dict.fromkeys(Verdict, _PORT),
    Verdict.APPLIES: "vllm-mods apply MOD --target DIR",
    Verdict.MOVED: "vllm-mods apply MOD --target DIR",
    Verdict.APPLIED: "vllm-mods verify MOD --target DIR",
    Verdict.UPSTREAM: "leave the mod out; `vllm-mods matrix MOD` shows the releases that have the change",
    Verdict.UNFIT: f"vllm-mods check MOD --target TREE --explain; {_PORT}",
    Verdict.PARTIAL: "vllm-mods check MOD --target DIR  # its hint says what to do",
    Verdict.UNSUPPORTED: f"{_PORT}  # `vllm-mods matrix MOD` shows the releases that the mod covers",
    Verdict.UNREADABLE: "vllm-mods doctor --target TREE",
}


class Explained(NamedTuple):
    """A verdict, exit code, error or finding: its ``kind``, ``meaning`` and consequence, and the ``next`` step."""

    word: str
    kind: str
    meaning: str
    follows: str
    next: str | None = None


def does(verdict: Verdict) -> str:
    """Say what ``apply`` does on a verdict."""
    if verdict.writes:
        return "changes the files"
    return "changes nothing, exit code 0" if verdict.ok else "refuses, exit code 3"


def endings() -> Iterator[Explained]:
    """Yield every verdict, exit code and kind of error."""
    for verdict in Verdict:
        follows = f"`apply` {does(verdict)}; `check` exits with {0 if verdict.ok else 1}"
        yield Explained(verdict.value, "verdict", MEANING[verdict], follows, NEXT[verdict])
    for number, meaning in errors.EXIT_MEANINGS.items():
        kinds = [name for name, kind in _errors().items() if kind.exit_code == number]
        follows = f"kinds of errors: {', '.join(kinds)}" if kinds else ""
        yield Explained(str(number), "exit code", meaning, follows)
    for name, kind in _errors().items():
        about = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("``", "`")
        yield Explained(name, "error", " ".join(about.split()), f"exit code {kind.exit_code}")


class CodeGroup(NamedTuple):
    """The codes of findings of some ``commands``, with their meanings and next steps; ``page`` documents them.

    ``head`` stands above their meanings.
    """

    title: str
    commands: str
    page: str
    codes: Mapping[str, str]
    next_step: str
    next: Mapping[str, str] = {}
    head: str = "means"


def code_groups() -> dict[str, CodeGroup]:
    """Return the codes of findings, by groups."""
    with open(os.path.join(os.path.dirname(__file__), "finding_codes.toml"), "rb") as file:
        return {name: CodeGroup(**group) for name, group in tomllib.load(file).items()}


def findings() -> Iterator[Explained]:
    """Yield the code of every finding."""
    for group in code_groups().values():
        for code, meaning in group.codes.items():
            next_step = group.next.get(code, group.next_step)
            yield Explained(code, f"finding of {group.commands}", meaning, "", next_step or None)


def _errors() -> dict[str, type[errors.VllmModsError]]:
    every = [one for one in vars(errors).values() if isinstance(one, type)]
    return {one.code: one for one in every if issubclass(one, errors.VllmModsError)}
