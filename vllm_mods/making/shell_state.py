"""What is known of a shell while a script is read: files, folders, variables, and the effects so far."""

from __future__ import annotations

import copy
import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from vllm_mods.base.errors import TreeError
from vllm_mods.base.tree import Tree
from vllm_mods.formats import image_paths
from vllm_mods.formats.schema import SECRET
from vllm_mods.making.effects import (
    HOME,
    SITE,
    WORKSPACE,
    Assume,
    Effect,
    Export,
    Left,
    OutsideFile,
    Remove,
    ScriptPlace,
    Whole,
    in_site,
    is_template,
    normal,
)
from vllm_mods.scripts import statements
from vllm_mods.scripts.statements import BashFunction, Statement

MODS = f"{WORKSPACE}/mods"
NO_FOLDER = "the folder it runs in is not known"


class Result(NamedTuple):
    """What became of a command: whether it succeeds, what it prints; None where only a run tells."""

    status: bool | None = None
    out: str | None = None


DONE = Result(status=True, out="")


class ShellCommand(NamedTuple):
    """A command that is about to run: its words, and what it reads."""

    place: ScriptPlace
    text: str
    argv: list[str]
    stdin: str | None
    reads: bool
    """Whether something is there to be read, known or not."""
    source: str | None
    """The name of the file that it is read from, if it is one."""

    @property
    def operands(self) -> list[str]:
        """The words behind its name that are no options."""
        return [word for word in self.argv[1:] if not word.startswith("-")]


class EndedError(Exception):
    """``exit``, ``return``, ``break`` or ``continue``: what follows is not run.

    ``fails`` says that an ``exit`` or ``return`` counts as a failure, or may.
    """

    def __init__(self, word: str, *, fails: bool = False) -> None:
        super().__init__(word)
        self.word = word
        self.fails = fails


class PossibleEnd(NamedTuple):
    """Where a loop or a function may have ended, by which word, after how many effects, and as what shell."""

    word: str
    at: int
    shell: ShellState


class ShellState(ABC):
    """The files, folders, variables and effects of a shell, as far as they are known.

    What statements do to it, ``reading`` says.
    """

    def __init__(
        self,
        name: str,
        files: Mapping[str, bytes],
        tree: Tree | None,
        fetched: Mapping[str, bytes] = {},
    ) -> None:
        self.tree = tree
        self.fetched = fetched
        self.home = f"{MODS}/{name}"
        self.files: dict[str, bytes | None] = {
            f"{self.home}/{path}": data for path, data in files.items()
        }
        self.variables: dict[str, str | None] = {
            "WORKSPACE_DIR": WORKSPACE,
            "PYTHON_ROOT": SITE,
            "VLLM_SITE_PACKAGES": SITE,
            "VLLM_PACKAGE_DIR": f"{SITE}/vllm",
            "HOME": HOME,
            "USER": "root",
        }
        self.arrays: dict[str, list[str]] = {}
        self.functions: dict[str, BashFunction] = {}
        self.arguments: tuple[str, ...] = ()
        self.cwd: str | None = self.home
        self.script = "./run.sh"
        self.file = "run.sh"
        self.effects: list[Effect] = []
        self.taken: set[str] = set()  # files that were read
        self.made: set[str] = set()
        self.gone: set[str] = set()
        self.printed: list[str | None] = []
        self.here = ScriptPlace("run.sh", 1)
        self.depth = 0
        self.loops = 0
        self.errexit = False
        self.pipefail = False
        self.guarded: set[Effect] = set()  # those whose failure ends the script
        self.doubts: list[PossibleEnd] = []
        self.spent = [0]  # one for all shells that are copies of this one

    # --- what runs in it --------------------------------------------------------

    @abstractmethod
    def source(self, path: str, arguments: tuple[str, ...], *, ends: bool = True) -> None:
        """Run a script of the mod in this shell. Raises ``BashError``.

        ``ends`` says that an ``exit`` ends that script only.
        """

    @abstractmethod
    def substitute(self, inner: str) -> str | None:
        """Return what ``$(…)`` prints. What it changes is taken note of."""

    @abstractmethod
    def would_last(self, body: Sequence[Statement]) -> bool:
        """Tell whether statements would change what outlives the script."""

    @abstractmethod
    def run(self, body: Sequence[Statement]) -> Result:
        """Run statements one after the other."""

    @abstractmethod
    def invoke(self, command: ShellCommand) -> Result:
        """Run a command whose words are known."""

    def subshell(self) -> Self:
        """Return a shell with variables of its own, and the same files and effects."""
        inner = copy.copy(self)
        inner.variables, inner.arrays = dict(self.variables), dict(self.arrays)
        inner.functions = dict(self.functions)
        return inner

    def output(self) -> str | None:
        """Return all that was printed, None if something of it is known only when it runs."""
        return None if None in self.printed else "".join(one or "" for one in self.printed)

    def set_flags(self, words: Sequence[str]) -> None:
        """Take ``-e``, ``+e``, ``-o pipefail`` and the like."""
        for word, name in zip(words, [*words[1:], ""], strict=False):
            if word == "--":
                break
            if not word.startswith(("-", "+")):
                continue
            named = name if word.endswith("o") else ""
            if "e" in word[1:] or named == "errexit":
                self.errexit = word.startswith("-")
            if named == "pipefail":
                self.pipefail = word.startswith("-")

    # --- files ----------------------------------------------------------------

    def path(self, name: str) -> str | None:
        """Return a name as an absolute path; None where the folder one is in is not known."""
        if not name.startswith("/"):
            if self.cwd is None:
                return None
            name = f"{self.cwd}/{name}"
        return normal(posixpath.normpath(name))

    def read(self, path: str | None) -> bytes | None:
        """Return the bytes of a file, None if they are not known or there are none."""
        if path is None or path in self.gone:
            return None
        if path in self.files:
            self.taken.add(path)
            return self.files[path]
        inner = in_site(path)
        if inner is None or self.tree is None:
            return None
        try:
            return self.tree.read(inner)
        except TreeError:
            return None

    def text(self, name: str, errors: str = "surrogateescape") -> str | None:
        """Return what a file holds, by the name that a script has for it; None as ``read`` does."""
        data = self.read(self.path(name))
        return None if data is None else data.decode("utf-8", errors)

    def is_file(self, path: str) -> bool | None:
        """Tell whether there is such a file; None if only a run would tell."""
        if path in self.gone:
            return False
        if path in self.files:
            return True
        if in_site(path) is not None:
            return None if self.tree is None else self.read(path) is not None
        return False if path.startswith((f"{self.home}/", "/tmp/")) else None  # noqa: S108

    def is_folder(self, path: str) -> bool | None:
        """Tell whether there is such a folder; None if only a run would tell."""
        if path in {SITE, f"{SITE}/vllm", WORKSPACE, HOME, "/tmp", self.home, *self.made}:  # noqa: S108
            return True
        if any(one.startswith(f"{path}/") for one in self.files):
            return True
        inner = in_site(path)
        if inner is not None and self.tree is not None:
            return any(True for _ in self.tree.paths(inner))
        return False if path.startswith(f"{self.home}/") or self.is_file(path) else None

    def below(self, folder: str) -> dict[str, bytes | None]:
        """Return the known files below a folder."""
        return {path: data for path, data in self.files.items() if path.startswith(f"{folder}/")}

    def listing(self, pattern: str) -> set[str] | None:
        """Return the paths that a pattern may name; None if they are not known."""
        fixed = re.split(r"[*?\[]", pattern)[0].rpartition("/")[0]
        inside = normal(fixed) == SITE or in_site(normal(fixed)) is not None
        if inside and self.tree is not None:
            start = in_site(fixed) or ""
            there = (f"{SITE}/{one}" for one in self.tree.paths(start))
            return folders(iter({*there, *self.below(fixed)}))
        if fixed == self.home or fixed.startswith((f"{self.home}/", "/tmp")):  # noqa: S108
            return folders(iter(self.below(fixed)))
        return None

    def write(self, place: ScriptPlace, text: str, path: str | None, data: bytes | None) -> None:
        """Take note of a file that is written; ``data`` is None if only a run would tell it."""
        if path is None:
            self.left(place, text, "where it writes to is known only when it runs")
        elif path.startswith("/dev/"):
            return
        elif not self.lasts(path):
            self.files[path] = data
        elif data is not None and self.is_for_image(path):
            self.files[path] = data
            self.effects.append(OutsideFile(place, path, data))
        elif not (in_site(path) or is_template(path)):
            why = f"a mod changes Python packages and brings chat templates, and {path} is neither"
            self.left(place, text, why)
        elif data is None:
            self.left(place, text, f"what it writes to {path} is known only when it runs")
        else:
            self.files[path] = data
            self.gone.discard(path)
            self.effects.append(Whole(place, path, data))

    def remove(self, place: ScriptPlace, path: str) -> None:
        """Take note of a file of vLLM that is taken away."""
        self.files.pop(path, None)
        self.gone.add(path)
        self.effects.append(Remove(place, path))

    def is_for_image(self, path: str) -> bool:
        """Tell whether a mod may have a file there that only an image gets."""
        inside = (
            in_site(path) or is_template(path) or path.startswith((f"{HOME}/", f"{WORKSPACE}/"))
        )
        return not inside and image_paths.objection(path) is None

    def export(self, place: ScriptPlace, name: str, value: str | None, text: str) -> None:
        """Take note of a variable, written as ``text``; one that a script of the mod uses is meant for itself."""
        used = re.compile(rf"\$\{{?{name}\b".encode())
        scripts = (
            data
            for path, data in self.files.items()
            if data and path.endswith((".sh", "Dockerfile"))
        )
        theirs = statements.OWN.fullmatch(name) or re.match(SECRET, name) or "\0" in (value or "")
        brought = value is not None and not theirs and not any(map(used.search, scripts))
        self.effects.append(Export(place, name, text if value is None else value, brought))

    def lasts(self, path: str) -> bool:
        """Tell whether what is written there is seen after the script has ended."""
        return not path.startswith((f"{self.home}/", "/tmp/"))  # noqa: S108

    def assume(self, place: ScriptPlace, text: str) -> None:
        """Say that a condition was taken as on a vLLM that has not got the mod."""
        self.effects.append(
            Assume(place, short(text), "taken as on a vLLM that has not got the mod")
        )

    def unset(self, name: str) -> None:
        """Say that a variable of the container was taken as not set, once."""
        if all(not isinstance(one, Assume) or one.text != name for one in self.effects):
            self.effects.append(Assume(self.here, name, "taken as not set in the container"))

    def leave(self, command: ShellCommand, why: str) -> Result:
        """Leave a command to a person."""
        return self.left(command.place, command.text, why)

    def left(self, place: ScriptPlace, text: str, why: str) -> Result:
        """Leave a statement to a person."""
        self.effects.append(Left(place, short(text), why))
        return Result(status=True)


def short(text: str) -> str:
    """Return the first line of a statement, cut."""
    line = " ".join(text.split("\n", maxsplit=1)[0].split())
    return line if len(line) <= 100 else f"{line[:97]}..."


def folders(paths: Iterator[str]) -> set[str]:
    """Return the paths and every folder that they lie in."""
    found: set[str] = set()
    for path in paths:
        while path not in found and path not in {"", "/"}:
            found.add(path)
            path = posixpath.dirname(path)  # noqa: PLW2901
    return found
