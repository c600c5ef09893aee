"""``vllm-mods suggest`` and ``serve-check``: what a model needs, and whether vLLM takes a command."""

import shlex
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.serve_check import serve_check
from vllm_mods.api.suggest import suggest
from vllm_mods.cli import answers, options
from vllm_mods.report import checkpoint, serve as report
from vllm_mods.report.reply import Reply


@click.command(name="suggest")
@click.argument("model")
@options.option("--revision REV", "The commit, tag or branch of the model on the Hub [main].")
@options.option("--target TREE", "Also check that the mods apply to this vLLM (pypi:VERSION, …).")
@options.where_served
@options.library
@options.access
@options.json_output
def suggest_command(target: str | None, access: Access, **given: Any) -> Reply:
    """Show which mods, chat template and pairing a model needs.

    MODEL is a folder, or an id on the Hugging Face Hub (or on the server of HF_ENDPOINT). `suggest` reads
    config.json and the headers of the safetensors files, not the weights. With --target, exit code 1 if a mod that the model needs does not apply, 3 if that vLLM would not load the model.
    """
    result = suggest(tree=None if target is None else access.open(target), **given)
    return checkpoint.suggested(result, answers.paint)


@click.command(name="serve-check")
@click.argument("words", nargs=-1, metavar="[PAIRING | -- vllm serve …]")
@options.option("--command TEXT", "Check this serve command instead of a pairing's.")
@options.option(
    "--target TREE",
    "A folder, pypi:VERSION, wheel:FILE, sdist:FILE, git:REPO@REV or image:REF [the pairing's vLLM].",
)
@options.option("--vllm SPEC", "Check on each vLLM release in this range, such as '>=0.19'.")
@options.library
@options.access
@options.json_output
def serve_check_command(words: tuple[str, ...], command: str | None, **given: Any) -> Reply:
    """Check whether a vLLM accepts a serve command.

    With PAIRING, check the pairing's command together with the pairing's environment, templates and mods. You can also give
    a command after -- or with --command. The accepted flags, values, JSON keys and variables are read from vLLM's source; vLLM is not imported. Exit code 0 if nothing is wrong.
    """
    text = words[0] if len(words) == 1 else shlex.join(words)
    if command is None and " " in text:
        words, command = (), text
    if len(words) > 1:
        raise click.UsageError("the command was given twice, after -- and as --command: give one")
    return report.checked(serve_check(pairing=next(iter(words), None), command=command, **given))
