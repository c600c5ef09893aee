"""How a run ends that has no answer: what is said of it, and where."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import NamedTuple

import click

from vllm_mods.cli import manner, terminal


class Failure(NamedTuple):
    """What ends a command that has no answer. ``code`` names the kind of error."""

    code: str
    message: str
    hint: str | None
    exit_code: int


def print_error(failure: Failure) -> None:
    """Print on stdout, for who asked for JSON, one object all the same."""
    from vllm_mods.report import data  # noqa: PLC0415  (where an answer is expected)

    try:
        click.echo(json.dumps(data.error(*failure), indent=2))
        sys.stdout.flush()
    except OSError:  # nobody reads it
        drop_output()


def drop_output() -> None:
    """Let what was not written of the answer go, and whatever would still come."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def complain(message: str, hint: str | None = None) -> None:
    """Say on stderr what is wrong, where and why, and what to do next.

    Where that cannot be written either, the exit code has to do.
    """
    manner.speak()
    error, next_ = "error:", "hint:"
    if terminal.colored(err=True):
        error, next_ = (
            terminal.styled(error, fg="red", bold=True),
            terminal.styled(next_, fg="cyan"),
        )
    with contextlib.suppress(OSError):
        if sys.stderr.isatty():
            terminal.steer("\r\033[K")  # what showed the progress ends here
        click.echo(f"{error} {message}", err=True)
        if hint:
            click.echo(f"\n{next_} {hint}", err=True)
