"""What a shell is told when somebody presses TAB: no network, no LibCST, nothing written.

click finds out which argument is meant; here is what its values may be, and the code for the shells.
The code hands over the line as typed and takes rows of kind, value and help, with tabs in between.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    CompletionItem,
    ShellComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

from vllm_mods.base.errors import VllmModsError
from vllm_mods.cli import COMPLETE, main
from vllm_mods.cli.options import LibraryArguments

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Type = click.ParamType[str]
else:
    _Type = click.ParamType  # generic with the newest click only

_SHELLS = ("bash", "zsh", "fish")
_KINDS = ("wheel:", "sdist:", "git:", "image:")


class _CompletionShell(ShellComplete):
    """A shell that hands the whole line over."""

    def source(self) -> str:
        from importlib.resources import files  # noqa: PLC0415  (60 ms, and a TAB has no use for it)

        place = files(__package__) / "completion" / f"complete.{self.name}"
        return place.read_text("utf-8") % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("VLLM_MODS_LINE", "")  # none: code of an older version that was kept
        words = split_arg_string(line)[1:]
        if not words or re.search(r"(?<!\\)\s\Z", line):
            return words, ""
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[str]) -> str:
        return "\t".join((item.type, item.value, re.sub(r"\s+", " ", item.help or "")))


def register() -> None:
    """Make click use these shells."""
    for name in _SHELLS:
        add_completion_class(type(name, (_CompletionShell,), {"name": name}))


@click.command(name="completion")
@click.argument("shell", type=click.Choice(_SHELLS))
def command(shell: str) -> None:
    """Print the shell code that completes vllm-mods commands.

    Commands, options, mods, pairings, and trees: kinds, folders, the releases that locks know.
    """
    register()
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (click has all three)
    click.echo(kind(main, {}, "vllm-mods", COMPLETE).source())


class TreeWord(_Type):
    """A TREE: what stands before the colon, the releases that locks know, and folders."""

    name = "tree"

    def shell_complete(
        self,
        ctx: click.Context,  # noqa: ARG002
        param: click.Parameter,  # noqa: ARG002
        incomplete: str,
    ) -> list[CompletionItem[str]]:
        """Return what the typed beginning can become."""
        if incomplete.startswith("pypi:") or (incomplete and "pypi:".startswith(incomplete)):
            names: tuple[str, ...] = tuple(f"pypi:{one}" for one in _releases())
        else:
            names = ("pypi:", *_KINDS)
        items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return [*items, CompletionItem(incomplete, type="dir")]


def know_values(command: click.Command) -> None:
    """Let what is a tree, a file or a folder, by its ``metavar``, be completed as such."""
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            know_values(inner)
    for parameter in command.params:
        if parameter.metavar in {"TREE", "TREE..."}:
            parameter.type = TreeWord()
        elif parameter.metavar in {"FILE", "FILE...", "PATH", "PATH..."}:
            parameter.type = click.Path()
        elif parameter.metavar == "DIR":
            parameter.type = click.Path(file_okay=False)


def _releases() -> list[str]:
    """Return the releases that the locks of all mods know, oldest first."""
    labels = {label.split()[0] for label in _labels()}
    return sorted(labels, key=lambda label: [int(part) for part in re.findall(r"\d+", label)])


def _labels() -> Iterator[str]:
    library = LibraryArguments().open()
    for name in library.names():
        try:
            raw = json.loads(library.load(name).lock or "{}")
            yield from (label for tree in raw.get("trees", ()) for label in tree["vllm"])
        except (VllmModsError, ValueError, KeyError, TypeError, AttributeError):
            continue  # `list` says what is wrong with it; a TAB is no place for that
