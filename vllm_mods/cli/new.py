"""``vllm-mods new``."""

from typing import Any

import click

from vllm_mods.api.access import Access
from vllm_mods.api.new import find_release, new
from vllm_mods.base.errors import UsageError
from vllm_mods.cli import named_files, options
from vllm_mods.making.recording import Limits
from vllm_mods.report import imported as report
from vllm_mods.report.reply import Reply


def recorded(run: str) -> options.Declared:
    """Declare the options of what runs something on a copy of a tree; help calls it ``run``."""
    return options.grouped(
        "limits",
        Limits,
        options.option(
            "--also PACKAGE", f"Another package of --tree that {run} needs.", multiple=True
        ),
        options.option(
            "--timeout",
            f"The time limit of {run}, in seconds.",
            "seconds",
            type=click.FloatRange(min=0, min_open=True),
            default=600.0,
            show_default=True,
        ),
        options.option(
            "--ignore-checks",
            f"Make the mod even if the last step of {run}, such as a self-test, fails. That step must change no file; its output is printed.",
        ),
        options.option("--partial", "With --each: make the mod without the calls that failed."),
        options.option(
            "--each NAME",
            f"The Python function or program that {run} calls for each of its changes to vLLM. Each call becomes an optional patch of the mod. If a call fails, it is listed and the exit code is 1; a mod is then made only with --partial.",
        ),
        options.option("--env NAME=VALUE", f"A variable for {run}.", "environ", multiple=True),
    )


@click.command(name="new")
@click.argument("name", metavar="NAME")
@click.argument("argv", nargs=-1, metavar="[-- COMMAND...]")
@options.option("--from-diff FILE", "The diff to read; - is standard input.", "diff_file")
@options.option("--from-trees OLD NEW", "Compare these two trees.", "trees", nargs=2)
@options.option("--record", "Run COMMAND on a copy of --tree, or in a container of --image.")
@options.option(
    "--tree TREE",
    "The vLLM that the diff was made on, or that COMMAND is to change. For a diff, `auto` is the newest release where each hunk matches at its stated line.",
    "base",
)
@options.option("--image REF", "Run COMMAND in a container of this image, which must contain vLLM.")
@options.option("--library DIR", "Write to DIR/patches/NAME [.].", default=".")
@options.option("--summary TEXT", "A summary of the mod.")
@options.option("--license SPDX", "The licence of the mod.")
@options.option("--vllm SPEC", "The vLLM versions that the mod is for [only the tree's version].")
@recorded("COMMAND")
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
    """Make a mod from a diff, from two trees, or from what a command does.

    The paths in a diff may have any prefix: `new` finds each file in the tree by the end of its path and by its text.
    With two trees, changed files become a patch, and new files are copied into the mod. COMMAND runs on
    a copy of a tree, or in a container of an image. COMMAND sees a copy of the current folder, and nothing else
    of this machine. The new mod is checked on its tree, and written only if it makes the same changes and the changed code fits.
    `new` then lists what you have to add by hand.
    """
    making = f"vllm-mods new {name} --from-diff {diff_file or 'FILE'} --tree auto"
    if record or argv:
        making = f"vllm-mods new {name} --record --tree TREE -- COMMAND"
    if bool(argv) is not record:
        why = "--record needs a command to run, and a command needs --record"
        raise UsageError(why, hint=making)
    if not record:
        options.refuse_beside("a diff or two trees", Limits._fields, making)
    if trees:
        options.refuse_beside("--from-trees", {"base"}, "--from-trees OLD NEW")
    if image is not None and (base is not None or not record):
        raise UsageError("--image replaces --tree, and needs --record", hint="--record --image REF")
    spec = f"image:{image}" if image else trees[0] if trees else base
    if not spec:
        why = "no --tree was named: the vLLM that the diff was made on, or that the command is to run on"
        raise UsageError(why, hint=making)
    diff = None if diff_file is None else named_files.read(diff_file)
    diff_name = "stdin" if diff_file == "-" else diff_file or ""
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
