"""What a port's followers ask: the trees of both sides, and a place that does not work."""

from __future__ import annotations

import ast
from typing import NamedTuple

from vllm_mods.fit.world import World
from vllm_mods.port.callers import Callers


class FailingLine(NamedTuple):
    """A line of a ported file of which fit says that it fails; ``added`` are the lines of the mod."""

    path: str
    tree: ast.Module
    line: int
    added: frozenset[int]


class Worlds:
    """The base, the target and the target with the mod's changes."""

    def __init__(self, before: World, now: World, after: World) -> None:
        self.before = before
        self.now = now
        self.after = after
        self.callers = Callers(before, now)
