"""Types the hints that a command line prints: each has to parse, and to lead on in a copy of the folder it was printed in."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import click  # noqa: TID251  (parses as the command line does)

from vllm_mods.cli import main, run
from vllm_mods.fit import checker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PLACEHOLDER = re.compile(
    r"(?<![\w/.-])([A-Z][A-Z_]+|SITE_PACKAGES|…)(?![\w/.-])|:VERSION|==VERSION"
)
"""What the reader has to fill in."""
COMMAND = re.compile(
    r"(?<![\w./=#-])(?<!# )vllm-mods ([a-z][^\n;&`#]*?)(?=\s*(?:$|[\n;&`#]|, |  ))"
)

NOT_RUN = {
    # the command: why it is only parsed
    "build": "builds an image of a real base",
    "lock": "asks a registry or an engine",
    "run": "starts a container",
    "upgrade": "asks a registry or an engine",
    "suggest": "reads a model",
    "image inspect": "reads an image of an engine",
    "update": "fetches a repository",
}
_typed: set[str] = set()


def commands_of(err: str) -> Iterator[list[str]]:
    """Yield the arguments of each vllm-mods command in the hints of a run."""
    err = re.sub(r"`vllm-mods [\w-]+`", "", err)  # a name alone is not typed
    for hint in re.findall(r"(?m)^hint: (.*(?:\n  .*)*)", err):
        yield from (shlex.split(found[1]) for found in COMMAND.finditer(hint))


def parse(words: list[str]) -> str | None:
    """Parse a command line as click does; return the names of its command, None if it only asks for help.

    Raises ``click.UsageError`` for what cannot be typed.
    """
    command: click.Command = main
    context = click.Context(main, info_name="vllm-mods", **main.context_settings)
    names: list[str] = []
    while isinstance(command, click.Group):
        name, words = words[0], words[1:]
        names.append(name)
        inner = command.get_command(context, name)
        assert inner is not None, f"there is no command {name}"
        command, context = inner, click.Context(inner, parent=context, info_name=name)
    if "--help" in words:
        return None
    command.parse_args(context, list(words))
    return " ".join(names)


def shape(words: list[str]) -> str:
    """Return what two hints of one kind have in common: the command and the names of its options."""
    return " ".join(word for n, word in enumerate(words) if n < 1 or word.startswith("-"))


def check(err: str, folder: Path, read: Callable[[], object]) -> None:
    """Parse the hints of a run; run each kind once in a copy of a folder: the usage is right, and it is no bug."""
    for words in commands_of(err):
        name = parse(words)
        later = f"then vllm-mods {words[0]}" in err  # a second step, after what comes before it
        if name is None or name in NOT_RUN or shape(words) in _typed or later or _is_open(words):
            continue
        _typed.add(shape(words))
        copy = folder.with_name(f"{folder.name}-typed")
        shutil.copytree(folder, copy, symlinks=True)
        with _moved(str(folder), str(copy)):
            code = run([word.replace(str(folder), str(copy)) for word in words])
        shutil.rmtree(copy)
        assert code not in {2, 70}, f"vllm-mods {shlex.join(words)} ends with {code}: {read()}"


@contextlib.contextmanager
def _moved(folder: str, copy: str) -> Iterator[None]:
    """Have the current folder and the variables name a copy for what they name now."""
    here, environ = os.getcwd(), dict(os.environ)
    os.chdir(
        here.replace(folder, copy) if here.startswith(folder) else copy
    )  # nothing is written here
    os.environ.update({name: value.replace(folder, copy) for name, value in environ.items()})
    try:
        yield
    finally:
        checker._environment.cache_clear()  # made where this test has its temporary files
        os.chdir(here)
        os.environ.update(environ)


def _is_open(words: list[str]) -> bool:
    """Tell whether the reader has to fill something in."""
    return any(PLACEHOLDER.search(word) for word in words)
