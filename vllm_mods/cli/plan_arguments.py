"""What ``check``, ``diff`` and ``apply`` share: which mods are meant, and on what terms they go in."""

from __future__ import annotations

import click

from vllm_mods.api.libraries import Chosen
from vllm_mods.base.model import Plan
from vllm_mods.cli import answers, options
from vllm_mods.cli.manner import option
from vllm_mods.formats.pairing import advice

declared = options.all_of(
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
