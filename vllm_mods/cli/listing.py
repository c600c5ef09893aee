"""``vllm-mods list`` and ``show``: which mods and pairings there are, and one of them whole."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import click

from vllm_mods.base.errors import EXIT_OK, EXIT_USAGE, DiffError, ManifestError, UsageError
from vllm_mods.base.model import Mod, Variant
from vllm_mods.base.versions import joined
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.formats import diff
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.schema import BUNDLED
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.report import data
from vllm_mods.report.columns import columns


@click.command(name="show")
@click.argument("name", metavar="MOD|PAIRING", shell_complete=options.complete_names)
@options.libraries
@manner.json_output
def show(name: str, libraries: LibraryArguments, *, as_json: bool) -> int:
    """Show one mod or pairing: what it changes and needs, or what is served and how."""
    library = libraries.open()
    if not library.has_pairing(name):
        mod = library.load(name)
        answer, lines = of_mod(mod), _shown_mod(mod)
    elif library.has(name):
        raise UsageError(
            f"`{name}` is the name of a mod and of a pairing, {library.pairing_file(name)}",
            hint="rename the pairing: its file, and `name` in it",
        )
    else:
        pairing = library.pairing(name)
        file = library.pairing_file(name)
        answer, lines = _of_pairing(pairing, file), _shown_pairing(pairing, file)
    return answers.answer(answer, "\n".join(lines), as_json=as_json)


def of_mod(mod: Mod) -> dict[str, Any]:
    """Return a mod with its variants and the files that they touch."""
    return {
        "schema": 1,
        **data.fields(mod, "name", "version", "summary", "license", "default", "directory"),
        **data.fields(mod, "digest", "requires", "conflicts", "after"),
        "upstream": {"status": mod.upstream_status, "issues": list(mod.upstream_issues)},
        "evidence": dict(mod.evidence),
        "env": dict(mod.env),
        "files": [data.fields(file, "path", "source", "mode") for file in mod.files],
        **data.fields(mod, "serve_args", "compute_capability", "outside"),
        "when": [
            {"config": dict(one.config), "tensors": dict(one.tensors), "fails": one.fails}
            for one in mod.when
        ],
        "variants": [
            {
                "id": variant.id,
                "vllm": variant.vllm,
                "package": variant.package or None,
                "package_version": variant.package_version or None,
                "files": touched(mod, variant),
                "python": list(variant.python),
            }
            for variant in mod.variants
        ],
    }


def touched(mod: Mod, variant: Variant) -> list[str]:
    """Return the paths of the files that a variant changes or brings."""
    paths = [
        file.path
        for patch in variant.patches
        for file in diff.parse(patch.data, f"{mod.directory}/{patch.source}", root=patch.root)
    ]
    paths += [one.path for one in variant.replace]
    paths += [file.path for file in variant.overlay]
    paths += [file.path for file in variant.binary]
    paths += [f"<workspace>/{file.file}" for file in variant.templates]
    return list(dict.fromkeys(paths))


def _shown_mod(mod: Mod) -> list[str]:
    """Return what there is to say of a mod, for a person."""
    lines = [
        f"{mod.name} {mod.version}: {mod.summary}",
        f"  licence     {mod.license}",
        f"  folder      {mod.directory}",
    ]
    lines += aligned(
        ("upstream", " ".join((mod.upstream_status, *mod.upstream_issues))),
        ("requires", ", ".join(mod.requires)),
        ("conflicts", ", ".join(mod.conflicts)),
        ("after", ", ".join(mod.after)),
        *(("evidence", f"{kind}: {text}") for kind, text in mod.evidence),
        ("serve with", shlex.join(mod.serve_args)),
        *(("variable", f"{name}={shlex.quote(value)}") for name, value in mod.env),
        ("GPU", ", ".join(mod.compute_capability)),
        ("outside", ", ".join(mod.outside)),
        ("in images", ", ".join(file.path for file in mod.files)),
        *(("models", ", ".join(key for key, _ in (*one.config, *one.tensors))) for one in mod.when),
    )
    for variant in mod.variants:
        lines.append(f"  variant {variant.id} for vLLM {variant.meant}")
        lines += [f"    {path}" for path in touched(mod, variant)]
        lines += [f"    needs {requirement}" for requirement in variant.python]
    return lines


def _of_pairing(pairing: Pairing, file: str) -> dict[str, Any]:
    """Return a pairing with its command as a template, filled in, and as the words of it."""
    return {
        "schema": 1,
        "kind": "pairing",
        **data.fields(pairing, "name", "summary"),
        "file": file,
        "digest": pairings.digest(pairing),
        **data.fields(pairing, "model", "revision", "base", "vllm", "topology", "mods"),
        **data.fields(pairing, "templates", "defaults", "env", "command"),
        "rendered": pairings.rendered(pairing),
        "arguments": list(pairings.arguments(pairing)),
        "recipe": None if pairing.recipe is None else pairing.recipe.name,
    }


def _shown_pairing(pairing: Pairing, file: str) -> list[str]:
    """Return what there is to say of a pairing, for a person; the command last."""
    return [
        f"{pairing.name}: {pairing.summary}",
        *aligned(
            ("file", file),
            ("model", " at ".join(filter(None, (pairing.model, pairing.revision)))),
            ("image", pairing.base),
            ("vLLM", pairing.vllm or ""),
            ("mods", ", ".join(pairing.mods)),
            ("templates", ", ".join(pairing.templates)),
            ("nodes", {"solo": "one", "cluster": "several"}.get(pairing.topology, "")),
            ("recipe", pairing.recipe.name if pairing.recipe else ""),
        ),
        *pairings.serve_script(pairing, {}).split("\n"),
    ]


def aligned(*pairs: tuple[str, str]) -> list[str]:
    """Return a line for each pair that has a value."""
    return [f"  {key.ljust(11)} {value}" for key, value in pairs if value]


T = TypeVar("T")
_OF_PAIRING = ("name", "summary", "model", "base", "vllm", "mods", "templates", "topology")


@click.command(name="list")
@option("--check", "Read every patch too, and print only what is faulty.")
@options.libraries
@manner.json_output
def list_(libraries: LibraryArguments, *, check: bool, as_json: bool) -> int:
    """List the mods that can be applied and the pairings, bundled ones and those of --library."""
    library = libraries.open()
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
    answers.answer(answer, None if check else "\n".join(lines), as_json=as_json)
    return print_faults(faults)


def print_faults(faults: Iterable[ManifestError]) -> int:
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
    rows = []
    for name, mod in mods.items():
        ranges = "; ".join(joined(variant.vllm for variant in mod.variants))
        owner = library.owner(mod.directory)
        whose = f"library {owner or root_of(mod)}" if owner != BUNDLED else "comes with vllm-mods"
        mark = " [default]" if mod.default else ""
        rows += [(name, f"{mod.version}  {mod.summary}{mark}"), ("", f"vLLM {ranges}; {whose}")]
    return columns(rows)


def _pairing_lines(pairings: Sequence[Pairing]) -> list[str]:
    """Return two lines per pairing."""
    rows = []
    for pairing in pairings:
        parts = ", ".join((*pairing.mods, *pairing.templates)) or "no mods"
        rows += [(pairing.name, pairing.summary), ("", f"{pairing.model} with {parts}")]
    return columns(rows)
