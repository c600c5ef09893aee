"""Where Python finds a vLLM, told without importing one."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from vllm_mods.doctor.facts import Other

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PYTHON = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python(?P<minor>3\.\d+)/(?:site|dist)-packages\Z")


def here() -> str | None:
    """Return the site root of the vLLM that the running Python would import, None if there is none.

    The current folder is left out, unless PYTHONPATH names it: a program that is installed does not
    look there.
    """
    for folder in _search_path(os.environ, sys.path):
        if _holds(folder):
            return folder
    return _editable()


def elsewhere(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return site roots with a vLLM in the environments that are active, and in the system."""
    program = shutil.which("python3", path=environ.get("PATH"))
    prefixes = [
        environ.get("VIRTUAL_ENV"),
        environ.get("CONDA_PREFIX"),
        program and os.path.dirname(os.path.dirname(program)),
        "/usr/local",
        "/usr",
    ]
    found: dict[str, None] = {}
    for prefix in filter(None, prefixes):
        pattern = os.path.join(glob.escape(prefix), "lib", "python3*", "*-packages", "vllm")
        for place in sorted(glob.glob(pattern)):
            folder = os.path.dirname(place)
            if _holds(folder):
                found[os.path.realpath(folder)] = None
    return tuple(found)


def others(root: str, environ: Mapping[str, str], path: Sequence[str]) -> tuple[Other, ...]:
    """Return every other vLLM that Python could take for the one in ``root``.

    ``path`` is the running Python's; where ``root`` is not on it, another Python's is, of which only
    PYTHONPATH and the user's own packages can be told.
    """
    found: dict[str, Other] = {}
    ours = [os.path.realpath(folder) for folder in _search_path(environ, path)]
    if root in ours:
        before = True
        for folder in ours:
            before = before and folder != root
            if folder != root and _holds(folder):
                found.setdefault(folder, Other(folder, "it is on Python's search path", before))
    else:
        for folder, why in _foreign(root, environ):
            if folder == root:
                break
            if _holds(folder):
                found.setdefault(folder, Other(folder, why, first=True))
    current = os.path.realpath(_current())
    if current not in {root, *found} and _holds(current):
        why = "it is the current folder, where `python -m` and `python -c` look first"
        found[current] = Other(current, why, first=False)
    return tuple(found.values())


def _search_path(environ: Mapping[str, str], path: Sequence[str]) -> list[str]:
    named = environ.get("PYTHONPATH", "").split(os.pathsep)
    current = _current()
    return [folder for folder in path if folder and (folder != current or folder in named)]


def _current() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed
        return "/"


def _foreign(root: str, environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield where the Python that ``root`` belongs to looks before it comes there."""
    for folder in environ.get("PYTHONPATH", "").split(os.pathsep):
        if folder:
            yield os.path.realpath(folder), "PYTHONPATH names it"
    match = _PYTHON.match(root)
    if match is None or os.path.exists(f"{match['prefix']}/pyvenv.cfg"):
        return  # in an environment the user's own packages are not looked at
    base = environ.get("PYTHONUSERBASE") or os.path.join(os.path.expanduser("~"), ".local")
    folder = os.path.join(base, "lib", f"python{match['minor']}", "site-packages")
    yield os.path.realpath(folder), "Python looks among the user's own packages first"


def _holds(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "vllm", "__init__.py"))


def _editable() -> str | None:
    """Return where an editable install has its source (PEP 610)."""
    try:
        raw = metadata.distribution("vllm").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None
    try:
        said = json.loads(raw or "null")
        folder = unquote(urlsplit(said["url"]).path)
        editable = said["dir_info"].get("editable", False)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if editable and _holds(folder) else None
