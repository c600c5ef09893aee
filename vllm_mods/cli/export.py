"""``vllm-mods export MOD|PAIRING``."""

import click

from vllm_mods.api.export import export_mod, export_recipe
from vllm_mods.api.run import plan_service
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, options
from vllm_mods.cli.containers import starting
from vllm_mods.cli.named_files import write_new
from vllm_mods.cli.options import option
from vllm_mods.library.catalog import Library
from vllm_mods.report import text
from vllm_mods.report.reply import Reply, notes
from vllm_mods.running import files
from vllm_mods.running.service import StartOptions

_RECIPE, _COMPOSE = "recipe", "compose"


@click.command(name="export")
@click.argument("what", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@option("--output PATH", "For MOD, the new folder; for PAIRING, the new file [standard output].")
@options.form("The format of a pairing's file.", (_RECIPE, _COMPOSE))
@starting
@options.library
@options.json_output
def command(
    what: str, library: Library, *, output: str | None, form: str, start: StartOptions
) -> Reply:
    """Write a mod as a folder that spark-vllm-docker and other launchers can run, or a pairing as a recipe or a compose file.

    The mod's folder has a run.sh that applies the mod with vllm-mods. If vllm-mods is not installed, run.sh installs it from
    the wheel in the folder. A launcher makes the pairing's serve command from the recipe. The compose file starts the pairing's image, on each of two nodes if the pairing is for a cluster. The options from --restart to --lock affect only the compose file.
    """
    if form == _RECIPE and start != StartOptions():
        why = "the options from --restart to --lock are for a compose file only"
        raise UsageError(why, hint=f"--format {_COMPOSE}")
    if not library.has(what) and not library.has_pairing(what):
        raise library.unknown(what)
    if not library.has(what):
        return _export_pairing(library, what, form, start, output)
    if form != _RECIPE:
        raise UsageError(f"{what} is a mod; compose files are for pairings", hint="name a pairing")
    if library.has_pairing(what):
        raise UsageError(f"`{what}` names both a mod and a pairing", hint="rename one of them")
    if output is None:
        raise UsageError("to export a mod, name its new folder", hint=f"--output mods/{what}")
    names, remarks = export_mod(library, what, output)
    words = f"wrote {output}: {text.counted(len(names), 'file')}; name it in a recipe as {output}"
    return Reply({"mod": what, "folder": output, "files": names}, words, stderr=notes(remarks))


def _export_pairing(
    library: Library, name: str, form: str, start: StartOptions, output: str | None
) -> Reply:
    if form == _RECIPE:
        written, remarks = export_recipe(library, name)
    else:
        planned = plan_service(library, name, start, note=answers.note, elsewhere=True)
        written, remarks = files.compose(planned.service), []
    if output is not None:
        write_new(output, written.encode())
    data = {"pairing": name, "format": form, "file": output, "text": written}
    return Reply(data, written if output is None else None, stderr=notes(remarks), is_file=True)
