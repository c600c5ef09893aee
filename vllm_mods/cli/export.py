"""``vllm-mods export MOD|PAIRING``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator

import click

from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, manner, options, shown
from vllm_mods.cli.manner import option
from vllm_mods.cli.named_files import write_new
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.cli.serving import asked, serving
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust, writing
from vllm_mods.library.catalog import Library
from vllm_mods.making import exporting
from vllm_mods.recipes import writer
from vllm_mods.running import files
from vllm_mods.running.service import Service, StartOptions


@click.command(name="export")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@option("--output PATH", "Write a pairing to a new file [standard output], a mod to a new folder.")
@option(
    "--format",
    "What a pairing becomes.",
    "form",
    type=click.Choice(("recipe", *files.FORMATS)),
    default="recipe",
    show_default=True,
)
@serving
@options.libraries
@manner.json_output
def command(
    name: str,
    libraries: LibraryArguments,
    *,
    output: str | None,
    form: str,
    given: StartOptions,
    as_json: bool,
) -> int:
    """Write a mod as a folder that launchers run as it is, or a pairing as a recipe or as what starts its image.

    The folder's run.sh has vllm-mods apply the mod; where there is none, a wheel of it in the folder is installed. A pairing becomes a
    recipe that renders the same command; with --format, a file that starts the image of its lock, for
    a cluster on two nodes. --lock and what follows it are for these.
    """
    library = libraries.open()
    if form == "recipe":
        _refuse_unused()
    if not library.has(name):
        if as_json:
            raise UsageError(
                f"--json is for mods, and there is no mod `{name}`",
                hint="vllm-mods list",
            )
        if form == "recipe":
            return _pairing(library, name, output)
        return _started(asked(library, name, (), given).service, form, output)
    if library.has_pairing(name):
        raise UsageError(
            f"there are a mod and a pairing named `{name}`: which one is meant?",
            hint="rename one of them",
        )
    if output is None:
        raise UsageError("a mod becomes a folder: where?", hint=f"--output mods/{name}")
    mods = library.select([name])
    files = exporting.export(mods)
    writing.folder(output, files)
    os.chmod(os.path.join(output, "run.sh"), 0o755)  # noqa: S103  (it is run)
    for mod in mods:
        for line in _for_recipe(mod):
            answers.note(line)
    answer = {"mod": name, "folder": output, "files": sorted(files)}
    noun = "file" if len(files) == 1 else "files"
    words = f"wrote {output}: {len(files)} {noun}; a recipe names it as {output}"
    return answers.answer(answer, words, as_json=as_json)


def _for_recipe(mod: Mod) -> Iterator[str]:
    """Yield what a recipe has to say itself, since what a script of a mod sets ends with it."""
    for name, value in mod.env:
        yield f"{mod.name} needs {name}={shlex.quote(value)}: put it under the recipe's env"
    if mod.serve_args:
        yield f"{mod.name} needs {shlex.join(mod.serve_args)}: put it into the recipe's command"


def _refuse_unused() -> None:
    """Raise ``UsageError`` for an option that only what starts a container has a place for."""
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    for one in context.command.params:
        if one.name in StartOptions._fields and context.get_parameter_source(one.name) is typed:
            raise UsageError(
                f"{max(one.opts, key=len)} says how a container is started, and a recipe or a mod does not",
                hint=f"--format {files.FORMATS[0]}",
            )


def _started(one: Service, form: str, output: str | None) -> int:
    """Write the files that start a pairing's image: one as ``output``, several into that folder."""
    made = files.write(one, form)
    if output is None:
        shown.file("\n".join(made.values()))
        return EXIT_OK
    if len(made) > 1:
        os.makedirs(output, exist_ok=True)
    for name, text in made.items():
        place = os.path.join(output, name) if len(made) > 1 else output
        write_new(place, text.encode())
    return EXIT_OK


def _pairing(library: Library, name: str, output: str | None) -> int:
    pairing = library.pairing(name)
    trust.demand_pairing(library, name)
    held = [mod for mod in pairing.mods if library.has(mod)]
    served, brought = taken_over(pairing, library.select(held))
    for mod, said in brought:
        answers.note(f"{mod} {said}")
    text = writer.write(served)
    if output is None:
        shown.file(text)
    else:
        write_new(output, text.encode())
    known = pairing.recipe.mods if pairing.recipe else {}
    for mod in dict.fromkeys((*pairing.mods, *pairing.templates)):
        if mod not in known:
            answers.note(
                f"a launcher runs the folder mods/{mod}, which is not written: "
                f"`vllm-mods export {mod} --output mods/{mod}`, or have the image built with the mods"
            )
    return EXIT_OK
