"""``--format`` and ``--json`` of ``check`` and ``lint``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.cli import manner, terminal
from vllm_mods.cli.answers import Reply

if TYPE_CHECKING:
    from vllm_mods.api.check import CheckResult
    from vllm_mods.linting.places import Linted

_TEXT = "text"


CiReply = tuple[Reply, "CheckResult | Sequence[Linted]"]
"""A reply, and the result that a CI is shown."""


def output(function: Callable[..., CiReply]) -> Callable[..., int]:
    """Declare ``--format`` and ``--json``, and print what a command answers."""

    @functools.wraps(function)
    def command(*, form: str, as_json: bool, **given: Any) -> int:
        if as_json and form != _TEXT:
            raise UsageError(
                f"--json and --format {form} are two answers, and stdout has room for one",
                hint="take one of them away",
            )
        answer, result = function(**given)
        if form == _TEXT:
            return answer.print(as_json=as_json)
        from vllm_mods.report import ci_forms  # noqa: PLC0415  (10 ms that no person asks for)

        name = click.get_current_context().info_name or ""
        terminal.file(ci_forms.render(form, name, ci_forms.subjects(result)))
        return EXIT_OK if answer.ok else EXIT_NO

    declare = manner.option(
        "--format",
        "How to print it: for a person, or for a CI.",
        "form",
        type=click.Choice((_TEXT, "github", "sarif", "junit")),
        default=_TEXT,
        show_default=True,
    )
    return declare(manner.json_flag(command))
