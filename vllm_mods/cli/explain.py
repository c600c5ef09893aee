"""``vllm-mods explain``."""

from __future__ import annotations

import difflib
import inspect
import re

import click

from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.cli import answers, main, manner
from vllm_mods.report import words


def exit_codes() -> dict[str, str]:
    """Return what ``vllm-mods --help`` says of each exit code."""
    told = re.search(r"Exit codes: (.*?)\.\s*\Z", inspect.cleandoc(main.help or ""), re.DOTALL)
    if told is None:
        raise ValueError("`vllm-mods --help` does not list the exit codes any more")
    return dict(part.split(" ", 1) for part in " ".join(told[1].split()).split("; "))


@click.command(name="explain")
@click.argument("word", metavar="VERDICT|CODE")
@manner.json_output
def command(word: str) -> int:
    """Say what a verdict, an exit code, a kind of error or the code of a finding means, and what to do next.

    The kind of an error is its `code` under --json; the code of a finding stands in brackets behind it.
    """
    ends = {one.word: one for one in words.known(exit_codes())}
    known = ends if word in ends else {one.word: one for one in words.findings()} | ends
    one = known.get(word)
    if one is None:
        near = difflib.get_close_matches(word, known, 1)
        raise UsageError(
            f"{word} is no verdict, exit code or kind of error, and no table of the docs has it as a finding's code; the former are: {', '.join(ends)}",
            hint=f"vllm-mods explain {near[0] if near else next(iter(known))}",
        )
    lines = [f"{one.word} ({one.kind}): {one.meaning}"]
    lines += [f"  {one.follows}"] if one.follows else []
    return answers.answer(one._asdict(), "\n".join(lines), next_step=one.next)
    click.echo(f"{one.word} ({one.kind}): {one.meaning}")
    if one.follows:
        click.echo(f"  {one.follows}")
    answers.hint(one.next)
    return EXIT_OK
