"""``vllm-mods bench A B -- COMMAND...``."""

import signal

import click

from vllm_mods.api.bench import PLAIN, bench
from vllm_mods.api.libraries import Chosen, choose
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, options
from vllm_mods.cli.apply import announce
from vllm_mods.cli.options import option
from vllm_mods.cli.with_command import Split
from vllm_mods.library.catalog import Library
from vllm_mods.report import bench as report
from vllm_mods.report.reply import Reply
from vllm_mods.running.benched_start import BenchLoad

_COUNT = click.IntRange(1)


def _lengths(_context: object, _parameter: object, value: str) -> tuple[int, ...]:
    lengths = value.split(",")
    if not all(each.isascii() and each.isdigit() and int(each) for each in lengths):
        raise click.BadParameter(f"{value!r} is not a list of lengths, such as 512,2048")
    return tuple(dict.fromkeys(map(int, lengths)))


_load = options.grouped(
    "load",
    BenchLoad,
    option("--seed N", "The seed of the prompts.", type=int, default=0, show_default=True),
    option("--concurrency N", "Prompts at a time.", type=_COUNT, default=1, show_default=True),
    option("--prompts N", "Prompts per length.", type=_COUNT, default=16, show_default=True),
    option(
        "--output-length N",
        "Tokens per answer.",
        type=click.IntRange(2),
        default=128,
        show_default=True,
    ),
    option(
        "--input-lengths N,...",
        "Tokens per prompt.",
        default="512,2048",
        show_default=True,
        callback=_lengths,
    ),
)


@click.command(name="bench", cls=Split)
@click.argument("sides", nargs=2, metavar="A B")
@option("--starts N", "Starts of each side.", type=_COUNT, default=4, show_default=True)
@_load
@option("--output DIR", "The folder for the numbers and logs of each start [bench-A-B].")
@options.library
@options.target_folder
@options.json_output
def command(
    sides: tuple[str, str],
    starts: int,
    load: BenchLoad,
    output: str | None,
    library: Library,
    target: str,
) -> Reply:
    """Compare a vLLM server without mods and with some, on this machine.

    A and B are `plain` or mods, joined by commas. COMMAND is `vllm serve MODEL`; it is started by turns (ABBA) as
    it is and over a copy with the mods, as by `with`, and asked by `vllm bench serve` of the plain one. A call
    that was stopped goes on where it was. An interval that leaves out 1 is a difference.
    """
    words: list[str] = click.get_current_context().meta["command"]
    if not words:
        raise UsageError(
            "there is no command to run: images of pairings cannot be compared yet",
            hint=f"vllm-mods bench {' '.join(sides)} -- vllm serve MODEL",
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are ended then too
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    first, second = (
        () if side == PLAIN else choose(library, side.split(","), None).mods for side in sides
    )
    place = output or f"bench-{'-'.join(side.replace('/', '_') for side in sides)}"
    return report.compared(
        bench(
            first,
            second,
            words,
            target,
            starts=starts,
            load=load,
            output=place,
            planned=lambda plan: announce(plan, Chosen((), None)),
            note=answers.note,
            progress=lambda text: click.echo(text, err=True),
        )
    )
