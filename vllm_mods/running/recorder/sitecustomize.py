"""What Python loads first in a command that is recorded: it notes which of the mods' files are imported and which functions run.

Every process of the command appends its lines to the record, whose first line says what to look for.
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
_MONITORING: Any = getattr(sys, "monitoring", None)  # from Python 3.12


class Recorder:
    """Notes what starts to run; each is asked about once, and costs nothing from then on."""

    def __init__(self, header: dict[str, Any]) -> None:
        files = [file for mod in header["mods"] for file in mod["files"]]
        self.lines: dict[str, set[int]] = {}
        for file in files:
            wanted = self.lines.setdefault(f"{header['root']}/{file['path']}", set())
            wanted.update((_MODULE, *(function["line"] for function in file["functions"])))
        self.root = header["root"]
        self.imported: list[str] = []

    def start(self) -> None:
        """Be told of code that starts: of functions too where Python has ``sys.monitoring``."""
        self.note(self.root, _MODULE)  # so that a reader knows that this process is looked at
        os.register_at_fork(after_in_child=self.forked)
        if _MONITORING is None:
            sys.addaudithook(self.audited)
            return
        tool = next(tool for tool in (4, 3, 1) if _MONITORING.get_tool(tool) is None)
        _MONITORING.use_tool_id(tool, "vllm-mods")
        event = _MONITORING.events.PY_START
        _MONITORING.register_callback(tool, event, self.started)
        _MONITORING.set_events(tool, event)
        atexit.register(_MONITORING.set_events, tool, 0)  # what ends has no modules any more

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Note a module whose code is executed (https://docs.python.org/3/library/audit_events.html)."""
        if event == "exec" and isinstance(arguments[0], CodeType):
            self.started(arguments[0])

    def started(self, code: CodeType, _offset: int = 0) -> object:
        """Note code that starts to run, and be told of it no more."""
        wanted = self.lines.get(code.co_filename)
        line = _MODULE if code.co_name == "<module>" else code.co_firstlineno
        if wanted is not None and line in wanted:
            self.note(code.co_filename, line)
        return _MONITORING and _MONITORING.DISABLE

    def forked(self) -> None:
        """Note what a forked process has of its parent, and be told once more of what starts."""
        for path in self.imported:
            self.note(path, _MODULE, "fork of ")
        if _MONITORING is not None:
            _MONITORING.restart_events()

    def note(self, path: str, line: int, before: str = "") -> None:
        """Append a line to the record, in one write: other processes append, too."""
        if line == _MODULE and path not in self.imported:
            self.imported.append(path)
        processes = sys.modules.get("multiprocessing.process")
        row = {
            "pid": os.getpid(),
            "process": before + (processes.current_process().name if processes else "MainProcess"),
            "path": os.path.relpath(path, self.root),
            "line": line,
            "functions": _MONITORING is not None,
        }
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
    with contextlib.suppress(OSError, ValueError), open(_RECORD, "rb") as read:
        Recorder(json.loads(read.readline())).start()
    load_next()
