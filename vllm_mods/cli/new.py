"""``vllm-mods new``."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from vllm_mods.base.errors import UsageError
from vllm_mods.cli import answers, manner, named_files, options
from vllm_mods.cli.manner import option
from vllm_mods.library import mod_folder, writing
from vllm_mods.making import compose, from_diff, from_trees, recording
from vllm_mods.making import folder as folders
from vllm_mods.making.compose import Composed
from vllm_mods.making.recording import Limits
from vllm_mods.planning import lock_entries
from vllm_mods.report.data import finding

recorded = options.grouped(
    "limits",
    Limits,
    option("--also PACKAGE", "Copy this package beside vllm too.", multiple=True),
    option(
        "--timeout",
        "How long it may run.",
        "seconds",
        type=click.FloatRange(min=0, min_open=True),
        default=600.0,
        show_default=True,
    ),
    option(
        "--env NAME=VALUE", "A variable of the container that it runs in.", "environ", multiple=True
    ),
    option("--allow-network", "Let it use the network.", "network"),
)
"""The options of what runs a command on a copy of a tree."""


@click.command(name="new")
@click.argument("name", metavar="NAME")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND...]")
@option("--from-diff FILE", "A diff, with any paths; - for stdin.", "diff_file")
@option("--from-trees OLD NEW", "Two trees to compare.", "trees", nargs=2)
@option("--record", "Run COMMAND on a copy of --tree.")
@option("--tree TREE", "The vLLM of the diff, or to run COMMAND on.", "base")
@option("--image REF", "Run COMMAND in a container of this image, which holds a vLLM.")
@option("--library DIR", "Write to DIR/patches/NAME [.].", "folder", default=".")
@option("--summary TEXT", "What the mod is for.")
@option("--license SPDX", "The licence of the changes.", "terms")
@option("--vllm SPEC", "The range that it states [just that vLLM].", "spec")
@recorded
@manner.offline
@manner.json_output
def command(
    name: str,
    argv: tuple[str, ...],
    diff_file: str | None,
    trees: tuple[str, str] | None,
    base: str | None,
    *,
    image: str | None,
    record: bool,
    limits: Limits,
    folder: str,
    summary: str | None,
    terms: str | None,
    spec: str | None,
) -> int:
    """Make a mod.

    From a diff, whose paths may be from anywhere: each is looked up in the tree by its end and its
    text. Or from two trees: changed text becomes a patch with section headers, new files an
    overlay. Or from what a command does to a copy of a tree, laid out as in an image, or in a container of
    one, with a copy of the current folder to run in and nothing else of this machine. The mod is planned on the tree that it was made from, and written only if it makes
    these very changes and would work. What nobody could know is said.
    """
    if sum((diff_file is not None, trees is not None, record)) != 1 or bool(argv) is not record:
        raise UsageError(
            "give --from-diff, --from-trees or --record with a command, one of them",
            hint="vllm-mods new --help",
        )
    if image is not None and (base is not None or not record):
        raise UsageError("--image is for --record, in place of --tree", hint="--record --image REF")
    notes: list[str] = []
    templates: dict[str, bytes] = {}
    wanted = compose.Wanted(name, summary, terms, spec)
    if trees is not None:
        tree, other = (options.open_tree(one) for one in trees)
        difference = from_trees.difference(tree, other)
        changes = difference.changes
        notes += [f"left out {path}: {why}" for path, why in difference.passed_over]
    elif record:
        if base is None and image is None:
            raise UsageError("on which vLLM is the command to run?", hint="--tree TREE")
        tree = (
            options.open_image(f"image:{image}", image) if image else options.open_tree(str(base))
        )
        container = recording.container_of(tree) if image else None
        files_here = folders.read_working_folder(os.getcwd())
        done = recording.record(argv, name, files_here, tree, limits, container=container)
        changes, templates = done.changes, done.templates
        wanted = wanted._replace(python=done.python, env=done.env)
        notes += done.notes
    else:
        if base is None:
            raise UsageError("which vLLM was the diff made on?", hint="--tree TREE")
        tree = options.open_tree(base)
        where = diff_file or "-"
        with named_files.opened(where) as file:
            data = file.read()
        changes, meant = from_diff.changes(data, "stdin" if where == "-" else where, tree)
        notes += [f"{one.named} is {one.path}" for one in meant if one.named != one.path]
    composed = compose.compose(wanted, changes, templates, tree)
    files = dict(composed.files)
    if (locked := lock_entries.first(composed.mod, composed.planned, tree)) is not None:
        files[mod_folder.LOCK] = locked
    place = write(folder, name, files)
    return _tell(composed._replace(files=files), place, notes)


def write(folder: str, name: str, files: Mapping[str, bytes]) -> str:
    """Write a mod into a library, whole or not at all, and return its folder.

    Raises ``Refused`` if there is one already, or the library cannot be written.
    """
    place = os.path.join(folder, "patches", name)
    writing.folder(place, files)
    return place


def _tell(composed: Composed, place: str, notes: list[str]) -> int:
    """Say what was written, and what is still to be said by a person."""
    planned = composed.planned
    answer = {
        "mod": composed.mod.name,
        "folder": place,
        "variant": planned.variant.id if planned.variant else None,
        "verdict": planned.verdict.value,
        "files": sorted(composed.files),
        "findings": [finding(one) for one in planned.findings],
        "notes": notes,
        "unknown": list(composed.unknown),
    }
    lines = [f"wrote {place}: {planned.verdict}", *(f"  {path}" for path in sorted(composed.files))]
    lines += [f"note: {line}" for line in (*notes, *(one.message for one in planned.findings))]
    lines += [f"to be said by you, in mod.toml: {line}" for line in composed.unknown]
    return answers.answer(answer, "\n".join(lines))
