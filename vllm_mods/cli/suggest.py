"""``vllm-mods suggest``."""

from __future__ import annotations

import click

from vllm_mods.api.apply import plan
from vllm_mods.base.errors import EXIT_NO, EXIT_OK
from vllm_mods.checkpoints.fitting import suggest
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.cli import options
from vllm_mods.report import checkpoint as report
from vllm_mods.report import data, text


@click.command(name="suggest")
@click.argument("model")
@click.option("--revision", metavar="REV", help="A commit, tag or branch of it on the Hub [main].")
@click.option(
    "--target",
    metavar="TREE",
    help="Tell whether these mods go in there too: a folder, pypi:VERSION, image:REF, …",
)
@options.libraries
@options.offline
@options.json_output
def command(
    model: str,
    revision: str | None,
    target: str | None,
    libraries: tuple[str, ...],
    *,
    offline: bool,
    as_json: bool,
) -> int:
    """Tell which mods, chat template and pairing a model needs.

    MODEL is a folder or an id on the Hub (HF_ENDPOINT). Its config.json and the headers of its safetensors
    are read, no weights. With --target, exit code 1 if one of these mods would not go in.
    """
    library = options.open_library(libraries)
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
        tree = options.open_tree(target, offline=offline)
        planned = plan(library.select(chosen), tree)
        ok = planned.ok
        answer["plan"] = data.plan(planned)
        said = f"{said}\n\n{text.plan(planned, options.paint)}"
    if as_json:
        options.print_json({**answer, "ok": ok})
    else:
        click.echo(said)
    return EXIT_OK if ok else EXIT_NO
