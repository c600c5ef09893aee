"""``vllm-mods run``, ``ps`` and ``evidence``: containers that serve, and whether the mods' code ran."""

import shlex
from collections.abc import Sequence
from typing import Any

import click

from vllm_mods.api import run
from vllm_mods.api.up import UpStep, plan_up, up
from vllm_mods.base import limits
from vllm_mods.base.errors import EXIT_OK, UsageError
from vllm_mods.cli import answers, kept_options, named_files, options
from vllm_mods.cli.options import option
from vllm_mods.images import engine_command
from vllm_mods.library.catalog import Library
from vllm_mods.report import serve as report
from vllm_mods.report.reply import Reply
from vllm_mods.running import engine, service
from vllm_mods.running.recording import read_record

starting = options.grouped(
    "start",
    service.StartOptions,
    option("--lock FILE", "The pairing's lock [NAME.lock beside the pairing]."),
    option("--image REF", "The image to start [the image that `build` made]."),
    option("--name NAME", "The name of the container [the pairing's name]."),
    option("--host ADDRESS", "Host address; 0.0.0.0 for all [127.0.0.1].", default="127.0.0.1"),
    option("--port", "The port on the host [the serve command's].", type=click.IntRange(1, 65535)),
    option("--gpus WHICH", "The GPUs to use: all, none, or 0,1.", default="all", show_default=True),
    option("--shm-size SIZE", "The container's shared memory.", default="16g", show_default=True),
    option("--model-cache DIR", "The Hugging Face cache [$HF_HOME, else ~/.cache/huggingface]."),
    options.where_served,
    option(
        "--restart POLICY",
        "The container's restart policy [on-failure:3; unless-stopped once the server is ready].",
    ),
)
"""How a container is started: options of ``run``, ``up`` and ``export``."""
_server = options.all_of(
    option(
        "--engine",
        "The container engine to use [the engine that has the image].",
        "program",
        type=click.Choice(engine_command.PROGRAMS),
    ),
    option("--env-file FILE", "A file of variables (HF_TOKEN=…).", "env_files", multiple=True),
    starting,
    click.argument("arguments", nargs=-1, metavar="[-- ARGUMENT...]"),
    options.pairing_name,
)


@click.command(name="run")
@_server
@option("--print", "Only print the command; check neither the image nor ARGUMENTs.", "only_print")
@option("--replace", "First remove the container of the same name, if `run` started it.")
@option("--wait", "Wait until the server is ready, then report whether the mods' code ran.")
@option(
    "--mount", "Start the lock's base image and mount the mods' files into it; needs no `build`."
)
@option("--record FILE", "Record in FILE which functions of mods ran; see `evidence --record`.")
@options.library
@options.network
def run_command(
    pairing: str,
    arguments: tuple[str, ...],
    library: Library,
    *,
    start: service.StartOptions,
    only_print: bool,
    **given: Any,
) -> int:
    """Start a pairing's image as a container that serves.

    Docker or podman must have the image that `build` made from the pairing's lock. ARGUMENTs are appended to the
    pairing's serve command; if the vLLM of the image would reject the result, nothing is started. `vllm-mods ps` lists the containers.
    To stop one or read its log, use the engine: `docker stop NAME`, `docker logs NAME`.
    """
    if only_print and (given["mount"] or given["record"]):
        why = "--print cannot be used with --mount or --record"
        raise UsageError(why, hint="leave out --print")
    if only_print:
        planned = run.plan_service(library, pairing, start, arguments, note=answers.note).service
        run.check_single(pairing, planned)
        program = given["program"] or next(iter(engine.engines_here()), engine_command.PROGRAMS[0])
        click.echo(shlex.join(service.line(program, planned, env_files=given["env_files"])))
        return EXIT_OK
    typed = service.Typed(click.get_current_context().obj["arguments"])
    given |= {"typed": typed, "progress": _progress}
    return _tell(run.run(library, pairing, arguments, start, **given))


def _progress(seconds: int, phase: str) -> None:
    click.echo(f"{seconds:4} s  {phase}", err=True)


def _tell(started: run.StartedContainer) -> int:
    """Print where a container answers, and the evidence of its mods if it was waited for; return the exit code."""
    container = started.service
    click.echo(f"{container.name}: {started.program} {started.identity[:12]}, {container.url}")
    if started.evidence is None:
        answers.hint(engine.log_command(started.program, container.name))
        return EXIT_OK
    return answers.print_reply(report.evidence(started.evidence), as_json=False)


@click.command(name="up")
@_server
@option("--print", "Print the steps and their commands; do nothing.", "only_print")
@options.library
@options.network
def up_command(
    pairing: str,
    arguments: tuple[str, ...],
    library: Library,
    *,
    start: service.StartOptions,
    only_print: bool,
    **given: Any,
) -> int:
    """Lock, build and start a pairing, and wait until it serves.

    The steps are `lock`, `build` and `run --wait --replace`. They are printed first, and a step with nothing to do is
    skipped. The lock is written again if the pairing, its mods or its base image has changed. A container that already
    runs as planned keeps running.
    """
    words = click.get_current_context().obj["arguments"]
    typed = service.Typed(("run", *(word for word in words[1:] if word != "--print")))
    if not only_print:
        given |= {"typed": typed, "progress": _progress, "announce": _announce}
        return _tell(up(library, pairing, arguments, start, **given))
    del given["env_files"]
    steps = plan_up(library, pairing, arguments, start, **given).steps
    _announce(steps)
    at = () if start.lock is None else ("--output", start.lock)
    model = () if start.model_folder is None else ("--model-folder", start.model_folder)
    memory = () if start.device_memory is None else ("--device-memory", start.device_memory)
    commands = {
        "lock": shlex.join(("vllm-mods", "lock", pairing, *at, *model, *memory)),
        "build": shlex.join(("vllm-mods", "build", pairing, *model, *memory)),
        "run": typed.again(("--wait",), ("--replace",)),
    }
    for step in steps:
        if step.needed:
            click.echo(kept_options.keep(commands[step.command], words))
    return EXIT_OK


def _announce(steps: Sequence[UpStep]) -> None:
    for step in steps:
        click.echo(
            f"{step.command:5}  {'to do' if step.needed else 'done':5}  {step.why}", err=True
        )


@click.command(name="ps")
@options.library
@options.network
@options.json_output
def ps_command(**given: Any) -> Reply:
    """List the containers that `vllm-mods run` started, in docker and podman, and the copies of vLLM that `with` uses.

    The table shows the state, restarts, port and mods of each container, and whether the mods' code ran. Below it are the cause of each failure, and the process that uses each copy of vLLM.
    """
    return report.containers(run.list_containers(**given))


@click.command(name="evidence")
@click.argument(
    "names", nargs=-1, metavar="[PAIRING|MOD]...", shell_complete=options.complete_names
)
@option("--container NAME", "Read the log of this docker or podman container.")
@option("--log FILE", "Read this log file; - is standard input.")
@option("--record FILE", "Read a file that `run --record` or `with --record` wrote.")
@options.library
@options.network
@options.json_output
def evidence_command(
    container: str | None, log: str | None, record: str | None, **given: Any
) -> Reply:
    """Check in a server's log whether the code of the mods ran.

    Without PAIRING and MOD, check all mods of the container. `[evidence]` in a mod.toml names a text that the mod's code logs.
    `evidence` looks for that text in what the mod's code logged since the last start of the server. Exit code 0 if
    the log shows that the server became ready and that the code of each mod ran. With --record, `evidence` shows
    instead which functions of the mods were called in which process.
    """
    if container is not None and log is record is None:
        return report.evidence(run.of_container(running=engine.container(container), **given))
    if record is not None and log is container is None and not given["names"]:
        return report.recorded(read_record(named_files.read(record, limits.LOG), record))
    if log is None or container is not None or record is not None:
        why = "give one of --container, --log and --record; --record takes no PAIRING or MOD"
        raise UsageError(why, hint="docker logs NAME 2>&1 | vllm-mods evidence MOD --log -")
    with named_files.opened(log) as file:
        data = file.read(limits.LOG + 1)
    return report.evidence(run.of_log(log=data, log_name=log, **given))
