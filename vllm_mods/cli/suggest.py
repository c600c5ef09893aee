"""``vllm-mods suggest``."""

from __future__ import annotations

import click

from vllm_mods.api.apply import plan
from vllm_mods.checkpoints.fitting import suggest
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.report import checkpoint as report
from vllm_mods.report import data, text


@click.command(name="suggest")
@click.argument("model")
@option("--revision REV", "A commit, tag or branch of it on the Hub [main].")
@option(
    "--target TREE", "Tell whether these mods go in there too: a folder, pypi:VERSION, image:REF, …"
)
@options.libraries
@manner.offline
@manner.json_output
def command(model: str, revision: str | None, target: str | None) -> int:
    """Tell which mods, chat template and pairing a model needs.

    MODEL is a folder or an id on the Hub (HF_ENDPOINT). Its config.json and the headers of its safetensors
    are read, no weights. With --target, exit code 1 if one of these mods would not go in.
    """
    library = options.open_library()
    one = open_checkpoint(model, revision)
    mods = {name: library.load(name) for name in library.names()}
    paired = [library.pairing(name) for name in library.pairing_names()]
    own = ((each, library.select(library.mods_of(each))) for each in paired)
    found = suggest(one, mods.values(), own)
    answer = report.suggestion_data(one, found)
    said = report.suggestion_text(one, found)
    ok = True
    chosen = [fit.name for fit in (*found.mods, *found.templates[:1])]
    if target is not None and chosen:
        tree = options.open_tree(target)
        planned = plan(library.select(chosen), tree)
        ok = planned.ok
        answer["plan"] = data.plan(planned)
        said = f"{said}\n\n{text.plan(planned, answers.paint)}"
    return answers.answer({**answer, "ok": ok}, said, ok=ok)
