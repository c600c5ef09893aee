"""How options are declared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLACES = {"FILE": "file", "PATH": "file", "DIR": "dir", "TREE": "dir"}
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What declares options of a command."""


def option(spelled: str, text: str, name: str | None = None, **more: Any) -> Declared:
    """Declare an option as its help has it: ``--lock FILE`` takes a value, ``--check`` is a flag.

    ``name`` is what the command calls it; ``more`` is for ``click.option``.
    """
    word, _, metavar = spelled.partition(" ")
    if metavar:
        more["metavar"] = metavar
        if kind := _PLACES.get(metavar.removesuffix("...")):
            more["shell_complete"] = functools.partial(_complete_place, kind)
    elif "type" not in more:
        more["is_flag"] = True
    return click.option(*filter(None, (word, name)), help=text, **more)


def _complete_place(
    kind: str, _context: click.Context, _parameter: click.Parameter, typed: str
) -> list[CompletionItem[str]]:
    from click.shell_completion import CompletionItem  # noqa: PLC0415  (when a shell asks)

    return [CompletionItem(typed, type=kind)]


json_flag = option("--json", "One JSON object on stdout.", "as_json")
