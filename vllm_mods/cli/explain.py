"""``vllm-mods explain``."""

from __future__ import annotations

import difflib

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers
from vllm_mods.report import words
from vllm_mods.report.reply import Reply


@click.command(name="explain")
@click.argument("word", metavar="VERDICT|CODE")
@answers.json_output
def command(word: str) -> Reply:
    """Say what a verdict, an exit code, a kind of error or the code of a finding means, and what to do next.

    The kind of an error is its `code` under --json; the code of a finding stands in brackets behind it.
    """
    endings = {entry.word: entry for entry in words.endings()}
    known = {entry.word: entry for entry in words.findings()} | endings
    entry = known.get(word)
    if entry is None:
        near = difflib.get_close_matches(word, known, 1)
        raise UsageError(
            f"{word} is no verdict, exit code, kind of error or code of a finding; the first three are: {', '.join(endings)}",
            hint=f"vllm-mods explain {near[0] if near else next(iter(endings))}",
        )
    lines = [f"{entry.word} ({entry.kind}): {entry.meaning}"]
    lines += [f"  {entry.follows}"] if entry.follows else []
    return Reply(entry._asdict(), "\n".join(lines), next_step=entry.next)
