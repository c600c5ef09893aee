"""What Python loads first in a recording: it finds vLLM without what that needs, and notes who asks for the network."""

from __future__ import annotations

import contextlib
import importlib.machinery
import os
import site
import sys
import sysconfig
from typing import Any


class VllmFinder:
    """Finds vLLM where it lies. Its ``__init__`` is not run: it needs torch, and may want a GPU."""

    @staticmethod
    def find_spec(name: str, path: Any = None, _target: Any = None) -> Any:
        """Return the module with a loader that goes on where an import fails."""
        if name.partition(".")[0] != "vllm":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.loader is not None:
            spec.loader = TolerantLoader(spec.loader)  # type: ignore[assignment]
        return spec


class TolerantLoader:
    """Runs as much of a module of vLLM as goes without what it imports."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, _spec: Any) -> None:
        """Leave it to Python."""

    def exec_module(self, module: Any) -> None:
        """Run a module, but not the package itself."""
        if module.__name__ != "vllm":
            with contextlib.suppress(ImportError):
                self.loader.exec_module(module)
        if module.__name__ in ("vllm", "vllm.version", "vllm._version"):
            module.__version__ = module.version = os.environ["VLLM_MODS_VERSION"]


def note_network(event: str, arguments: tuple[Any, ...]) -> None:
    """Note who looks up a name or connects to an address, as the stand-ins note what fails."""
    if event == "socket.getaddrinfo":
        where = arguments[0]
    elif event == "socket.connect" and isinstance(arguments[1], tuple):
        where = arguments[1]
    else:
        return
    parts = ("1", os.environ.get("VLLM_MODS_LINE", ""), "network", str(where))
    with open(os.path.join(os.environ["VLLM_MODS_HOME"], "asked"), "ab") as log:
        log.write(b"".join(part.encode("utf-8", "replace") + b"\0" for part in parts) + b"\n")


def install(root: str) -> None:
    """Have Python say that its packages lie in ``root``."""
    paths = sysconfig.get_paths

    def get_paths(*given: Any, **named: Any) -> Any:
        return {**paths(*given, **named), "purelib": root, "platlib": root}

    site.getsitepackages = lambda _prefixes=None: [root]  # type: ignore[assignment]
    sysconfig.get_paths = get_paths
    sysconfig.get_path = lambda name, *given, **named: get_paths(*given, **named)[name]
    sys.meta_path.insert(0, VllmFinder)
    sys.addaudithook(note_network)


if "VLLM_MODS_HOME" in os.environ:
    install(os.environ["PYTHON_ROOT"])
