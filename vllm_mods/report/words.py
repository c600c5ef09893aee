"""What the words and numbers mean that commands end with, and what to do next: for a terminal and for the docs."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base import errors
from vllm_mods.base.model import Verdict
from vllm_mods.library.mod_folder import data_root
from vllm_mods.report.text import MEANING

_PORT = "vllm-mods port MOD --to TREE --library DIR"
NEXT = {
    Verdict.APPLIES: "vllm-mods apply MOD --target DIR",
    Verdict.MOVED: "vllm-mods apply MOD --target DIR",
    Verdict.APPLIED: "vllm-mods verify MOD --target DIR",
    Verdict.UPSTREAM: "leave the mod out; vllm-mods upstream MOD",
    Verdict.CONFLICT: _PORT,
    Verdict.MISPLACED: _PORT,
    Verdict.UNFIT: f"vllm-mods check MOD --target TREE --explain; {_PORT}",
    Verdict.MISSING: _PORT,
    Verdict.PARTIAL: "vllm-mods doctor --target DIR, and install vLLM again as it says",
    Verdict.UNSUPPORTED: f"vllm-mods matrix MOD for what it is meant for; {_PORT}",
    Verdict.UNREADABLE: "vllm-mods doctor --target TREE",
}

PAGES = {
    "check": "fit.md",
    "serve-check": "serve-check.md",
    "lint": "making.md",
    "matrix": "matrix-answers.md",
    "doctor": "doctor.md",
}
"""The pages of the docs with a table of the codes that a command finds; the package brings them."""
_TABLE = re.compile(r"^\| code \|.*\n\| --- \|.*\n((?:\|.*\n)+)", re.MULTILINE)
_ROW = re.compile(r"^\| (`[^|]*`) \| (.*) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


class Explained(NamedTuple):
    """A word or number that a command ends with: what kind it is of, what it means, what follows, what to do."""

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


def known(exit_codes: dict[str, str]) -> Iterator[Explained]:
    """Yield every verdict, exit code (with its meaning) and kind of error."""
    for verdict in Verdict:
        follows = f"`apply` {does(verdict)}; `check` exits with {0 if verdict.ok else 1}"
        yield Explained(verdict.value, "verdict", MEANING[verdict], follows, NEXT[verdict])
    for number, meaning in exit_codes.items():
        kinds = [name for name, kind in _errors().items() if str(kind.exit_code) == number]
        follows = f"errors: {', '.join(kinds)}" if kinds else ""
        yield Explained(number, "exit code", meaning, follows)
    for name, kind in _errors().items():
        said = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
        yield Explained(name, "error", " ".join(said.split()), f"exit code {kind.exit_code}")


def findings() -> Iterator[Explained]:
    """Yield the codes of findings as the docs' tables have them. Raises ``OSError`` where the docs are missing."""
    for command, page in PAGES.items():
        with open(os.path.join(data_root(), "docs", page), encoding="utf-8") as file:
            text = file.read()
        for names, said in (row for table in _TABLE.findall(text) for row in _ROW.findall(table)):
            meaning = _LINK.sub(r"\1", said.replace("\\|", "|"))
            together = f"{names}: " if "," in names else ""
            for code in re.findall(r"`([^`]+)`", names):
                yield Explained(
                    code, f"finding of {command}", f"{together}{meaning}", f"docs/{page}"
                )


def _errors() -> dict[str, type[errors.VllmModsError]]:
    every = [one for one in vars(errors).values() if isinstance(one, type)]
    return {one.code: one for one in every if issubclass(one, errors.VllmModsError)}
