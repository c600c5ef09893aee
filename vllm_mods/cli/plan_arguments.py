"""From what was typed to mods: the part that ``check``, ``diff`` and ``apply`` share."""

from __future__ import annotations

from typing import NamedTuple

import click

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import Chosen, choose, other_packages
from vllm_mods.base.model import Plan
from vllm_mods.base.tree import Tree
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.formats.pairing import advice


class PlanArguments(NamedTuple):
    """Which mods are meant, and on what terms they go in; ``others`` is that of ``--with``."""

    mods: tuple[str, ...]
    pairing: str | None
    workspace: str | None
    strict_version: bool
    only_supported: bool
    base: str | None
    others: tuple[str, ...] = ()


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
    options.libraries,
    options.pairing,
    options.mods,
)


class ModsOnTree(NamedTuple):
    """The mods that were named, on a tree that was named."""

    chosen: Chosen
    tree: Tree


def open_both(
    asked: PlanArguments,
    libraries: LibraryArguments,
    access: Access,
    target: str,
    *,
    verify: bool = False,
    platform: str | None = None,
    in_image: str | None = None,
) -> ModsOnTree:
    """Read the mods that were named, and open the tree."""
    library = libraries.open()
    tree = access.open(
        target,
        workspace=asked.workspace,
        verify=verify,
        others=other_packages(asked.others),
        platform=platform,
        in_image=in_image,
    )
    chosen = choose(library, asked.mods, asked.pairing)
    other_packages(asked.others, chosen.mods)
    return ModsOnTree(chosen, tree)


def announce(planned: Plan, chosen: Chosen) -> None:
    """Print on stderr what is not in a plan."""
    if chosen.pairing is not None and (text := advice(chosen.pairing, planned.version)):
        answers.note(text)
    names = {one.mod.name for one in planned.mods}
    for mod in chosen.mods:
        if mod.name not in names:
            click.echo(f"left out: {mod.name} is unsupported on this tree", err=True)
