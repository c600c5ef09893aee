"""This installation: what it is, and where it comes from."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from typing import NamedTuple

from vllm_mods import __version__
from vllm_mods.base.cache import cache_folder
from vllm_mods.library.mod_folder import data_root

SINGLE_FILE = "VLLM_MODS_SINGLE_FILE"
"""Set by the file that ``tools/single_file.py`` makes: where that file is."""


class Tool(NamedTuple):
    """This vllm-mods. ``origin`` is ``wheel``, ``checkout`` or ``single file``, ``place`` where."""

    version: str
    origin: str
    place: str
    python: str
    executable: str
    git: str | None
    cache: str


def tool() -> Tool:
    """Look at this vllm-mods."""
    file, root = os.environ.get(SINGLE_FILE), data_root()
    bundled = os.path.basename(root) == "_data"
    return Tool(
        version=__version__,
        origin="single file" if file else "wheel" if bundled else "checkout",
        place=file or (os.path.dirname(root) if bundled else root),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        git=shutil.which("git"),
        cache=cache_folder(os.environ),
    )
