"""``vllm-mods run`` and ``ps``: containers that serve."""

from __future__ import annotations

import shlex

import click

from vllm_mods.api import serve_command
from vllm_mods.api.access import open_image
from vllm_mods.base import limits
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, Refused, TreeError, UsageError
from vllm_mods.cli import answers, options
from vllm_mods.cli.evidence import mods_of, print_evidence
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.cli.serving import Asked, asked, serving
from vllm_mods.running import engine, evidence, service, waiting
from vllm_mods.running.service import LOCK_LABEL, PAIRING_LABEL, StartOptions


@click.command(name="run")
@options.pairing_name
@click.argument("arguments", nargs=-1, metavar="[-- ARGUMENT...]")
@serving
@option("--engine", "[what has the image].", "program", type=click.Choice(engine.PROGRAMS))
@option("--env-file FILE", "Secrets: HF_TOKEN=….", "env_files", multiple=True)
@option("--print", "Print the line; start nothing.", "shown")
@option("--wait", "Until it serves; then tell whether the mods' code ran.")
@options.libraries
def run(
    name: str,
    arguments: tuple[str, ...],
    libraries: LibraryArguments,
    *,
    program: str | None,
    env_files: tuple[str, ...],
    shown: bool,
    wait: bool,
    given: StartOptions,
) -> int:
    """Start a pairing's image as a container that serves.

    The image is the one that `build` made of the pairing's lock, in docker or podman. ARGUMENTs come
    behind the command in it; what the vLLM in it would not take is refused, as by serve-check.
    `ps` lists what this started; its log and its end are the engine's: `docker logs NAME`, `docker stop NAME`.
    """
    library = libraries.open()
    found = asked(library, name, arguments, given)
    if found.service.cluster:
        raise UsageError(
            f"{name} is for a cluster: each of its nodes starts a container of its own",
            hint=f"vllm-mods export {name} --format compose",
        )
    if shown:
        first = program or next(iter(engine.found()), engine.PROGRAMS[0])
        click.echo(shlex.join(service.line(first, found.service, env_files=env_files)))
        return EXIT_OK
    chosen = _with_image(found, program)
    _check(found, chosen)
    one = found.service
    identity = engine.start(service.line(chosen, one, env_files=env_files), one.name)
    click.echo(f"{one.name}: {chosen} {identity[:12]}, http://localhost:{one.port}")
    if not wait:
        answers.hint(engine.log_command(chosen, one.name))
        return EXIT_OK
    waiting.wait(one, chosen)
    there = engine.container(one.name, chosen)
    seen = evidence.of_mods(mods_of(library, (name,)), engine.log(there)[: limits.LOG])
    return print_evidence(seen, as_json=False)


def _check(found: Asked, program: str) -> None:
    """Raise ``Refused`` if the vLLM in the image, mods and all, would not take its command with what comes behind it."""
    one = found.service
    of_lock = serve_command.of_script(one.command, f"the command of {one.image}", "vllm-mods ps")
    asked = of_lock._replace(argv=(*of_lock.argv, *one.arguments), name=one.pairing)
    reference = f"image:{program}:{one.image}"
    try:
        tree = open_image(options.open_access(), reference, in_image=f"/{found.site_root}")
    except (TreeError, UsageError) as error:
        answers.note(f"the command is not checked: {error.message}")
        return
    serve_command.demand(asked, tree, note=answers.note)


def _with_image(found: Asked, program: str | None) -> str:
    """Return the engine that has the image; it has to be the one of the lock."""
    image = found.service.image
    for one in engine.installed(program):
        labels = engine.labels(one, image)
        if labels is None:
            continue
        if labels.get(LOCK_LABEL) != found.lock:
            raise Refused(
                f"{one} has {image}, and it is not of this lock ({labels.get(LOCK_LABEL) or 'of none'}); "
                "nothing was started",
                hint=f"vllm-mods build {found.wanted.name}",
            )
        return one
    raise UsageError(
        f"{' and '.join(engine.installed(program))}: no image {image}",
        hint=f"vllm-mods build {found.wanted.name}",
    )


_TABLE = "table {{.Names}}\t{{.Image}}\t{{.Status}}"


@click.command(name="ps")
def ps() -> int:
    """List the containers that `run` started, as docker and podman list them."""
    arguments = ("ps", "--all", "--filter", f"label={PAIRING_LABEL}", "--format", _TABLE)
    programs = engine.installed()
    codes = [engine.shown(program, arguments) for program in programs]
    commands = (
        f"{engine.log_command(one, 'NAME')}; {engine.stop_command(one, 'NAME')}" for one in programs
    )
    answers.hint("; ".join(commands))
    return EXIT_NO if any(codes) else EXIT_OK
