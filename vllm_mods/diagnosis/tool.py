"""This installation: where it comes from, and whether what it needs is there."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
from importlib import metadata
from typing import NamedTuple

from packaging.requirements import Requirement

from vllm_mods import __version__
from vllm_mods.base.cache import cache_folder
from vllm_mods.library.mod_folder import data_root

SINGLE_FILE = "VLLM_MODS_SINGLE_FILE"
"""Set by the file that ``tools/single_file.py`` makes: where that file is."""
_MODULES = {
    "backports-zstd": "backports.zstd",
    "gitpython": "git",
    "pyyaml": "yaml",
}  # the others are called as they are imported


class Package(NamedTuple):
    """A package that vllm-mods needs; ``fault`` is why it is no good, None if it is good."""

    name: str
    needs: str
    version: str | None
    fault: str | None


class Tool(NamedTuple):
    """This vllm-mods. ``origin`` is ``wheel``, ``checkout`` or ``single file``, ``place`` where.

    ``cache_fault`` is why nothing can be kept in the cache folder, None if it can.
    """

    version: str
    origin: str
    place: str
    python: str
    executable: str
    packages: tuple[Package, ...]
    git: str | None
    cache: str
    cache_fault: str | None


def tool() -> Tool:
    """Look at this vllm-mods. Its packages are imported: one for another Python fails only then."""
    file, root = os.environ.get(SINGLE_FILE), data_root()
    bundled = os.path.basename(root) == "_data"
    try:
        needs = [Requirement(line) for line in metadata.requires("vllm-mods") or ()]
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        needs = []
    return Tool(
        version=__version__,
        origin="single file" if file else "wheel" if bundled else "checkout",
        place=file or (os.path.dirname(root) if bundled else root),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        packages=tuple(
            _package(one) for one in needs if not one.marker or one.marker.evaluate({"extra": ""})
        ),
        git=shutil.which("git"),
        cache=cache_folder(os.environ),
        cache_fault=_cache_fault(cache_folder(os.environ)),
    )


def _package(wanted: Requirement) -> Package:
    name, version, fault = wanted.name.lower(), None, None
    try:
        version = metadata.version(name)
        if not wanted.specifier.contains(version, prereleases=True):
            fault = f"{wanted.specifier} is needed"
        elif name != "gitpython" or shutil.which("git"):  # without git, that one does not load
            importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
    except metadata.PackageNotFoundError:
        fault = "it is not installed"
    except ImportError as error:
        fault = f"it does not load: {(str(error).strip() or repr(error)).splitlines()[0]}"
    return Package(name, str(wanted.specifier), version, fault)


def _cache_fault(folder: str) -> str | None:
    """Tell why nothing can be written in the cache, by what is there of it; nothing is made."""
    above = folder
    while not os.path.lexists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        return f"{above} is no folder"
    return None if os.access(above, os.W_OK | os.X_OK) else f"{above} cannot be written"
