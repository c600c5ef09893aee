"""What the doctor found: of this installation, and of a tree."""

import os
import platform
import shutil
import sys
from typing import NamedTuple

from vllm_mods import __version__
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.base.tree import Tree
from vllm_mods.diagnosis.listing import Listed
from vllm_mods.formats.receipt import Receipt
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


class Trouble(NamedTuple):
    """One thing that is wrong (``ERROR``) or good to know (``NOTE``), and what to do about it."""

    code: FindingCode
    message: str
    hint: str | None = None
    level: Level = Level.ERROR


class Examined(NamedTuple):
    """The tree that was asked about, and the list of its files, if it has one."""

    tree: Tree
    kind: str
    version: str | None
    receipt: Receipt | None
    listed: Listed | None


class Diagnosis(NamedTuple):
    """Everything. ``elsewhere`` are trees that were found while none was named."""

    tool: Tool
    target: Examined | None
    elsewhere: tuple[str, ...]
    troubles: tuple[Trouble, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found to be wrong."""
        return not any(one.level is Level.ERROR for one in self.troubles)


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
