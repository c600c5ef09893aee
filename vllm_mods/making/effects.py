"""What a mod's ``run.sh`` does, read and not run: the launcher's paths, and one record per effect."""

from __future__ import annotations

import re
from typing import NamedTuple

SITE = "/usr/local/lib/python3.12/dist-packages"
WORKSPACE = "/workspace"
HOME = "/root"
_TEMPLATES = (".jinja", ".jinja2", ".j2")
# Any interpreter's packages stand for those that hold vLLM.
_ANY_SITE = re.compile(r"^/[\w./-]*/python3[\d.*]*/(?:dist|site)-packages(?=/|$)")


class ScriptPlace(NamedTuple):
    """A line of a script of the mod."""

    file: str
    line: int

    def __str__(self) -> str:
        """Write it as compilers do."""
        return f"{self.file}:{self.line}"


class Patch(NamedTuple):
    """A diff put in (``reverse``: taken out) in ``folder``.

    ``strip`` folders of each path are left out, None for all; ``operand`` is the one file that it
    is for, whatever the diff calls it.
    """

    place: ScriptPlace
    source: str
    data: bytes
    folder: str
    strip: int | None
    operand: str | None = None
    reverse: bool = False
    optional: bool = False
    """Whether the script goes on, and counts as done, where it does not go in."""


class Whole(NamedTuple):
    """A file with these bytes at an absolute path."""

    place: ScriptPlace
    path: str
    data: bytes


class Remove(NamedTuple):
    """A file that is taken away."""

    place: ScriptPlace
    path: str


class Install(NamedTuple):
    """A Python package that is installed, as PEP 508 names it."""

    place: ScriptPlace
    requirement: str


class Export(NamedTuple):
    """A variable for what the script itself starts: it ends with the script.

    ``brought`` says that it is known and meant for vLLM, so that the mod brings it to a pairing.
    """

    place: ScriptPlace
    name: str
    value: str
    brought: bool = False


class OutsideFile(NamedTuple):
    """A file outside of Python's packages, at an absolute path: only an image gets it."""

    place: ScriptPlace
    path: str
    data: bytes


class Fetch(NamedTuple):
    """A file from the network, and the sha256 of what was taken there."""

    place: ScriptPlace
    url: str
    sha256: str


class Advise(NamedTuple):
    """Flags for ``vllm serve`` that the script says are needed."""

    place: ScriptPlace
    args: tuple[str, ...]


class Clear(NamedTuple):
    """A cache that is emptied."""

    place: ScriptPlace
    what: str


class Edit(NamedTuple):
    """An edit of which only a run tells what comes out: ``sed -i``, Python code."""

    place: ScriptPlace
    text: str
    what: str


class Assume(NamedTuple):
    """A condition or a variable that only a run could tell, and how it was taken."""

    place: ScriptPlace
    text: str
    how: str


class Left(NamedTuple):
    """A statement that is not understood, and why; ``url`` is what it lacks, if that is all."""

    place: ScriptPlace
    text: str
    why: str
    url: str = ""


Effect = (
    Patch
    | Whole
    | Remove
    | Install
    | Export
    | Advise
    | Fetch
    | OutsideFile
    | Clear
    | Edit
    | Assume
    | Left
)


def changes(effect: Effect) -> bool:
    """Tell whether an effect lasts: a variable, a word to the reader or a cache does not."""
    return not isinstance(effect, Export | Advise | Fetch | Clear | Assume)


def normal(path: str) -> str:
    """Return a path with any interpreter's packages as ``SITE``."""
    return _ANY_SITE.sub(SITE, path)


def in_site(path: str) -> str | None:
    """Return a path from the site root; None if it is elsewhere."""
    return path[len(SITE) + 1 :] if path.startswith(f"{SITE}/") else None


def is_template(path: str) -> bool:
    """Tell whether an absolute path is one of a chat template where a launcher looks for it."""
    folder, _, name = path.rpartition("/")
    return folder == WORKSPACE and name.endswith(_TEMPLATES)
