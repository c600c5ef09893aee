"""Which of the mods' code ran in a command, by what each of its processes recorded of its imports and calls."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vllm_mods.applying.shadow import Shadow
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Folder
from vllm_mods.base.untrusted import json_in
from vllm_mods.fit.lines import touched_lines
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.schema import decode, encode
from vllm_mods.placing.scopes import Scope, read_scopes

_RECORDER = os.path.join(os.path.dirname(__file__), "recorder")
"""What stands first on PYTHONPATH where a command is recorded."""


VARIABLE = "RECORD_OF_VLLM_MODS"
"""The environment variable with the path of the record; vLLM warns of those that begin with its own name."""


class RecordedFunction(NamedTuple):
    """A function that a mod changes, at its 1-based line, and the processes that ``entered`` it."""

    name: str
    line: int
    entered: tuple[str, ...] = ()


class RecordedFile(NamedTuple):
    """A file that a mod changes, the processes that ``imported`` it, and what it changes there."""

    path: str
    functions: tuple[RecordedFunction, ...] = ()
    imported: tuple[str, ...] = ()


class RecordedMod(NamedTuple):
    """A mod, and whether its code ran: a function was entered or, of files without one, a file imported; ``ok`` without files, too."""

    title: str
    files: tuple[RecordedFile, ...]
    ok: bool = False


class Recorded(NamedTuple):
    """What the processes of a command recorded; where a Python before 3.12 ran it, no ``functions``."""

    root: str
    mods: tuple[RecordedMod, ...]
    functions: bool = True

    @property
    def ok(self) -> bool:
        """Whether code of every mod ran."""
        return all(mod.ok for mod in self.mods)


class _Row(NamedTuple):
    pid: int
    process: str
    path: str
    line: int
    functions: bool


def begin_record(record: Folder, copy: Shadow) -> dict[str, str]:
    """Begin a record of which code of the mods in a copy runs; return the environment whose commands write it.

    Raises ``UsageError`` for a record that is there already or cannot be written.
    """
    mods = [RecordedMod(one.mod.title, tuple(_files(one.changes))) for one in copy.plan.mods]
    try:
        with open(record, "xb") as file:
            file.write(json.dumps(encode(Recorded(copy.root, tuple(mods)))).encode() + b"\n")
    except OSError as error:
        why = f"the record {record} cannot be begun: {error.strerror}"
        raise UsageError(why, hint="--record FILE  # one that does not exist yet") from error
    environ = copy.environ
    path = os.pathsep.join((_RECORDER, environ["PYTHONPATH"]))
    return {**environ, "PYTHONPATH": path, VARIABLE: os.path.abspath(record)}


def read_record(data: bytes, name: str) -> Recorded:
    """Return what a record has, which is called ``name``. Raises ``ManifestError`` for another file, ``UsageError`` where nothing is in it."""
    hint = "vllm-mods with --help  # its --record makes one"
    first, *lines = data.split(b"\n")[:-1] or [
        b""
    ]  # what a killed process began to write is no line
    recorded = decode(Recorded, json_in(first, name, hint), name, hint=hint)
    rows = [decode(_Row, json_in(line, name, hint), name, hint=hint) for line in lines]
    if not rows:
        why = f"{name} has nothing recorded: no Python of the command loaded sitecustomize"
        raise UsageError(why, hint="run the command without the flags -I, -E and -S of Python")
    processes = {row.pid: f"{row.process} ({row.pid})" for row in rows}  # by its last name
    places: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        places.setdefault((row.path, row.line), {})[processes[row.pid]] = None
    functions = all(row.functions for row in rows)
    mods = tuple(_seen(mod, places, functions=functions) for mod in recorded.mods)
    return Recorded(recorded.root, mods, functions)


def _seen(
    mod: RecordedMod, places: Mapping[tuple[str, int], Iterable[str]], *, functions: bool
) -> RecordedMod:
    def of(path: str, line: int) -> tuple[str, ...]:
        return tuple(places.get((path, line), ()))

    files = [
        RecordedFile(
            file.path,
            tuple(one._replace(entered=of(file.path, one.line)) for one in file.functions),
            of(file.path, 0),
        )
        for file in mod.files
    ]
    entered = [one.entered for file in files for one in file.functions] if functions else []
    ran = any(entered) if entered else not files or any(file.imported for file in files)
    return RecordedMod(mod.title, tuple(files), ran)


def _files(changes: Iterable[FileChange]) -> Iterable[RecordedFile]:
    for change in changes:
        if change.after is not None and change.path.endswith(".py"):
            functions = _functions(change.before, change.after)
            yield RecordedFile(
                change.path, tuple(RecordedFunction(one.name, one.start) for one in functions)
            )


def _functions(before: bytes | None, after: bytes) -> Iterable[Scope]:
    """Return the functions that a change touches, each the innermost around its lines; of a new file all."""
    try:
        scopes = read_scopes(after).definitions
    except UnparsableError:
        return ()
    found = set()
    for line in touched_lines(before, after):
        around = [one for one in scopes if one.start <= line <= one.end]
        if around and around[-1].kind != "class":
            found.add(around[-1])
    return sorted(found, key=lambda one: one.start)
