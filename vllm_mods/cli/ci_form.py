"""``--format`` of ``check`` and ``lint``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import manner

TEXT = "text"
option = manner.option(
    "--format",
    "How to print it: for a person, or for a CI.",
    "form",
    type=click.Choice((TEXT, "github", "sarif", "junit")),
    default=TEXT,
    show_default=True,
)


def check_one_form(form: str, *, as_json: bool) -> None:
    """Raise ``UsageError`` for two forms at once."""
    if as_json and form != TEXT:
        raise UsageError(
            f"--json and --format {form} are two answers, and stdout has room for one",
            hint="take one of them away",
        )
