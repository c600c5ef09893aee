"""How every command speaks: options that stand before a command or behind it, and what no command hands on."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import click

_COLORS = {"auto": None, "always": True, "never": False}


def _set_quiet(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        vars(sys.stderr)["quiet"] = True


def _set_verbose(context: click.Context, _parameter: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value and context.obj is not None:
        context.obj["verbose"] = True


def _set_color(_context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        for stream in (sys.stdout, sys.stderr):
            vars(stream)["color"] = _COLORS[value]


def _option(*names: str, hidden: bool, **more: object) -> click.Option:
    return click.Option([*names], expose_value=False, hidden=hidden, **more)  # type: ignore[arg-type]


def options(*, hidden: bool) -> list[click.Option]:
    """Return the options, to be shown in the help of the program and accepted by each command."""
    return [
        _option(
            *("-q", "--quiet"),
            hidden=hidden,
            is_flag=True,
            callback=_set_quiet,
            help="Say nothing on stderr but what is wrong.",
        ),
        _option(
            *("-v", "--verbose"),
            hidden=hidden,
            is_flag=True,
            callback=_set_verbose,
            help="Of an error, show where it comes from.",
        ),
        _option(
            "--color",
            hidden=hidden,
            type=click.Choice(list(_COLORS)),
            callback=_set_color,
            help="Colours [auto: on a terminal, unless $NO_COLOR; also with $FORCE_COLOR].",
        ),
    ]


def accept(command: click.Command) -> None:
    """Have a command, and those below it, take these options too."""
    if not any("--quiet" in one.opts for one in command.params):
        command.params += options(hidden=True)
        for one in command.commands.values() if isinstance(command, click.Group) else ():
            accept(one)


def speak() -> None:
    """Say what comes next, however quiet this run is to be: it is an error."""
    vars(sys.stderr)["quiet"] = False


def kept(*names: str, **more: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:  # noqa: ANN401
    """Declare an option that is no argument of the command: ``given`` tells whoever needs it."""

    def keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
        context.meta[f"vllm_mods.{parameter.name}"] = value

    return click.option(*names, expose_value=False, callback=keep, **more)


def given(name: str) -> Any:  # noqa: ANN401  (as its option reads it)
    """Return the value of such an option, None where the command has none of that name."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"vllm_mods.{name}")


json_output = kept("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
offline = kept("--offline", is_flag=True, help="Use only what is cached; open no connection.")


def as_json() -> bool:
    """Tell whether the answer is to be JSON."""
    return bool(given("as_json"))


def is_offline() -> bool:
    """Tell whether no connection may be opened."""
    return bool(given("offline"))
