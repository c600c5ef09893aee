"""The bytecode that interpreters keep of a source: ``__pycache__/<stem>.<tag>.pyc`` (PEP 3147, 488)."""

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator

from vllm_mods.site.site import Look

# `<implementation>-<version>[.opt-N].pyc`; pytest adds a tag with dots of its own. Not any name
# with dots: `a.b.cpython-312.pyc` is of another module than `a`.
_TAG = r"[A-Za-z_]+-?\d.*\.pyc\Z"


def cache(source: str) -> str:
    """Return the folder that bytecode of a source lies in."""
    return f"{os.path.dirname(source)}/__pycache__".removeprefix("/")


def is_of(path: str, source: str) -> bool:
    """Tell whether a path is that of bytecode of a source, by any interpreter at any level."""
    prefix = f"{cache(source)}/{os.path.basename(source).removesuffix('.py')}."
    return path.startswith(prefix) and re.match(_TAG, path[len(prefix) :]) is not None


def of(look: Look, source: str) -> Iterator[str]:
    """Yield the paths of all bytecode that there is of a source."""
    folder = cache(source)
    paths = (f"{folder}/{name}" for name in look.names(folder))
    yield from (path for path in paths if is_of(path, source))


def forget(root: str, sources: Iterable[str]) -> list[str]:
    """Remove bytecode of changed sources from where PYTHONPYCACHEPREFIX has it; say what stays.

    It is a cache that Python fills again, outside of the tree: nothing brings it back. That which
    tells Python not to check (PEP 552) would run in place of the changed source.
    """
    named = (os.environ.get("PYTHONPYCACHEPREFIX"), sys.pycache_prefix)
    folders = [f"{os.path.realpath(prefix)}{root}" for prefix in set(filter(None, named))]
    caches = (_elsewhere(folder, source) for source in sources for folder in folders)
    stays = [place for places in caches for place in places if not _removed(place)]
    if not stays:
        return []
    note = "stale bytecode could not be removed; Python may run it instead of the new code"
    return [f"{note}: rm {' '.join(map(shlex.quote, stays))}"]


def _elsewhere(folder: str, source: str) -> list[str]:
    """Return the bytecode of a source below a folder, where it is named as in a ``__pycache__``."""
    folder = f"{folder}/{os.path.dirname(source)}".rstrip("/")
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [f"{folder}/{name}" for name in names if is_of(f"{cache(source)}/{name}", source)]


def _removed(place: str) -> bool:
    folder = os.path.dirname(place)
    if os.path.realpath(folder) != folder:
        return False  # a link leads wherever it likes
    try:
        os.unlink(place)
    except OSError:
        return False
    return True
