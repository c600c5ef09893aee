"""How every command speaks: options that stand before a command or behind it, and what no command hands on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

_COLORS = {"auto": None, "always": True, "never": False}
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What declares options of a command."""


def option(spelled: str, text: str, name: str | None = None, **more: Any) -> Declared:
    """Declare an option as its help has it: ``--lock FILE`` takes a value, ``--check`` is a flag.

    ``name`` is what the command calls it; ``more`` is for ``click.option``.
    """
    word, _, metavar = spelled.partition(" ")
    if metavar:
        more["metavar"] = metavar
    elif "type" not in more:
        more["is_flag"] = True
    return click.option(*filter(None, (word, name)), help=text, **more)


json_flag = option("--json", "One JSON object on stdout.", "as_json")


def _heed(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if not value:
        return
    if parameter.name == "verbose" and context.obj is not None:
        context.obj["verbose"] = True
    elif parameter.name == "quiet":
        vars(sys.stderr)["quiet"] = True
    elif parameter.name == "color":
        for stream in (sys.stdout, sys.stderr):
            vars(stream)["color"] = _COLORS[value]


def options(*, hidden: bool) -> list[click.Option]:
    """Return the options, to be shown in the help of the program and accepted by each command."""
    how: dict[str, Any] = {"expose_value": False, "hidden": hidden, "callback": _heed}
    text = "Say nothing on stderr but what is wrong."
    quiet = click.Option(["-q", "--quiet"], is_flag=True, help=text, **how)
    text = "Of an error, show where it comes from."
    verbose = click.Option(["-v", "--verbose"], is_flag=True, help=text, **how)
    text = "Colours [auto: on a terminal, unless $NO_COLOR; also with $FORCE_COLOR]."
    colors = click.Choice(list(_COLORS))
    return [quiet, verbose, click.Option(["--color"], type=colors, help=text, **how)]


def accept(command: click.Command) -> None:
    """Have a command, and those below it, take these options too."""
    if not any("--quiet" in one.opts for one in command.params):
        command.params += options(hidden=True)
        for subcommand in command.commands.values() if isinstance(command, click.Group) else ():
            accept(subcommand)


def speak() -> None:
    """Say what comes next, however quiet this run is to be: it is an error."""
    vars(sys.stderr)["quiet"] = False
