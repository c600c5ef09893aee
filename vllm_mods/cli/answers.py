"""What a command prints: its answer, as JSON or in words, and on stderr what happened on the way."""

import json
import os
import sys

import click

from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.base.model import Verdict
from vllm_mods.cli import kept_options, terminal
from vllm_mods.formats.schema import encode
from vllm_mods.report.data import SCHEMA
from vllm_mods.report.reply import Reply

BEGIN = "\r\033[K"
"""Goes to the beginning of a terminal's line, and empties it."""


def print_reply(reply: Reply, *, as_json: bool) -> int:
    """Print what a command answers, and return the exit code."""
    for line in reply.stderr:
        click.echo(line, err=True)
    if as_json:
        click.echo(json.dumps(encode({"schema": SCHEMA, **reply.data}), indent=2))
        click.get_current_context().obj["answered"] = True
    else:
        if reply.words is not None:
            (terminal.file if reply.is_file else click.echo)(reply.words)
        hint(reply.next_step)
    return (EXIT_OK if reply.ok else EXIT_NO) if reply.exit_code is None else reply.exit_code


def note(text: str) -> None:
    """Tell on stderr what happened on the way."""
    click.echo(f"note: {text}", err=True)


def hint(text: str | None) -> None:
    """Say on stderr what to do next, if anything is known."""
    if text is not None:
        context = click.get_current_context(silent=True)
        arguments = context.obj["arguments"] if context else ()
        click.echo(f"\nhint: {kept_options.keep(text, arguments)}", err=True)


def paint(verdict: Verdict, words: str | None = None, *, err: bool = False) -> str:
    """Colour a verdict, or words about it, on a terminal that wants colour; the word alone says it all."""
    text = verdict.value if words is None else words
    if not terminal.colored(err=err):
        return text
    good = "green" if verdict.writes else "cyan"
    return terminal.styled(text, fg=good if verdict.ok else "red", bold=words is None)


def show_transfer(what: str, done: int, total: int | None) -> None:
    """Show on stderr how far a transfer is."""
    amount = f"{done / 1e6:.1f}" + (f" of {total / 1e6:.1f}" if total else "") + " MB"
    show_line(f"{what}: {amount}", last=total is not None and done >= total)


def show_line(text: str, *, last: bool = False) -> None:
    """Put a line of progress in place of the one before, on a terminal that can take it back; the last one goes at once."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        return
    terminal.steer(BEGIN)
    sys.stderr.write(text)
    terminal.steer(BEGIN if last else "")
    sys.stderr.flush()
