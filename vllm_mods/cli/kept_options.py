"""The options of a call that the commands in its hints need as well."""

import re
import shlex
from collections.abc import Sequence

import click

_KEPT = "--library --to --target --base --workspace --commits --with --platform --target-in-image --offline --lock"
_OF_ITSELF = "--output --variant"  # for the command of the call alone
_ON_IMAGE = ("lock", "build", "upgrade")  # their --base is an image, that of others a tree
_COMMAND = r"(?<![\w./=-])vllm-mods (?P<words>[a-z][^\n;&`#]*?)(?=\s*(?:$|[\n;&`#]|, |  ))"


def keep(hint: str, arguments: Sequence[str]) -> str:
    """Return a hint whose commands have the options of the call that they take and do not name themselves."""
    kept: dict[str, list[str]] = {}
    words = iter(arguments)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            break
        if name in f"{_KEPT} {_OF_ITSELF}".split():
            value = [] if equals or name == "--offline" else [next(words, "")]
            kept.setdefault(name, []).extend((word, *value))
    own = next(iter(arguments), "")
    return re.sub(_COMMAND, lambda match: _complete(match, kept, own), hint) if kept else hint


def _complete(match: re.Match[str], kept: dict[str, list[str]], own: str) -> str:
    from vllm_mods.cli import main  # noqa: PLC0415  (it imports what prints)

    words = match["words"].split()
    command: click.Command | None = main
    with click.Context(main) as context:
        while isinstance(command, click.Group) and words:
            command = command.get_command(context, words.pop(0))
    names = {word.partition("=")[0] for word in words}
    if command is None or "--help" in names:
        return match[0]
    takes = {name for option in command.params for name in option.opts} - names
    takes -= {"--to", "--variant"} if names & {"--continue", "--abort"} else set()
    first = match["words"].split()[0]
    takes -= {"--base"} if (own in _ON_IMAGE) != (first in _ON_IMAGE) else set()
    several = {"--platform"} if "," in "".join(kept.get("--platform", ())) else set()  # of `lock`
    takes -= set() if first == own else {*_OF_ITSELF.split(), *several}
    more = (word for name in kept if name in takes for word in kept[name])
    front, dashes, behind = match[0].partition(" -- ")
    return " ".join((front, *map(shlex.quote, more))) + dashes + behind
