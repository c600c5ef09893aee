"""From what was typed to mods: the part that ``check``, ``diff`` and ``apply`` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click

from vllm_mods.api.apply import plan
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.formats.pairing import Pairing, advice
from vllm_mods.library.catalog import Library


class PlanArguments(NamedTuple):
    """Which mods are meant, and on what terms they go in; ``others`` is that of ``--with``."""

    mods: tuple[str, ...]
    pairing: str | None
    workspace: str | None
    strict_version: bool
    only_supported: bool
    others: tuple[str, ...] = ()


declared = options.grouped(
    "asked",
    PlanArguments,
    option("--only-supported", "Leave out, and name, mods that have no variant for this tree."),
    option("--strict-version", "Take a variant only on the vLLM versions it states."),
    options.workspace,
    options.libraries,
    options.pairing,
    options.mods,
)


def choose(library: Library, names: Sequence[str], pairing: Pairing | None) -> tuple[Mod, ...]:
    """Read a pairing's mods and the named ones, or without either the default ones."""
    if pairing is not None:
        return library.select((*library.mods_of(pairing), *names))
    chosen = tuple(names) or library.defaults()
    if not chosen:
        raise UsageError("no mod is named, and none is marked as default", hint="vllm-mods list")
    return library.select(chosen)


class AskedPlan(NamedTuple):
    """What was asked of a tree, and the answer; ``paired`` is the pairing that was named."""

    mods: tuple[Mod, ...]
    paired: Pairing | None
    planned: Plan


def ask(library: Library, asked: PlanArguments, tree: Tree) -> AskedPlan:
    """Plan the mods that were named, and say on stderr what is not in the plan."""
    paired = None if asked.pairing is None else library.pairing(asked.pairing)
    chosen = choose(library, asked.mods, paired)
    options.beside(asked.others, chosen)
    planned = plan(
        chosen,
        tree,
        workspace=asked.workspace,
        strict_version=asked.strict_version,
        only_supported=asked.only_supported,
    )
    told(planned, chosen, paired)
    return AskedPlan(chosen, paired, planned)


def told(planned: Plan, mods: Sequence[Mod], pairing: Pairing | None) -> None:
    """Say on stderr what is not in a plan."""
    if pairing is not None and (text := advice(pairing, planned.version)):
        answers.note(text)
    there = {one.mod.name for one in planned.mods}
    for mod in mods:
        if mod.name not in there:
            click.echo(f"left out: {mod.name} is unsupported on this tree", err=True)
