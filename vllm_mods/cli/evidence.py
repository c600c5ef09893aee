"""``vllm-mods evidence``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.library.catalog import Library
from vllm_mods.running import engine, evidence
from vllm_mods.running.evidence import Evidence

_SAID = {
    evidence.RAN: "its code ran: {}",
    evidence.OTHER: "no word of it: the log has {}",
    evidence.SILENT: "no word of it in the log",
    evidence.UNTOLD: "a log does not tell; {}",
}


@click.command(name="evidence")
@click.argument(
    "names", nargs=-1, metavar="[PAIRING|MOD]...", shell_complete=options.complete_names
)
@option("--container NAME", "What this container of docker or podman said.")
@option("--log FILE", "A server's log, - for standard input.", "file")
@options.libraries
@manner.json_output
def command(
    names: tuple[str, ...],
    container: str | None,
    file: str | None,
    libraries: LibraryArguments,
    *,
    as_json: bool,
) -> int:
    """Tell whether the mods' code ran, by what a server said.

    Without a name, the mods that the container's image has. Looked for is what each mod's [evidence]
    names. Exit code 0 if nothing speaks against any of them.
    """
    if (container is None) == (file is None):
        raise UsageError(
            "whose log? name --container or --log, one of them",
            hint="docker logs NAME 2>&1 | vllm-mods evidence MOD --log -",
        )
    library = libraries.open()
    if container is not None:
        running = engine.container(container)
        label = running.labels.get("vllm-mods.mods", "")
        names = names or tuple(one.partition("@")[0] for one in label.split())
        data, where = engine.log(running), f"{running.program} logs {running.name}"
    else:
        where = file or ""
        with named_files.opened(where) as log:
            data = log.read(limits.LOG + 1)
    if not names:
        raise UsageError(
            f"{where}: which mods? the image has none of ours in it", hint="vllm-mods list"
        )
    if len(data) > limits.LOG:
        answers.note(f"{where}: only the first {limits.LOG} were looked at")
    seen = evidence.of_mods(mods_of(library, names), data[: limits.LOG])
    return print_evidence(seen, as_json=as_json)


def mods_of(library: Library, names: Sequence[str]) -> tuple[Mod, ...]:
    """Read mods, and those of pairings, by name."""
    each: Iterable[tuple[str, ...]] = (
        library.mods_of(library.pairing(name)) if library.has_pairing(name) else (name,)
        for name in names
    )
    return library.select(dict.fromkeys(name for group in each for name in group))


def print_evidence(seen: Sequence[Evidence], *, as_json: bool) -> int:
    """Print what a log says of mods, and return the exit code that it comes to."""
    ok = all(one.ok for one in seen)
    lines = []
    for one in seen:
        text = " ".join((one.text or "its manifest names no evidence").split())
        lines.append(f"{one.name}: {_SAID[one.state].format(text[:200])}")
    answer = {"ok": ok, "mods": [one._asdict() for one in seen]}
    return answers.answer(answer, "\n".join(lines), as_json=as_json, ok=ok)
