"""``vllm-mods list``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from vllm_mods.base.errors import EXIT_OK, EXIT_USAGE, DiffError, ManifestError
from vllm_mods.base.model import Mod
from vllm_mods.base.versions import joined
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.formats import diff
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.toml_table import BUNDLED
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.report import data

T = TypeVar("T")
_OF_PAIRING = ("name", "summary", "model", "base", "vllm", "mods", "templates", "topology")


@click.command(name="list")
@option("--check", "Read every patch too, and print only what is faulty.")
@options.libraries
@manner.json_output
def command(*, check: bool) -> int:
    """List the mods that can be applied and the pairings, bundled ones and those of --library."""
    library = options.open_library()
    faults: list[ManifestError] = []
    named = dict(readable(library.names(), lambda name: (name, library.load(name)), faults))
    mods = tuple(named.values())
    if check:
        faults += filter(None, map(_faulty_patches, mods))
    pairings = dict(
        readable(library.pairing_names(), lambda name: (name, library.pairing(name)), faults)
    )
    answer = {
        "mods": [{**_mod_data(mod), "library": library.owner(mod.directory)} for mod in mods],
        "pairings": [
            {
                **data.fields(pairing, *_OF_PAIRING),
                "file": library.pairing_file(name),
                "library": library.owner(library.pairing_file(name)),
            }
            for name, pairing in pairings.items()
        ],
        "faulty": [data.fault(one) for one in faults],
    }
    lines = _mod_lines(named, library) or ["there are no mods"]
    if pairings:
        lines += ["", "pairings", *_pairing_lines([*pairings.values()])]
    answers.answer(answer, None if check else "\n".join(lines))
    return told(faults)


def told(faults: Iterable[ManifestError]) -> int:
    """Say on stderr what could not be loaded, and return the exit code for that."""
    code = EXIT_OK
    for fault in faults:
        click.echo(f"error: {fault.message}", err=True)
        code = EXIT_USAGE
    return code


def readable(
    names: Iterable[str], load: Callable[[str], T], faults: list[ManifestError]
) -> list[T]:
    """Load what can be loaded; add to ``faults`` why the rest cannot."""
    found = []
    for name in names:
        try:
            found.append(load(name))
        except ManifestError as error:
            faults.append(error)
    return found


def _faulty_patches(mod: Mod) -> ManifestError | None:
    """Return what is wrong with a mod's patches, the first fault of each, if anything is."""
    problems = []
    for patch in dict.fromkeys(patch for variant in mod.variants for patch in variant.patches):
        try:
            diff.parse(patch.data, patch.source, root=patch.root)
        except DiffError as error:
            problems.append(error.message)
    return ManifestError(mod.directory, tuple(problems)) if problems else None


def _mod_data(mod: Mod) -> dict[str, Any]:
    """Return what the list has of a mod."""
    return {
        **data.fields(mod, "name", "version", "summary", "default"),
        "vllm": [variant.vllm for variant in mod.variants],
        "directory": mod.directory,
    }


def _mod_lines(mods: Mapping[str, Mod], library: Library) -> list[str]:
    """Return two lines per mod, by the name that it has among all: what it is, and whose."""
    width = max(map(len, mods), default=0)
    lines = []
    for name, mod in mods.items():
        ranges = "; ".join(joined(variant.vllm for variant in mod.variants))
        owner = library.owner(mod.directory)
        whose = f"library {owner or root_of(mod)}" if owner != BUNDLED else "comes with vllm-mods"
        mark = " [default]" if mod.default else ""
        lines.append(f"{name.ljust(width)}  {mod.version}  {mod.summary}{mark}")
        lines.append(f"{' ' * width}  vLLM {ranges}; {whose}")
    return lines


def _pairing_lines(pairings: Sequence[Pairing]) -> list[str]:
    """Return two lines per pairing."""
    width = max((len(pairing.name) for pairing in pairings), default=0)
    lines = []
    for pairing in pairings:
        parts = ", ".join((*pairing.mods, *pairing.templates)) or "no mods"
        lines.append(f"{pairing.name.ljust(width)}  {pairing.summary}")
        lines.append(f"{' ' * width}  {pairing.model} with {parts}")
    return lines
