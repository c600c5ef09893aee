"""``vllm-mods import PATH``."""

import functools
import os
from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.import_mod import ImportTerms, import_mod, import_recipe, is_mod
from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, named_files, new, options
from vllm_mods.cli.options import option
from vllm_mods.formats import pairing as pairings
from vllm_mods.library.catalog import Library
from vllm_mods.report import imported as report
from vllm_mods.report.reply import Reply

_of_mods = options.grouped(
    "terms",
    ImportTerms,
    options.others,
    option("--fetch", "Of a mod: take what its script asks for by https, once."),
    new.recorded,
    option(
        "--vllm SPEC",
        "Of a mod: the range that it states; without --tree and --image, the releases to run its script on.",
    ),
    option("--license SPDX", "Of a mod: its licence."),
    option("--summary TEXT", "Of a mod: what it is for."),
    option(
        "--image REF",
        "Of a mod: run its script in a container of this image, which holds a vLLM.",
    ),
    option(
        "--tree TREE",
        "Of a mod: the vLLM that it was written for; a script is run on a copy of it.",
    ),
)


@click.command(name="import")
@click.argument("path", metavar="PATH", type=click.Path())
@option("--output FILE", "Write the pairing to a new file.")
@option("--library DIR", "Write it to DIR/pairings/NAME.toml; a mod to DIR/patches/NAME.", "folder")
@option("--name NAME", "What to call it [the recipe's or the folder's name].")
@option("--mod PATH=NAME", "The mod that a path in the recipe stands for.", "mods", multiple=True)
@_of_mods
@options.access
@options.json_output
def command(
    path: str,
    folder: str | None,
    terms: ImportTerms,
    access: Access,
    **of_recipes: Any,
) -> Reply:
    """Make a pairing of a recipe, or a mod of a launcher's mod folder or zip.

    Without --output and --library the pairing, or the mod's manifest, is printed. The run.sh of a mod is run: on a
    copy of --tree, in bubblewrap, or in a container of --image, apart from this machine. What it changed becomes
    the mod, planned on that vLLM. A mod that vllm-mods made needs no running. Exit code 1 if a recipe
    says something that the pairing does not do; 2 if it cannot be read; 3 if what a script does is no mod.
    """
    if terms.fetch and access.offline:
        raise UsageError(
            "--fetch takes from the network, and --offline forbids it", hint="give one"
        )
    if not is_mod(path):
        if any((terms.tree, terms.image, terms.summary, terms.license, terms.vllm, terms.others)):
            raise UsageError(
                f"{path} is no mod, and --tree, --image, --with, --summary, --license and --vllm are for mods",
                hint="a mod is a folder or a zip with a run.sh; of a Dockerfile's image: "
                "vllm-mods new NAME --from-trees image:BASE image:BUILT",
            )
        return _import_recipe(path, folder, terms.name, **of_recipes)
    if any(of_recipes.values()):
        raise UsageError(
            f"{path} is a mod, and --output and --mod are for recipes",
            hint="--library DIR writes a mod to DIR/patches/NAME",
        )
    progress = functools.partial(answers.show_line, last=False)
    mod = import_mod(path, terms, library=folder, progress=progress, access=access)
    return report.mod(mod, path)


def _import_recipe(
    path: str, folder: str | None, name: str | None, output: str | None, mods: tuple[str, ...]
) -> Reply:
    if output and folder:
        raise UsageError("--output and --library both say where the pairing goes", hint="give one")
    with named_files.opened(path) as file:
        data = file.read(limits.RECIPE + 1)
    # an empty folder becomes a library by what is written to it
    is_new = folder is not None and os.path.isdir(folder) and not os.listdir(folder)
    library = options.open_libraries((folder,) if folder and not is_new else ())
    result = import_recipe(library, data, path, name=name, mods=dict(map(_mod_by_path, mods)))
    if folder:
        output = _place_in(folder, result.pairing.name, library)
    if output:
        named_files.write_new(output, pairings.dump(result.pairing))
    return report.recipe(result, path, output)


def _place_in(folder: str, name: str, library: Library) -> str:
    if name in library.pairing_names():
        raise UsageError(
            f"there is a pairing named `{name}`: {library.pairing_file(name)}",
            hint="give this one another name with --name",
        )
    place = os.path.join(folder, "pairings")
    try:
        os.makedirs(place, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{place} cannot be made: {error.strerror}") from error
    return os.path.join(place, f"{name}.toml")


def _mod_by_path(text: str) -> tuple[str, str]:
    path, equals, name = text.rpartition("=")
    if not (path and equals and name):
        raise UsageError(
            f"--mod {text} is not PATH=NAME", hint="--mod mods/fix-template=qwen3.5-enhanced"
        )
    return path, name
