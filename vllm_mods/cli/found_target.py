"""The vLLM that a command is for where none is named: the active environment's, if there is exactly one."""

from __future__ import annotations

import os

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.doctor import environments, search


def found() -> str:
    """Return the site root to take, and say so on stderr. Raises ``UsageError`` for none and for several."""
    path = click.get_current_context().command_path
    there = search.active(os.environ)
    if len(there) == 1:
        click.echo(f"note: --target {there[0]}: the vLLM of the active environment", err=True)
        return there[0]
    if there:
        raise UsageError(
            f"no --target is named, and there are several vLLMs: {', '.join(there)}",
            hint=f"{path} --target {there[0]}  # or set VLLM_MODS_TARGET",
        )
    others = [one.root for one in environments.found(os.environ)]
    more = f"; there is one in {' and in '.join(others)}" if others else ""
    raise UsageError(
        f"no --target is named, and the active environment has no vLLM{more}",
        hint=f"{path} --target {others[0] if others else 'TREE'}  # or set VLLM_MODS_TARGET",
    )
