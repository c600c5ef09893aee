"""``vllm-mods suggest`` and ``serve-check``: what a model needs, and whether vLLM takes a command."""

import shlex
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.serve_check import serve_check
from vllm_mods.api.suggest import suggest
from vllm_mods.cli import answers, options
from vllm_mods.cli.options import option
from vllm_mods.report import checkpoint
from vllm_mods.report import serve as report
from vllm_mods.report.reply import Reply


@click.command(name="suggest")
@click.argument("model")
@option("--revision REV", "A commit, tag or branch of it on the Hub [main].")
@option(
    "--target TREE", "Tell whether these mods go in there too: a folder, pypi:VERSION, image:REF, …"
)
@options.where_served
@options.library
@options.access
@options.json_output
def suggest_command(target: str | None, access: Access, **given: Any) -> Reply:
    """Tell which mods, chat template and pairing a model needs.

    MODEL is a folder or an id on the Hub (HF_ENDPOINT). Its config.json and the headers of its safetensors
    are read, no weights. With --target, exit code 1 if one of these mods would not go in.
    """
    result = suggest(tree=None if target is None else access.open(target), **given)
    return checkpoint.suggested(result, answers.paint)


@click.command(name="serve-check")
@click.argument("words", nargs=-1, metavar="[PAIRING | -- vllm serve …]")
@option("--command TEXT", "A command line instead of a pairing's, as text.")
@option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the pairing's vLLM].",
)
@option("--vllm SPEC", "All these releases, such as '>=0.19'.")
@options.library
@options.access
@options.json_output
def serve_check_command(words: tuple[str, ...], command: str | None, **given: Any) -> Reply:
    """Hold a serve command against the vLLM it will run on.

    PAIRING's command, environment, templates and mods, or a command alone: behind --, or --command.
    Flags, values, keys of JSON and variables are read from the tree's source; vLLM is not imported.
    With --vllm, a matrix over releases. Exit code 0 if nothing is wrong.
    """
    if len(words) > 1 and command is None:
        words, command = (), shlex.join(words)
    if len(words) > 1:
        raise click.UsageError("a command stands behind -- and in --command: give one of them")
    return report.checked(serve_check(pairing=next(iter(words), None), command=command, **given))
