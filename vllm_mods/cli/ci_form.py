"""``--format`` and ``--json`` of ``check`` and ``lint``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner
from vllm_mods.report.reply import Reply


def output(function: Callable[..., Reply]) -> Callable[..., int]:
    """Declare ``--format`` and ``--json``, and print a command's reply, or its ``judged`` results as CI annotations."""

    @functools.wraps(function)
    def command(*, form: str, as_json: bool, **given: Any) -> int:
        if as_json and form != "text":
            raise UsageError(
                f"--json and --format {form} are two answers, and stdout has room for one",
                hint="take one of them away",
            )
        answer = function(**given)
        if form != "text":
            from vllm_mods.report.annotations import workflow_commands  # noqa: PLC0415  (10 ms)

            answer = Reply({}, workflow_commands(answer.judged), answer.ok, is_file=True)
        return answers.print_reply(answer, as_json=as_json)

    declare = manner.option(
        "--format",
        "How to print it: for a person, or as annotations for GitHub.",
        "form",
        type=click.Choice(("text", "github")),
        default="text",
        show_default=True,
    )
    return declare(manner.json_flag(command))
