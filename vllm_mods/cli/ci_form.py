"""``--format`` of ``check`` and ``lint``."""

from __future__ import annotations

import click

from vllm_mods.base.errors import UsageError

TEXT = "text"
option = click.option(
    "--format",
    "form",
    type=click.Choice((TEXT, "github", "sarif", "junit")),
    default=TEXT,
    show_default=True,
    help="How to print it: for a person, or for a CI.",
)


def alone(form: str, *, as_json: bool) -> None:
    """Raise ``UsageError`` for two forms at once."""
    if as_json and form != TEXT:
        raise UsageError(
            f"--json and --format {form} are two answers, and stdout has room for one",
            hint="take one of them away",
        )
