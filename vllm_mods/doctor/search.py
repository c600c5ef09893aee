"""Where Python finds a vLLM, and what runs one, told without importing any."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
import sys
import time
from importlib import metadata
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from vllm_mods.formats import receipt

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_PYTHON = re.compile(r"(?P<prefix>.*)/lib(?:64)?/python(?P<minor>3\.\d+)/(?:site|dist)-packages\Z")


def here() -> str | None:
    """Return the site root of the vLLM that the running Python would import, None if there is none."""
    found = (folder for folder in _path(os.environ, sys.path) if _holds(folder))
    return next(found, None) or _editable()


def elsewhere(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return site roots with a vLLM in the environments that are active, and in the system."""
    program = shutil.which("python3", path=environ.get("PATH"))
    active = [environ.get("VIRTUAL_ENV"), environ.get("CONDA_PREFIX")]
    prefixes = [
        *active,
        program and os.path.dirname(os.path.dirname(program)),
        "/usr/local",
        "/usr",
    ]
    found = (
        os.path.realpath(folder)
        for prefix in filter(None, prefixes)
        for folder in sorted(glob.glob(f"{glob.escape(prefix)}/lib/python3*/*-packages"))
        if _holds(folder)
    )
    return tuple(dict.fromkeys(found))


def before(root: str, environ: Mapping[str, str], path: Sequence[str]) -> str | None:
    """Return the site root of a vLLM that Python would take for the one in ``root``.

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
    first = next((folder for folder in folders if folder == root or _holds(folder)), root)
    return None if first == root else first


def old_processes(root: str) -> Iterator[tuple[str, str, str]]:
    """Yield pid, name and file of processes that mapped a file of ``vllm/`` before the mods came.

    Python's own source files are not mapped, so a process that loaded none of vLLM's extensions is not
    seen, nor one of somebody else, nor one in a container: its paths are others.
    """
    try:  # its mtime may be a stated one; this is not
        since = os.stat(f"{root}/{receipt.RECEIPT}").st_ctime
    except OSError:
        return
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    wanted = re.compile(re.escape(f" {root}/vllm/") + r".*")
    for pid in filter(str.isdigit, os.listdir("/proc")):
        match = wanted.search(_text(f"/proc/{pid}/maps"))
        if match is None:
            continue
        # pid (comm) state …: the name may hold spaces and parentheses (proc(5))
        head, _, tail = _text(f"/proc/{pid}/stat").rpartition(")")
        started = tail.split()[19:20]
        if started and boot + int(started[0]) / os.sysconf("SC_CLK_TCK") < since:
            yield pid, head.partition("(")[2], match[0].strip().removesuffix(" (deleted)")


def _text(path: str) -> str:
    """Return a file, nothing where it may not be read or is gone by now."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _path(environ: Mapping[str, str], path: Sequence[str]) -> list[str]:
    """Return the search path without the current folder: an installed program does not look there."""
    named = environ.get("PYTHONPATH", "").split(os.pathsep)
    try:
        current = os.getcwd()
    except FileNotFoundError:  # it was removed
        current = "/"
    return [folder for folder in path if folder and (folder != current or folder in named)]


def _holds(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, "vllm", "__init__.py"))


def _editable() -> str | None:
    """Return where an editable install has its source (PEP 610)."""
    try:
        said = json.loads(metadata.distribution("vllm").read_text("direct_url.json") or "null")
        folder = unquote(urlsplit(said["url"]).path)
        editable = said["dir_info"].get("editable", False)
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return folder if editable and _holds(folder) else None
