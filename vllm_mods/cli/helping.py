"""``vllm-mods doctor``, ``explain`` and ``completion``: what helps with the others."""

import difflib

import click
from click.shell_completion import get_completion_class

from vllm_mods.api.access import Access
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import main, options
from vllm_mods.report import words
from vllm_mods.report.reply import Reply


@click.command(name="doctor")
@options.option(
    "--target TREE",
    "The tree to examine: a folder, image:REF, … [the active environment's vLLM].",
    envvar=options.TARGET,
)
@options.access
@options.json_output
def doctor(target: str | None, access: Access) -> Reply:
    """Examine this installation and a vLLM tree, and report what is wrong with them.

    Nothing is written, and vLLM is not imported. Exit code 0 if nothing is wrong, else 1.
    """
    from vllm_mods.diagnosis.checks import examine  # noqa: PLC0415  (not needed with `--help`)
    from vllm_mods.report import doctor as report  # noqa: PLC0415

    return report.examined(examine(target, access.open))


def _complete_words(_context: click.Context, _parameter: click.Parameter, typed: str) -> list[str]:
    known = (entry.word for entry in (*words.endings(), *words.findings()))
    return [word for word in known if word.startswith(typed)]


@click.command(name="explain")
@click.argument("word", metavar="VERDICT|CODE", shell_complete=_complete_words)
@options.json_output
def explain(word: str) -> Reply:
    """Explain a verdict, an exit code, a kind of error or the code of a finding, and say what to do next.

    A finding ends with its code, in brackets. For an error, give the `code` that --json prints.
    """
    endings = {entry.word: entry for entry in words.endings()}
    known = {entry.word: entry for entry in words.findings()} | endings
    if (entry := known.get(word)) is None:
        near = difflib.get_close_matches(word, known, 1, 0.75)
        why = f"`{word}` is not known; `explain` knows the codes in brackets after findings, and: {', '.join(endings)}"
        hint = f"vllm-mods explain {near[0] if near else 'WORD  # one of these'}"
        raise UsageError(why, hint=hint)
    lines = (f"{entry.word} ({entry.kind}): {entry.meaning}", f"  {entry.follows}")
    return Reply(entry._asdict(), "\n".join(lines[: 1 + bool(entry.follows)]), next_step=entry.next)


@click.command(name="completion")
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the shell code that completes vllm-mods commands.

    The shell then completes commands, options, mods, pairings, files and folders.
    """
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (click has all three)
    click.echo(kind(main, {}, "vllm-mods", "_VLLM_MODS_COMPLETE").source())
