"""``vllm-mods import PATH``."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import click

from vllm_mods.base import limits
from vllm_mods.base.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.base.model import Level
from vllm_mods.cli import answers, import_mod, manner, named_files, new, options, shown
from vllm_mods.cli.import_mod import ImportArguments
from vllm_mods.cli.manner import option
from vllm_mods.cli.options import LibraryArguments
from vllm_mods.formats import pairing as pairings
from vllm_mods.library.catalog import Library
from vllm_mods.recipes import reader
from vllm_mods.report import data


@click.command(name="import")
@click.argument("path", metavar="PATH", type=click.Path())
@option("--output FILE", "Write the pairing to a new file.")
@option("--library DIR", "Write it to DIR/pairings/NAME.toml; a mod to DIR/patches/NAME.")
@option("--name NAME", "What to call it [the recipe's or the folder's name].")
@option("--mod PATH=NAME", "The mod that a path in the recipe stands for.", "mods", multiple=True)
@option(
    "--tree TREE", "Of a mod: the vLLM that it was written for; a script is run on a copy of it."
)
@option("--image REF", "Of a mod: run its script in a container of this image, which holds a vLLM.")
@option("--summary TEXT", "Of a mod: what it is for.")
@option("--license SPDX", "Of a mod: its licence.", "terms")
@option(
    "--vllm SPEC",
    "Of a mod: the range that it states; without --tree and --image, the releases to run its script on.",
    "spec",
)
@new.recorded
@option("--fetch", "Of a mod: take what its script asks for by https, once.")
@options.others
@options.access
@manner.json_output
def command(
    *,
    output: str | None,
    mods: tuple[str, ...],
    **given: Any,  # noqa: ANN401  (the other fields of ``ImportArguments``)
) -> int:
    """Make a pairing of a recipe, or a mod of a diff or of a launcher's mod folder or zip.

    Without --output and --library the pairing, or the mod's manifest, is printed. The run.sh of a mod is run: on a
    copy of --tree, in bubblewrap, or in a container of --image, apart from this machine. What it changed becomes
    the mod, planned on that vLLM. A diff, and a mod that vllm-mods made, need no running. Exit code 1 if a recipe
    says something that the pairing does not do; 2 if it cannot be read; 3 if what a script does is no mod.
    """
    asked = ImportArguments(**given)
    path, library = asked.path, asked.library
    if asked.fetch and asked.access.offline:
        raise UsageError(
            "--fetch takes from the network, and --offline forbids it", hint="give one"
        )
    if _is_mod(asked, recipes_only=bool(output or mods)):
        return import_mod.run(asked)
    if output and library:
        raise UsageError("--output and --library both say where the pairing goes", hint="give one")
    text = recipe_text(path)
    # an empty folder becomes a library by what is written to it
    is_new = library is not None and os.path.isdir(library) and not os.listdir(library)
    known = LibraryArguments().open(*((library,) if library and not is_new else ()))
    named = _named(mods, known)
    imported = reader.read(text, path, known=known.names(), name=asked.name, mods=named)
    pairing = imported.pairing
    if library:
        output = _place_in(library, pairing.name, known)
    manifest = pairings.dump(pairing)
    if output:
        named_files.write_new(output, manifest)
    if output is None and not asked.as_json:
        shown.file(manifest.decode())
    answer = {
        "kind": "recipe",
        "path": path,
        "ok": imported.ok,
        "name": pairing.name,
        "file": output,
        "pairing": manifest.decode(),
        "findings": [data.finding(finding) for finding in imported.findings],
    }
    answers.answer(answer, None, as_json=asked.as_json)
    for finding in imported.findings:
        line = "" if finding.line is None else f":{finding.line}"
        level = "note" if finding.level is Level.NOTE else "error"
        click.echo(f"{path}{line}: {level}: {finding.message} [{finding.code}]", err=True)
    return EXIT_OK if imported.ok else EXIT_NO


def _is_mod(asked: ImportArguments, *, recipes_only: bool) -> bool:
    """Return True for a folder, a zip or a diff, False for a recipe. Raises ``UsageError`` for the other's options."""
    is_zip = False
    if os.path.isfile(asked.path):
        with contextlib.suppress(OSError), open(asked.path, "rb") as file:
            is_zip = file.read(4) in {b"PK\x03\x04", b"PK\x05\x06"}
    is_mod = is_zip or os.path.isdir(asked.path) or import_mod.is_diff(asked.path)
    if is_mod and recipes_only:
        raise UsageError(
            f"{asked.path} is a mod, and --output and --mod are for recipes",
            hint="--library DIR writes a mod to DIR/patches/NAME",
        )
    of_mods = (asked.tree, asked.image, asked.summary, asked.terms, asked.spec, asked.others)
    if not is_mod and any(of_mods):
        raise UsageError(
            f"{asked.path} is no mod, and --tree, --image, --with, --summary, --license and --vllm are for mods",
            hint="a mod is a folder or a zip with a run.sh, or a diff; of a Dockerfile's image: "
            "vllm-mods new NAME --from-trees image:BASE image:BUILT",
        )
    return is_mod


def recipe_text(path: str) -> str:
    """Read a recipe as text, as launchers do. Raises ``UsageError`` for anything else."""
    with named_files.opened(path) as file:
        data = file.read(limits.RECIPE + 1)
    if len(data) > limits.RECIPE:
        raise UsageError(
            f"{path} is no recipe: it has more than {limits.RECIPE}", hint="a recipe is YAML"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is no recipe: byte {error.start} is not UTF-8", hint="a recipe is YAML"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _named(mods: tuple[str, ...], library: Library) -> dict[str, str]:
    """Read ``--mod PATH=NAME``. Raises ``UsageError`` for a mod that the library has not."""
    named = {}
    for text in mods:
        path, equals, name = text.rpartition("=")
        if not (path and equals and name):
            raise UsageError(
                f"--mod {text} is not PATH=NAME", hint="--mod mods/fix-template=qwen3.5-enhanced"
            )
        if name not in library.names():
            library.load(name)  # says which there are
        named[path] = name
    return named


def _place_in(folder: str, name: str, library: Library) -> str:
    """Return the new file of a pairing in a library's folder. Raises ``UsageError``."""
    if name in library.pairing_names():
        raise UsageError(
            f"there is a pairing named `{name}`: {library.pairing_file(name)}",
            hint="give this one another name with --name",
        )
    path = os.path.join(folder, "pairings")
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be made: {error.strerror}") from error
    return os.path.join(path, f"{name}.toml")
