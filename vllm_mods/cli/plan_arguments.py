"""From what was typed to mods: the part that ``check``, ``diff`` and ``apply`` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import click

from vllm_mods.api.libraries import Chosen
from vllm_mods.base.model import Plan
from vllm_mods.base.tree import Tree
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.formats.pairing import advice


class PlanArguments(NamedTuple):
    """Which mods are meant, and on what terms they go in."""

    mods: tuple[str, ...]
    pairing: str | None
    workspace: str | None
    strict_version: bool
    only_supported: bool
    base: str | None

    def terms(self, open_tree: Callable[[str], Tree]) -> dict[str, Any]:
        """Return the keywords of ``plan``."""
        terms = self._asdict()
        del terms["mods"], terms["pairing"]
        return {**terms, "base": open_tree(self.base) if self.base else None}


declared = options.grouped(
    "asked",
    PlanArguments,
    option("--only-supported", "Leave out, and name, mods that have no variant for this tree."),
    option("--strict-version", "Take a variant only on the vLLM versions it states."),
    option(
        "--base TREE",
        "The vLLM that the mods were made for: it tells look-alike places apart.",
    ),
    options.workspace,
    options.library,
    options.pairing,
    options.mods,
)


def announce(planned: Plan, chosen: Chosen) -> None:
    """Print on stderr what is not in a plan."""
    if chosen.pairing is not None and (text := advice(chosen.pairing, planned.version)):
        answers.note(text)
    names = {one.mod.name for one in planned.mods}
    for mod in chosen.mods:
        if mod.name not in names:
            click.echo(f"left out: {mod.name} is unsupported on this tree", err=True)
