"""``vllm-mods with MOD... -- COMMAND...``, and ``bench A B -- COMMAND...``."""

import functools
import json
import os
import signal
from typing import Any

import click

from vllm_mods.api import bench
from vllm_mods.api.libraries import Chosen, choose
from vllm_mods.applying.shadow import shadow
from vllm_mods.base.errors import UsageError, system_errors
from vllm_mods.cli import answers, named_files, options
from vllm_mods.cli.apply import announce
from vllm_mods.cli.options import option
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.report import bench as report
from vllm_mods.report.reply import Reply
from vllm_mods.running.benched_start import BenchLoad
from vllm_mods.running.interpreter import check_import
from vllm_mods.running.recording import begin_record, check_record

_RAY = "/tmp/ray/ray_current_cluster"  # noqa: S108
"""Where Ray finds a cluster without RAY_ADDRESS; one that the command starts has its environment."""


class _Split(click.Command):
    """Keeps what is behind ``--`` as it is."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta["command"] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "--", "COMMAND..."]


@click.command(name="with", cls=_Split)
@options.mods
@options.pairing
@options.library
@options.target_copied
@option("--record FILE", "Record in FILE which functions of mods ran; see `evidence --record`.")
def command(
    mods: tuple[str, ...], pairing: str | None, library: Library, target: str, record: str | None
) -> None:
    """Run COMMAND on a copy of vLLM with mods; the installed vLLM is only read.

    MOD is the name of a mod, the folder of a mod, or a patch. With neither MOD nor --pairing, use the bundled mods that
    `vllm-mods list` marks as [default]. The copy is in the cache and comes first on PYTHONPATH. With `--target pypi:VERSION`,
    pip unpacks that release into the cache. COMMAND is run only if its Python would import the copy.
    The exit code is that of COMMAND.
    """
    words: list[str] = click.get_current_context().meta["command"]
    if not words:
        raise UsageError("there is no command to run", hint="vllm-mods with MOD -- COMMAND")
    chosen = choose(library, mods, pairing)
    if pairing is not None:
        trust.demand_pairing(library, pairing)
    with shadow(chosen.mods, target, planned=lambda plan: announce(plan, chosen)) as copy:
        environ = copy.environ
        unsure = check_import(words, copy.root, copy.of, environ)
        if record is not None:
            environ = begin_record(record, copy)
            if not check_import(words, copy.root, copy.of, environ):
                check_record(record, words[0])
        for note in (*copy.notes, *unsure):
            answers.note(note)
        if "RAY_ADDRESS" in environ or os.path.exists(_RAY):
            added = {name: text for name, text in environ.items() if os.environ.get(name) != text}
            what = f"the copy, and runtime_env={json.dumps({'env_vars': added})}"
            answers.note(f"the workers of a Ray cluster that already runs need {what}")
        answers.note(f"{', '.join(one.mod.title for one in copy.plan.mods)} in {copy.root}")
        os.set_inheritable(copy.lock, True)  # the command keeps the copy in use
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it, and so would the command
        with system_errors(UsageError, words[0]):
            os.execvpe(words[0], words, environ)  # noqa: S606  (what was asked for)


_MANY: Any = {"multiple": True, "default": (512,)}
_number = functools.partial(option, type=click.IntRange(1))
_load = options.grouped(
    "load",
    BenchLoad,
    option("--seed N", "The random seed of the prompts [0].", type=int, default=0),
    _number("--concurrency N", "Prompts that are sent at the same time [1].", default=1),
    _number("--prompts N", "How many prompts of each length [16].", default=16),
    _number("--output-length N", "Tokens in each answer, 2 or more [128].", default=128),
    _number(
        "--input-length N", "Tokens in each prompt [512]; repeatable.", "input_lengths", **_MANY
    ),
)


@click.command(name="bench", cls=_Split)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@_number("--starts N", "The number of starts of each side [4].", default=4)
@_load
@option("--output DIR", "The folder for numbers and logs.", default="bench", show_default=True)
@options.library
@options.target_folder
@options.json_output
def bench_command(a: str, b: str, library: Library, target: str, **given: Any) -> Reply:
    """Compare vLLM servers with mods and without, on this machine.

    A and B are `plain` (no mods), names of mods joined by commas, or a pairing. `bench` starts COMMAND several times, in the order A B B A, each time on a copy of vLLM
    with the mods of that side. Without COMMAND, it starts the command of each pairing. An unpatched `vllm bench serve` sends the
    same prompts to every server; results are not counted before two rounds in a row are about as fast.
    Each result is an interval for B divided by A. If the interval does not contain 1, A and B differ (95 % confidence for all results together).
    DIR/bench.html shows each start. If a bench was stopped, the same command continues it.
    """
    words: list[str] = click.get_current_context().meta["command"]
    first, second = (_side(library, side) for side in (a, b))
    given["pairings"] = first.pairing, second.pairing
    result = bench.bench(first.mods, second.mods, words, target, note=answers.note, **given)
    reply = report.compared(result)
    named_files.write(f"{given['output']}/bench.html", report.page(result, reply).encode())
    return reply


def _side(library: Library, side: str) -> Chosen:
    if side == bench.PLAIN:
        return Chosen((), None)
    if not library.has(side) and library.has_pairing(side):
        trust.demand_pairing(library, side)
        return choose(library, (), side)
    return choose(library, side.split(","), None)
