"""``vllm-mods`` alone: the vLLMs that are found without starting anything, what is in them, what to do next."""

from __future__ import annotations

import os
import shlex

import click

from vllm_mods.api import apply
from vllm_mods.base.errors import VllmModsError
from vllm_mods.cli import options
from vllm_mods.doctor import search
from vllm_mods.report import text

_ELSEWHERE = """\
no vLLM is in the active environment, and VLLM_MODS_TARGET names none
  of a release:  vllm-mods check --target pypi:VERSION
  of an image:   vllm-mods check --target image:REF
  of a folder:   vllm-mods check --target DIR"""


def show() -> None:
    """Print one screen: each vLLM with its mods, and the next command."""
    named = os.environ.get(options.TARGET)
    there = (named,) if named else search.active(os.environ) or search.elsewhere(os.environ)
    hints = [hint for hint in map(_tree, there) if hint]
    if not there:
        click.echo(_ELSEWHERE)
    click.echo("\nvllm-mods --help lists the commands; vllm-mods list, the mods and pairings")
    options.hint(hints[0] if hints else "vllm-mods list")


def _tree(place: str) -> str | None:
    """Print what is in a vLLM; return the command that comes next."""
    where = shlex.quote(place)
    try:
        there = apply.status(place)
    except VllmModsError as error:  # a tree that is no folder, or is damaged, is not all there is
        click.echo(f"{place}\n  {error.message}")
        return f"vllm-mods doctor --target {where}"
    click.echo(text.tree_name(there.version, place))
    for entry in there.mods:
        click.echo(f"  {entry.name} {entry.version}{text.STANDING[there.standing(entry)]}")
    if not there.mods:
        click.echo("  no mods are in")
        return f"vllm-mods doctor --target {where}  # which mods fit"
    return there.hint or f"vllm-mods verify --target {where}"
