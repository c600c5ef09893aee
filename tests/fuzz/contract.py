"""What holds for every input: a result or one of our errors, soon, and nothing outside the scratch folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from vllm_mods.base.errors import VllmModsError
from vllm_mods.fit import judge
from vllm_mods.formats import concrete_syntax
from vllm_mods.templates import rendering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SECONDS = 5.0
"""What one input may take under a fuzzer. Tests have no clock."""
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGING = {
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink",
    "os.truncate", "os.utime", "os.setxattr", "os.removexattr", "shutil.move", "shutil.rmtree",
}  # fmt: skip
_OURS = {concrete_syntax._TRIAL, rendering.SANDBOX}
"""What may be started: processes of our own, which are to break in our stead."""
_STARTING = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}


class BrokenError(Exception):
    """The contract does not hold for an input."""


class Target(NamedTuple):
    """One kind of input. ``run`` gets the bytes and an empty folder of its own."""

    name: str
    run: Callable[[bytes, str], object]
    seeds: Callable[[], tuple[bytes, ...]]
    own: tuple[type[Exception], ...] = ()
    """What its pure parser raises for wrong input, by its docstring, for its callers to turn into ours."""


class Watch:
    """Notes each write outside of a folder and each program that is started, while it is on."""

    def __init__(self) -> None:
        self.inside: tuple[str, ...] = ()
        self.seen: list[str] = []
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def over(self, *folders: str) -> Iterator[None]:
        self.inside, self.seen = folders, []
        try:
            # what an import keeps beside a module is Python's
            with mock.patch.object(sys, "dont_write_bytecode", new=True):
                yield
        finally:
            self.inside = ()

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.inside:
            return
        if event in _STARTING and not _OURS & set(map(str, arguments[1])):
            self.seen.append(f"{event} {arguments[:2]!r}")
        elif event in _CHANGING or (event == "open" and _writes(arguments)):
            paths = arguments[:2] if event in {"os.rename", "os.link"} else arguments[:1]
            for path in paths:
                if isinstance(path, str | bytes) and not self._is_inside(os.fsdecode(path)):
                    self.seen.append(f"{event} {path!r}")

    def _is_inside(self, path: str) -> bool:
        place = os.path.realpath(path)
        return path == os.devnull or any(f"{place}/".startswith(f"{one}/") for one in self.inside)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _path, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    # an unnamed temporary file lies in no folder
    return bool(flags & _WRITING) and flags & os.O_TMPFILE != os.O_TMPFILE


@contextlib.contextmanager
def _without_checker() -> Iterator[None]:
    """Leave the type checker out: a process for each input, and what it makes of one is its own business."""
    with mock.patch.object(judge, "type_problems", return_value=()):
        yield


def hold(
    target: Target, data: bytes, folder: str, watch: Watch, *, seconds: float | None = None
) -> None:
    """Give one input to a target. Raises ``BrokenError`` where the contract does not hold.

    ``seconds`` is how long it may take, of the process's own time. ``folder`` is emptied before. Temporary files may lie in ``tempfile.tempdir`` as well.
    """
    if os.listdir(folder):
        shutil.rmtree(folder)
        os.mkdir(folder)
    started = time.process_time()
    try:
        with _without_checker(), watch.over(folder, tempfile.gettempdir()):
            target.run(data, folder)
    except Exception as error:
        if not isinstance(error, (VllmModsError, *target.own)):
            raise
        if not str(error):
            raise BrokenError(f"{type(error).__name__} without a word") from error
        str(error).encode("utf-8", "surrogateescape" if _escaped(str(error)) else "strict")
    took = time.process_time() - started
    if watch.seen:
        raise BrokenError(f"outside of the folder: {watch.seen[:3]}")
    if seconds is not None and took > seconds:
        raise BrokenError(f"{took:.1f} s")


def _escaped(text: str) -> bool:
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def where(error: BaseException) -> str:
    """Return what tells one fault from another: its kind, and the innermost place of ours in it."""
    ours = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if f"{os.sep}vllm_mods{os.sep}" in frame.filename
    ]
    place = f"{os.path.basename(ours[-1].filename)}:{ours[-1].lineno}" if ours else "outside"
    return f"{type(error).__name__} {place}"


def told(error: BaseException) -> str:
    """Return an error with where it came from, cut where it repeats itself."""
    lines = traceback.format_exception(error)
    return "".join(lines if len(lines) < 60 else [*lines[:20], "  …\n", *lines[-25:]])
