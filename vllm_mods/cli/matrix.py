"""``vllm-mods matrix``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from vllm_mods import lock, matrix
from vllm_mods.cli import options
from vllm_mods.errors import EXIT_NO, EXIT_OK, UsageError
from vllm_mods.model import Verdict
from vllm_mods.report import data, text
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.model import Mod, Tree


@click.command(name="matrix")
@options.mods
@options.pairing
@click.option("--vllm", "spec", metavar="SPEC", help="Only these releases, such as '>=0.19,<0.22'.")
@click.option(
    "--tree", "trees", multiple=True, metavar="TREE", help="These trees instead of releases."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="How to print it.",
)
@click.option("--update-lock", is_flag=True, help="Write each mod's mod.lock from what was found.")
@options.libraries
@options.offline
@options.json_output
def command(
    mods: tuple[str, ...],
    spec: str | None,
    trees: tuple[str, ...],
    form: str,
    libraries: tuple[str, ...],
    *,
    pairing: str | None,
    update_lock: bool,
    offline: bool,
    as_json: bool,
) -> int:
    """Check mods against many vLLM releases.

    Without MOD and --pairing, all mods; without --vllm and --tree, every release that a mod's ranges
    name, rebuilt wheels included, and the newest three beyond. Exit code 0 if every mod
    would end up in every tree that its ranges name.
    """
    if update_lock and trees:
        raise UsageError(
            "--update-lock writes what is known of releases, and --tree names other trees"
        )
    library = options.open_library(libraries)
    paired = () if pairing is None else library.mods_of(library.pairing(pairing))
    chosen = library.select((*paired, *mods) if pairing is not None else mods or library.names())
    if update_lock:
        # what an old lock says must not lean on itself
        chosen = tuple(mod._replace(lock=None) for mod in chosen)
    releases = Releases(offline=offline, progress=options.progress(), note=options.note)
    specs = trees or matrix.choose_releases(chosen, releases.files(), spec)

    def opener(spec: str) -> Tree:
        if spec.startswith("pypi:"):
            return releases.open(spec.removeprefix("pypi:"))
        tree = open_tree(spec, offline=offline)
        options.close_later(tree)
        return tree

    found = tuple(matrix.cells(chosen, specs, opener))
    if as_json or form == "json":
        options.print_json(data.matrix(found))
    else:
        click.echo(text.matrix(found, options.paint))
    bad = [cell for cell in found if cell.meant and not cell.planned.verdict.ok]
    if update_lock:
        unread = [cell for cell in found if cell.planned.verdict is Verdict.UNREADABLE]
        if unread:
            raise UsageError(
                f"no mod.lock was written: {unread[0].tree} could not be read",
                hint="run it again when every release can be read",
            )
        for mod in chosen:
            write_lock(mod, found)
    return EXIT_NO if bad else EXIT_OK


def write_lock(mod: Mod, found: Sequence[matrix.Cell]) -> None:
    """Replace a mod's lock in one step."""
    path = os.path.join(mod.directory, "mod.lock")
    staged = f"{path}.{os.getpid()}"
    try:
        with open(staged, "wb") as file:
            file.write(lock.dump(matrix.lock_from(mod, found)))
        os.replace(staged, path)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}",
            hint="the lock belongs to the library's own checkout",
        ) from error
    click.echo(f"wrote {path}", err=True)
