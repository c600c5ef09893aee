"""The vLLMs in the Python environments of this machine, found by where each tool keeps its own. Nothing is started."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from vllm_mods.doctor import search


class Installed(NamedTuple):
    """A vLLM: the folder that holds it, and whose environment that is."""

    root: str
    owner: str


def found(environ: Mapping[str, str]) -> tuple[Installed, ...]:
    """Return every vLLM once, that of the active environment first.

    The others are in ``.venv`` here, uv's tools, pipx's, conda's list of environments, the user's own
    packages and the system's.
    """
    places = [Installed(root, "the active environment") for root in search.active(environ)]
    for prefix, owner in _prefixes(environ):
        places += [Installed(root, owner) for root in search.in_prefix(prefix)]
    first: dict[str, Installed] = {}
    for one in places:
        first.setdefault(one.root, one)
    return tuple(first.values())


def _prefixes(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    home = os.path.expanduser("~")
    data = environ.get("XDG_DATA_HOME") or f"{home}/.local/share"
    yield search.of_program(environ), "python3 in PATH"
    yield os.path.abspath(".venv"), ".venv here"
    for owner, folder in (
        ("uv tool", environ.get("UV_TOOL_DIR") or f"{data}/uv/tools"),
        ("pipx", f"{environ.get('PIPX_HOME') or f'{data}/pipx'}/venvs"),
    ):
        for prefix in sorted(glob.glob(f"{glob.escape(folder)}/*")):
            yield prefix, f"{owner} {os.path.basename(prefix)}"
    # conda writes the prefix of each environment that it makes there
    for prefix in search.text(f"{home}/.conda/environments.txt").splitlines():
        yield prefix, f"conda {os.path.basename(prefix)}"
    yield f"{home}/.local", "the user's own packages"
    yield "/usr/local", "the system"
    yield "/usr", "the system"
