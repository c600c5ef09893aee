"""``vllm-mods import PATH``."""

import os

import click

from vllm_mods.api.access import Access
from vllm_mods.api.import_mod import ImportTerms, import_mod, import_recipe, is_mod
from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError, refusing_to_write
from vllm_mods.cli import answers, named_files, new, options
from vllm_mods.cli.options import option
from vllm_mods.formats import pairing as pairings
from vllm_mods.making.recording import Limits
from vllm_mods.report import imported as report
from vllm_mods.report.reply import Reply

_of_mods = options.grouped(
    "terms",
    ImportTerms,
    options.others,
    option("--fetch", "For a mod: let its run.sh download each https URL once."),
    new.recorded("run.sh"),
    option(
        "--vllm SPEC",
        "For a mod: its version range. Without --tree and --image, run.sh is run on each release in the range.",
    ),
    option("--license SPDX", "For a mod: its licence."),
    option("--summary TEXT", "For a mod: its summary."),
    option(
        "--image REF",
        "For a mod: run its run.sh in a container of this image, which must contain vLLM. Several --image make one mod for all of these images.",
        "images",
        multiple=True,
    ),
    option("--tree TREE", "For a mod: the vLLM that its run.sh was written for and runs on."),
)


@click.command(name="import")
@click.argument("path", metavar="PATH", type=click.Path())
@option("--library DIR", "Write to DIR/pairings/NAME.toml, or a mod to DIR/patches/NAME.", "folder")
@option("--name NAME", "The new name [the recipe's or the folder's name].")
@option("--mod PATH=NAME", "Your mod NAME replaces the recipe's mod PATH.", "mods", multiple=True)
@_of_mods
@options.access
@options.json_output
def command(
    path: str, folder: str | None, mods: tuple[str, ...], terms: ImportTerms, access: Access
) -> Reply:
    """Turn a launcher's recipe into a pairing, or a launcher's script that patches vLLM into a mod.

    PATH is a recipe of spark-vllm-docker (YAML), or the folder or zip of a launcher's mod, which has a run.sh.
    Without --library, the pairing or the new mod.toml is only printed. The run.sh runs in a sandbox: bubblewrap with a copy of --tree, or a container of --image. Its changes become the mod, which is then checked on that vLLM. A run.sh that `vllm-mods export` wrote is read, not run.
    Exit code 1 if the pairing lacks something that the recipe has, or if a call listed with --each fails. Exit code 2 if PATH cannot be read, 3 if run.sh makes no mod.
    """
    if terms.fetch and access.offline:
        raise UsageError("--fetch needs the network, but --offline forbids that", hint="omit one")
    if not is_mod(path):
        if os.path.exists(path):
            hint = "a mod is a folder or a zip with a run.sh; for the image of a Dockerfile: vllm-mods new NAME --from-trees image:BASE image:BUILT"
            names = {*ImportTerms._fields, *Limits._fields} - {"name"}
            options.refuse_beside(f"{path}, which is not a mod", names, hint)
        return _import_recipe(path, folder, terms.name, mods)
    if mods:
        why = f"--mod is for recipes, and {path} is a mod"
        raise UsageError(why, hint="omit --mod; --library DIR writes a mod to DIR/patches/NAME")
    mod = import_mod(path, terms, library=folder, progress=answers.show_line, access=access)
    return report.mod(mod, path)


def _import_recipe(path: str, folder: str | None, name: str | None, mods: tuple[str, ...]) -> Reply:
    data = named_files.read(path, limits.RECIPE)
    # an empty folder becomes a library by what is written to it
    is_new = folder is not None and os.path.isdir(folder) and not os.listdir(folder)
    library = options.open_libraries((folder,) if folder and not is_new else ())
    result = import_recipe(library, data, path, name=name, mods=dict(map(_mod_by_path, mods)))
    output = None
    if folder:
        own = result.pairing.name
        output = os.path.join(folder, "pairings", f"{own}.toml")
        if own in library.pairing_names():
            why = f"there is a pairing named `{own}`: {library.pairing_file(own)}"
            raise UsageError(why, hint="--name NAME gives the new pairing another name")
        with refusing_to_write(output):
            os.makedirs(os.path.dirname(output), exist_ok=True)
        named_files.write_new(output, pairings.dump(result.pairing))
    return report.recipe(result, path, output)


def _mod_by_path(text: str) -> tuple[str, str]:
    path, equals, name = text.rpartition("=")
    if not (path and equals and name):
        raise UsageError(f"--mod {text} is not PATH=NAME", hint="--mod mods/fix=qwen3.5-enhanced")
    return path, name
