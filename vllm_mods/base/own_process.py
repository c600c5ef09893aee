"""Processes of our own, which may die, hang or be limited in our stead: how Python is started, how any is limited."""

import os
import resource
import sys

# No file can be started here: the tool may lie in one archive (zipapp), which only imports reach into.
_START = (
    "import sys; module, *sys.path[:] = sys.argv[1:]; "
    "from importlib import import_module; import_module(module).main()"
)


def limit(what: int, most: int, pid: int = 0) -> None:
    """Hold a process, this one if none is named, to ``most`` of a resource, or to less where it is held to less already.

    ``what`` is one of ``resource.RLIMIT_…``. Raises ``ProcessLookupError`` for a process that has ended.
    """
    hard = resource.getrlimit(what)[1]  # which nobody but root may raise
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.prlimit(pid, what, (bound, bound))


def command(module: str) -> list[str]:
    """Return the command that runs ``main`` of a module, which it finds as this process does."""
    places = (os.path.abspath(place) for place in sys.path if place)
    return [sys.executable, "-P", "-c", _START, module, *places]
