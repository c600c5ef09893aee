"""Our own Python in a process of its own: one that may die, hang or be limited in our stead."""

from __future__ import annotations

import os
import sys

# No file can be started here: the tool may lie in one archive (zipapp), which only imports reach into.
_START = (
    "import sys; module, *sys.path[:] = sys.argv[1:]; "
    "from importlib import import_module; import_module(module).main()"
)


def command(module: str) -> list[str]:
    """Return the command that runs ``main`` of a module, which it finds as this process does."""
    places = (os.path.abspath(place) for place in sys.path if place)
    return [sys.executable, "-P", "-c", _START, module, *places]
