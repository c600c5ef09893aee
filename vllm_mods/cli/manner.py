"""How every command speaks: options that stand before a command or behind it, and what no command hands on."""

from __future__ import annotations

import functools
import sys
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
    """Have the shell complete a file or a folder."""
    from click.shell_completion import CompletionItem  # noqa: PLC0415  (when a shell asks)

    return [CompletionItem(typed, type=kind)]


json_flag = option("--json", "One JSON object on stdout.", "as_json")


def _heed(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not value:
        return
    if parameter.name == "verbose" and context.obj is not None:
        context.obj["verbose"] = True
    elif parameter.name == "quiet":
        vars(sys.stderr)["quiet"] = True


def options(*, hidden: bool) -> list[click.Option]:
    """Return the options, to be shown in the help of the program and accepted by each command."""
    how: dict[str, Any] = {"expose_value": False, "hidden": hidden, "callback": _heed}
    text = "Say nothing on stderr but what is wrong."
    quiet = click.Option(["-q", "--quiet"], is_flag=True, help=text, **how)
    text = "Of an error, show where it comes from."
    verbose = click.Option(["-v", "--verbose"], is_flag=True, help=text, **how)
    return [quiet, verbose]


def accept(command: click.Command) -> None:
    """Have a command, and those below it, take these options too."""
    if not any("--quiet" in one.opts for one in command.params):
        command.params += options(hidden=True)
        for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
            accept(subcommand)


def speak() -> None:
    """Say what comes next, however quiet this run is to be: it is an error."""
    vars(sys.stderr)["quiet"] = False
