"""What is wrong with a serve command, piece by piece."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.base.model import Level
from vllm_mods.serve.values import ValueProblem


class ServeFault(NamedTuple):
    """One finding. ``subject`` is the flag, variable or mod; ``near`` what was probably meant."""

    code: str
    subject: str
    message: str
    near: str = ""
    level: Level = Level.ERROR


def fault_of(subject: str, one: ValueProblem) -> ServeFault:
    """Return what is wrong with a value as a fault of its flag or variable."""
    level = Level.NOTE if one.note else Level.ERROR
    return ServeFault(one.code, subject, one.message, one.near, level)


def note(code: str, subject: str, message: str) -> ServeFault:
    """Return what is only to be known."""
    return ServeFault(code, subject, message, level=Level.NOTE)
