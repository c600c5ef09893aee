"""``vllm-mods suggest``."""

from __future__ import annotations

import click

from vllm_mods.api.access import Access
from vllm_mods.api.suggest import suggest
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.report import checkpoint as report
from vllm_mods.report import data, text


@click.command(name="suggest")
@click.argument("model")
@option("--revision REV", "A commit, tag or branch of it on the Hub [main].")
@option(
    "--target TREE", "Tell whether these mods go in there too: a folder, pypi:VERSION, image:REF, …"
)
@options.libraries
@options.access
@manner.json_output
def command(
    model: str,
    revision: str | None,
    target: str | None,
    libraries: LibraryArguments,
    access: Access,
    *,
    as_json: bool,
) -> int:
    """Tell which mods, chat template and pairing a model needs.

    MODEL is a folder or an id on the Hub (HF_ENDPOINT). Its config.json and the headers of its safetensors
    are read, no weights. With --target, exit code 1 if one of these mods would not go in.
    """
    library = libraries.open()
    tree = None if target is None else access.open(target)
    result = suggest(library, model, revision=revision, tree=tree)
    answer = report.suggestion_data(result.checkpoint, result.suggestion)
    words = report.suggestion_text(result.checkpoint, result.suggestion)
    if result.plan is not None:
        answer["plan"] = data.plan(result.plan)
        words = f"{words}\n\n{text.plan(result.plan, answers.paint)}"
    return answers.answer({**answer, "ok": result.ok}, words, as_json=as_json, ok=result.ok)
