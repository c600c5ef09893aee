"""``vllm-mods new``."""

from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.new import find_release, new
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import named_files, options
from vllm_mods.cli.options import option
from vllm_mods.making.recording import Limits
from vllm_mods.report import imported as report
from vllm_mods.report.reply import Reply

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
)
"""The options of what runs a command on a copy of a tree."""


@click.command(name="new")
@click.argument("name", metavar="NAME")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND...]")
@option("--from-diff FILE", "A diff, with any paths; - for stdin.", "diff_file")
@option("--from-trees OLD NEW", "Two trees to compare.", "trees", nargs=2)
@option("--record", "Run COMMAND on a copy of --tree.")
@option(
    "--tree TREE",
    "The vLLM of the diff, or to run COMMAND on; `auto` is the newest release with each hunk at its line.",
    "base",
)
@option("--image REF", "Run COMMAND in a container of this image, which holds a vLLM.")
@option("--library DIR", "Write to DIR/patches/NAME [.].", default=".")
@option("--summary TEXT", "What the mod is for.")
@option("--license SPDX", "The licence of the changes.")
@option("--vllm SPEC", "The range that it states [just that vLLM].")
@recorded
@options.access
@options.json_output
def command(
    name: str,
    argv: tuple[str, ...],
    diff_file: str | None,
    trees: tuple[str, str] | None,
    base: str | None,
    *,
    access: Access,
    image: str | None,
    record: bool,
    **given: Any,
) -> Reply:
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
    spec = f"image:{image}" if image else trees[0] if trees else base
    if not spec:
        raise UsageError(
            "on which vLLM was it made, or is it to be run?",
            hint="--tree TREE; of a diff --tree auto finds the release",
        )
    diff, diff_name = _read_diff(diff_file)
    if spec == "auto" and diff is not None:
        tree = find_release(access, diff, diff_name)
    else:
        tree = access.open(spec)
    result = new(
        name,
        tree=tree,
        diff=diff,
        edited=access.open(trees[1]) if trees else None,
        record=argv,
        in_container=image is not None,
        diff_name=diff_name,
        **given,
    )
    return report.new(result)


def _read_diff(path: str | None) -> tuple[bytes | None, str]:
    """Return a diff, None where none is named, and what messages call it."""
    return (
        (None, "") if path is None else (named_files.read(path), "stdin" if path == "-" else path)
    )
