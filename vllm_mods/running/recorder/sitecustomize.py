"""What Python loads first in a command that is recorded: it notes which of the mods' files are imported and which functions run.

Every process appends its lines to the record, whose first line says what to look for. It needs ``sys.monitoring``, of Python 3.12.
"""

import atexit
import contextlib
import importlib
import json
import os
import sys
from types import CodeType
from typing import Any

_RECORD = os.environ.get("RECORD_OF_VLLM_MODS", "")
_MODULE = 0
"""The line that stands for the module itself."""
_MONITORING: Any = getattr(sys, "monitoring", None)


class Recorder:
    """Notes what starts to run; each is asked about once, and costs nothing from then on."""

    def __init__(self, header: dict[str, Any]) -> None:
        self.root = header["root"]
        self.names: dict[str, dict[int, str]] = {}
        for file in (file for mod in header["mods"] for file in mod["files"]):
            names = self.names.setdefault(f"{self.root}/{file['path']}", {_MODULE: "<module>"})
            names |= {one["line"]: one["name"].rpartition(".")[2] for one in file["functions"]}
        self.imported = [self.root]  # so that a reader knows that this process is looked at
        self.forked("")
        tool = next(tool for tool in (4, 3, 1) if _MONITORING.get_tool(tool) is None)
        _MONITORING.use_tool_id(tool, "vllm-mods")
        event = _MONITORING.events.PY_START
        _MONITORING.register_callback(tool, event, self.started)
        _MONITORING.set_events(tool, event)
        atexit.register(_MONITORING.set_events, tool, 0)  # what ends has no modules any more
        os.register_at_fork(after_in_child=self.forked)

    def started(self, code: CodeType, _offset: int) -> object:
        """Note code that starts to run, and be told of it no more."""
        path, name = code.co_filename, code.co_name
        line = _MODULE if name == "<module>" else code.co_firstlineno
        if self.names.get(path, {}).get(line) == name:  # a lambda in its head is on the same line
            self.imported += [path] if line == _MODULE else []
            self.note(path, line)
        return _MONITORING.DISABLE

    def forked(self, before: str = "fork of ") -> None:
        """Note what a forked process has of its parent, and be told once more of what starts."""
        for path in self.imported:
            self.note(path, _MODULE, before)
        _MONITORING.restart_events()

    def note(self, path: str, line: int, before: str = "") -> None:
        """Append a line to the record, in one write: other processes append, too."""
        processes = sys.modules.get("multiprocessing.process")
        name = before + (processes.current_process().name if processes else "MainProcess")
        row = {"process": name, "pid": os.getpid(), "path": path, "line": line}
        with contextlib.suppress(OSError), open(_RECORD, "ab", buffering=0) as record:
            record.write(json.dumps(row).encode() + b"\n")


def load_next() -> None:
    """Load the ``sitecustomize`` that the environment has itself."""
    here = os.path.dirname(__file__)
    sys.path[:] = [folder for folder in sys.path if folder != here]
    own = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError:
        sys.modules["sitecustomize"] = own


if _RECORD:
    if _MONITORING is not None:
        with contextlib.suppress(OSError, ValueError), open(_RECORD, "rb") as read:
            Recorder(json.loads(read.readline()))
    load_next()
