"""What a call runs: programs, and Python that is not this tool's own or the interpreter's."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from typing import TYPE_CHECKING, Any

import vllm_mods

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"}
# Code objects say where they come from; those that the interpreter makes itself have no file.
_OURS = (
    os.path.dirname(os.path.dirname(os.path.abspath(vllm_mods.__file__))),
    os.path.dirname(os.path.abspath(os.__file__)),
    sys.prefix,
    sys.base_prefix,
    "<",
)
_state: list[list[str]] = []


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _state:
        return
    if event in _PROGRAMS:
        _state[-1].append(f"{event}: {arguments[:2]!r}")
    elif event == "exec" and isinstance(arguments[0], types.CodeType):
        name = arguments[0].co_filename
        if not name.startswith(_OURS):
            _state[-1].append(f"exec: {name}")


sys.addaudithook(_hook)


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """Collect what is run inside the block. A hook cannot be taken away again, so there is one."""
    seen: list[str] = []
    _state.append(seen)
    try:
        yield seen
    finally:
        _state.remove(seen)
