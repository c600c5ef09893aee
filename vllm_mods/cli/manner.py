"""How every command speaks: options that stand before a command or behind it, and what no command hands on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

_COLORS = {"auto": None, "always": True, "never": False}
Declared = Callable[[Callable[..., Any]], Callable[..., Any]]
"""What declares options of a command."""


def option(spelled: str, said: str, name: str | None = None, **more: Any) -> Declared:  # noqa: ANN401
    """Declare an option as its help has it: ``--lock FILE`` takes a value, ``--check`` is a flag.

    ``name`` is what the command calls it; ``more`` is for ``click.option``.
    """
    word, _, metavar = spelled.partition(" ")
    if metavar:
        more["metavar"] = metavar
    elif "type" not in more:
        more["is_flag"] = True
    return click.option(*filter(None, (word, name)), help=said, **more)


def kept(spelled: str, said: str, name: str | None = None, **more: Any) -> Declared:  # noqa: ANN401
    """Declare an option that is no argument of the command: ``given`` tells whoever needs it."""

    def keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
        context.meta[f"vllm_mods.{parameter.name}"] = value

    return option(spelled, said, name, expose_value=False, callback=keep, **more)


def given(name: str) -> Any:  # noqa: ANN401  (as its option reads it)
    """Return the value of such an option, None where the command has none of that name."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"vllm_mods.{name}")


json_output = kept("--json", "One JSON object on stdout.", "as_json")
offline = kept("--offline", "Use only what is cached; open no connection.")


def as_json() -> bool:
    """Tell whether the answer is to be JSON."""
    return bool(given("as_json"))


def is_offline() -> bool:
    """Tell whether no connection may be opened."""
    return bool(given("offline"))


def _heed(context: click.Context, parameter: click.Parameter, value: Any) -> None:  # noqa: ANN401
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
    said = "Say nothing on stderr but what is wrong."
    quiet = click.Option(["-q", "--quiet"], is_flag=True, help=said, **how)
    said = "Of an error, show where it comes from."
    verbose = click.Option(["-v", "--verbose"], is_flag=True, help=said, **how)
    said = "Colours [auto: on a terminal, unless $NO_COLOR; also with $FORCE_COLOR]."
    colors = click.Choice(list(_COLORS))
    return [quiet, verbose, click.Option(["--color"], type=colors, help=said, **how)]


def accept(command: click.Command) -> None:
    """Have a command, and those below it, take these options too."""
    if not any("--quiet" in one.opts for one in command.params):
        command.params += options(hidden=True)
        for one in command.commands.values() if isinstance(command, click.Group) else ():
            accept(one)


def speak() -> None:
    """Say what comes next, however quiet this run is to be: it is an error."""
    vars(sys.stderr)["quiet"] = False
