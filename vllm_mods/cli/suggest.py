"""``vllm-mods suggest``."""

from __future__ import annotations

from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.suggest import suggest
from vllm_mods.cli import answers, options
from vllm_mods.cli.options import option
from vllm_mods.report import checkpoint as report
from vllm_mods.report.reply import Reply


@click.command(name="suggest")
@click.argument("model")
@option("--revision REV", "A commit, tag or branch of it on the Hub [main].")
@option(
    "--target TREE", "Tell whether these mods go in there too: a folder, pypi:VERSION, image:REF, …"
)
@options.library
@options.access
@options.json_output
def command(target: str | None, access: Access, **given: Any) -> Reply:
    """Tell which mods, chat template and pairing a model needs.

    MODEL is a folder or an id on the Hub (HF_ENDPOINT). Its config.json and the headers of its safetensors
    are read, no weights. With --target, exit code 1 if one of these mods would not go in.
    """
    result = suggest(tree=None if target is None else access.open(target), **given)
    return report.suggested(result, answers.paint)
