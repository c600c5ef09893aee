"""Which of the mods' code ran in a command, by what each of its processes recorded of its imports and calls."""

import json
import os
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from vllm_mods.applying.shadow import Shadow
from vllm_mods.base.errors import Refused, TreeError, UsageError
from vllm_mods.base.model import ModPlan, Plan
from vllm_mods.base.tree import Folder
from vllm_mods.base.untrusted import json_in
from vllm_mods.fit.lines import touched_lines
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.formats.schema import decode, encode
from vllm_mods.formats.syntax_tree import Scope
from vllm_mods.images import engine_command
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.running.bound import bind
from vllm_mods.running.service import Mount, Service, check_mounts, inside


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
    """A mod, and the Python that it changes."""

    title: str
    files: tuple[RecordedFile, ...]

    @property
    def ran(self) -> bool:
        """Whether one of its functions was entered or, if it changes none, one of its files imported."""
        functions = [function for file in self.files for function in file.functions]
        return any(function.entered for function in functions) or (
            not functions and any(file.imported for file in self.files)
        )


class Recorded(NamedTuple):
    """What the processes of a command recorded of the code that they have from ``root``."""

    root: str
    mods: tuple[RecordedMod, ...]


_RECORDER = os.path.join(os.path.dirname(__file__), "recorder")
_VARIABLE = "RECORD_OF_VLLM_MODS"  # vLLM warns of variables that begin with its own name
_INSIDE = "/vllm-mods"
"""Where containers have the recorder and the record."""


class _Noted(NamedTuple):
    process: str
    pid: int
    path: str
    line: int


def begin_record(record: Folder, copy: Shadow) -> dict[str, str]:
    """Begin a record of which code of the mods in a copy runs; return the environment whose commands write it.

    It needs Python 3.12. Raises ``UsageError`` for a record that is there already or cannot be written.

    >>> with vm.shadow(vm.Library("library").mods("fast"), "site-packages") as copy:
    ...     "PYTHONPATH" in vm.begin_record("run.jsonl", copy)
    True
    """
    _begin(record, copy.root, copy.plan)
    path = os.pathsep.join((_RECORDER, copy.environ["PYTHONPATH"]))
    return {**copy.environ, "PYTHONPATH": path, _VARIABLE: os.path.abspath(record)}


def _begin(record: Folder, root: str, plan: Plan) -> None:
    mods = [RecordedMod(mod.mod.title, (*_files(mod, plan),)) for mod in plan.mods]
    try:
        with open(record, "xb") as file:
            file.write(json.dumps(encode(Recorded(root, tuple(mods)))).encode() + b"\n")
    except OSError as error:
        why = f"the record {record} cannot be created: {error.strerror}"
        raise UsageError(why, hint="name a file that does not exist yet") from error


def record_service(
    record: str, program: str, planned: Service, root: str, plan: Plan, *, path: str | None
) -> Service:
    """Begin a record of what a ``plan`` made at ``root`` in a container, whose image has the PYTHONPATH ``path``; return what then writes it.

    The Python of the image is started once. Raises as ``begin_record`` and ``check_record``.
    """
    record = os.path.abspath(record)
    code = (files(__package__) / "recorder" / "sitecustomize.py").read_bytes()
    recorder = bind(code, f"{_INSIDE}/recorder/sitecustomize.py")
    written = Mount(record, f"{_INSIDE}/record")
    check_mounts((written,), "--record FILE  # another file")
    path = ":".join(filter(None, (os.path.dirname(recorder.target), path)))
    recorded = planned._replace(
        mounts=(*planned.mounts, recorder, written),
        added={**planned.added, "PYTHONPATH": path, _VARIABLE: written.target},
    )
    _begin(record, root, plan)
    try:
        os.chmod(record, 0o666)  # noqa: S103  (an image may have a user of its own)
        once = ("run", "--rm", "--network=none", *inside(recorded), "--entrypoint=python3")
        engine_command.call(program, *once, planned.image, "-c", "")
        check_record(record, planned.image)
    except TreeError:
        os.unlink(record)
        raise
    return recorded


def check_record(record: Folder, program: str) -> None:
    """Check that the Python of a program, which was started once, writes the record; else raise ``Refused``, without it."""
    with open(record, "rb") as file:
        if len(file.readlines()) > 1:
            return
    os.unlink(record)
    why = f"the Python of {program} records nothing, because it is older than 3.12 or is started with a flag that ignores sitecustomize"
    raise Refused(why, hint="leave out --record")


def read_record(data: bytes, name: str) -> Recorded:
    r"""Return what a record has, which is called ``name``. Raises ``ManifestError`` for what is no record, ``UsageError`` for an empty one.

    >>> vm.read_record(b'{"root": "/copy", "mods": []}\n', "run.jsonl")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: run.jsonl is empty: the recorded command started no Python, or only a Python older than 3.12
    """
    hint = f"vllm-mods with MOD --record {name} -- COMMAND  # makes a record"
    first, *lines = data.split(b"\n")[:-1] or [b""]  # behind the last: what a killed process began
    recorded = decode(Recorded, json_in(first, name, hint), name, hint=hint)
    rows = [decode(_Noted, json_in(line, name, hint), name, hint=hint) for line in lines]
    if not rows:
        why = f"{name} is empty: the recorded command started no Python, or only a Python older than 3.12"
        raise UsageError(why, hint=hint)
    processes = {row.pid: f"{row.process} ({row.pid})" for row in rows}  # by its last name
    ran: dict[tuple[str, int], dict[str, None]] = {}
    for row in rows:
        ran.setdefault((row.path, row.line), {})[processes[row.pid]] = None

    def seen(path: str, line: int = 0) -> tuple[str, ...]:
        return tuple(ran.get((f"{recorded.root}/{path}", line), ()))

    def filled(file: RecordedFile) -> RecordedFile:
        functions = (each._replace(entered=seen(file.path, each.line)) for each in file.functions)
        return RecordedFile(file.path, tuple(functions), seen(file.path))

    mods = (mod._replace(files=tuple(map(filled, mod.files))) for mod in recorded.mods)
    return recorded._replace(mods=tuple(mods))


def _files(mod: ModPlan, plan: Plan) -> Iterator[RecordedFile]:
    last = {change.path: change.after for change in plan.changes}
    for change in mod.changes:
        if change.after is not None and change.path.endswith(".py"):
            changed = change.before, change.after, last.get(change.path) or change.after
            named = (RecordedFunction(scope.name, scope.start) for scope in _functions(*changed))
            yield RecordedFile(change.path, tuple(named))


def _functions(before: bytes | None, after: bytes, last: bytes) -> list[Scope]:
    """Return the functions that a change touches, each the innermost around its lines, where they ``last`` are: other mods may move them."""
    try:
        scopes, moved = read_scopes(after).definitions, read_scopes(last).definitions
    except UnparsableError:
        return []
    around = ([s for s in scopes if s.start <= at <= s.end] for at in touched_lines(before, after))
    found = {some[-1] for some in around if some and some[-1].kind != "class"}
    if last != after:
        found = {scope for scope in moved if scope.name in {touched.name for touched in found}}
    return sorted(found, key=lambda scope: scope.start)
