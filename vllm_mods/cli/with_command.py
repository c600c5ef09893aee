"""``vllm-mods with MOD... -- COMMAND...``."""

import os
import signal

import click

from vllm_mods.api.libraries import choose
from vllm_mods.applying.shadow import shadow
from vllm_mods.base.errors import UsageError, system_errors
from vllm_mods.cli import answers, options
from vllm_mods.cli.apply import announce
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.running.interpreter import check_import


class Split(click.Command):
    """Keeps what is behind ``--`` as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]


@click.command(name="with", cls=Split)
@options.mods
@options.pairing
@options.library
@options.target_folder
def command(mods: tuple[str, ...], pairing: str | None, library: Library, target: str) -> None:
    """Run COMMAND with mods in a copy of vLLM; the installed one is only read.

    MOD is the name of a mod, the folder of one, or a patch. The copy is in the cache, and comes first on
    PYTHONPATH. COMMAND is not run if its Python would import another vLLM. With neither MOD nor --pairing: all
    bundled mods that `vllm-mods list` marks as [default]. The exit code is that of COMMAND.
    """
    words: list[str] = click.get_current_context().meta["command"]
    if not words:
        raise UsageError(
            "there is no command to run", hint="vllm-mods with MOD -- vllm serve MODEL"
        )
    chosen = choose(library, mods, pairing)
    if pairing is not None:
        trust.demand_pairing(library, pairing)
    with shadow(chosen.mods, target, planned=lambda plan: announce(plan, chosen)) as copy:
        for note in (*copy.notes, *check_import(words, copy.root, copy.of, copy.environ)):
            answers.note(note)
        titles = ", ".join(mod_plan.mod.title for mod_plan in copy.plan.mods)
        answers.note(f"{titles} in {copy.root}")
        os.set_inheritable(copy.lock, True)  # the command keeps the copy in use
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
        with system_errors(UsageError, words[0]):
            os.execvpe(words[0], words, copy.environ)  # noqa: S606  (what was asked for)
