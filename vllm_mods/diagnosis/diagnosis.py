"""What the doctor found: of the installation, and of a tree."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.base.tree import Tree
from vllm_mods.diagnosis.listing import Listed
from vllm_mods.diagnosis.tool import Tool
from vllm_mods.formats.receipt import Receipt


class Trouble(NamedTuple):
    """One thing that is wrong (``ERROR``) or good to know (``NOTE``), and what to do about it."""

    code: FindingCode
    message: str
    hint: str | None = None
    level: Level = Level.ERROR


class Examined(NamedTuple):
    """The tree that was asked about, and the list of its files, if it has one."""

    tree: Tree
    kind: str
    version: str | None
    receipt: Receipt | None
    listed: Listed | None


class Diagnosis(NamedTuple):
    """Everything. ``elsewhere`` are trees that were found while none was named."""

    tool: Tool
    target: Examined | None
    elsewhere: tuple[str, ...]
    troubles: tuple[Trouble, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not any(one.level is Level.ERROR for one in self.troubles)
