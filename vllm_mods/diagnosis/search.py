"""Where Python finds a vLLM, where each tool keeps its own, and what runs one: nothing is imported or started."""

import contextlib
import glob
import itertools
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from urllib.parse import unquote, urlsplit

from vllm_mods.base import limits
from vllm_mods.trees.folder import MARKER, roots_in

_PYTHON = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python(?P<minor>3\.\d+)/(?:site|dist)-packages\Z")


def here() -> str | None:
    """Return the site root of the vLLM that the running Python would import, None if there is none."""
    return next(filter(_holds, _path(os.environ, sys.path)), None) or _editable()


def active(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the site roots of the vLLMs that this Python or the active environment would import."""
    mine = here()
    named = [environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")]
    prefixes = [one for one in named if one] or [_of_program(environ)]
    roots = [root for prefix in prefixes for root in roots_in(prefix)]
    return tuple(dict.fromkeys((*([os.path.realpath(mine)] if mine else ()), *roots)))


def _of_program(environ: Mapping[str, str]) -> str:
    """Return the prefix of the ``python3`` in PATH, nothing where there is none."""
    program = shutil.which("python3", path=environ.get("PATH"))
    return os.path.dirname(os.path.dirname(program)) if program else ""


def installed(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the site root of every vLLM once, those of the active environment first.

    The others are in ``.venv`` here, uv's tools, pipx's, conda's list of environments, the user's own
    packages and the system's.
    """
    found = (root for prefix in _prefixes(environ) for root in roots_in(prefix))
    return tuple(dict.fromkeys((*active(environ), *found)))


def _prefixes(environ: Mapping[str, str]) -> Iterator[str]:
    home = os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    yield _of_program(environ)
    yield os.path.abspath(".venv")
    uv = environ.get("UV_TOOL_DIR") or f"{data}/uv/tools"
    for folder in (uv, f"{environ.get('PIPX_HOME') or f'{data}/pipx'}/venvs"):
        yield from sorted(glob.glob(f"{glob.escape(folder)}/*"))
    # conda writes the prefix of each environment that it makes there
    yield from text(f"{home}/.conda/environments.txt").splitlines()
    yield from (f"{home}/.local", "/usr/local", "/usr")


def ahead_of(root: str, environ: Mapping[str, str], path: Sequence[str]) -> str | None:
    """Return the folder of another vLLM that Python would find before the one in ``root``, if there is one.

    ``path`` is the running Python's; where ``root`` is not on it, another Python's is, of which only
    PYTHONPATH and the user's own packages can be told.
    """
    folders = [os.path.realpath(folder) for folder in _path(environ, path)]
    if root not in folders:
        named = environ.get("PYTHONPATH", "").split(os.pathsep)
        folders = [os.path.realpath(folder) for folder in named if folder]
        match = _PYTHON.match(root)
        # In an environment the user's own packages are not looked at.
        if match is not None and not os.path.exists(f"{match['prefix']}/pyvenv.cfg"):
            base = environ.get("PYTHONUSERBASE") or os.path.expanduser("~/.local")
            folders.append(os.path.realpath(f"{base}/lib/python{match['minor']}/site-packages"))
    ahead = itertools.takewhile(lambda folder: folder != root, folders)
    return next((folder for folder in ahead if _holds(folder)), None)


def text(path: str) -> str:
    """Return a file, nothing where it may not be read, is too much, is gone by now, or is none, as a pipe."""
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            data = file.read(limits.RECEIPT + 1)
    except OSError:
        return ""
    return data if len(data) <= limits.RECEIPT else ""


def _path(environ: Mapping[str, str], path: Sequence[str]) -> list[str]:
    """Return the search path without the current folder: an installed program does not look there."""
    named = environ.get("PYTHONPATH", "").split(os.pathsep)
    current = ""
    with contextlib.suppress(FileNotFoundError):  # it was removed
        current = os.getcwd()
    return [folder for folder in path if folder and (folder != current or folder in named)]


def _holds(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, MARKER))


def _editable() -> str | None:
    """Return where an editable install has its source (PEP 610)."""
    try:
        origin = json.loads(metadata.distribution("vllm").read_text("direct_url.json") or "null")
        folder = unquote(urlsplit(origin["url"]).path)
        editable = origin["dir_info"].get("editable", False)
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if editable and _holds(folder) else None
