"""This installation: where it comes from, and whether what it needs is there."""

from __future__ import annotations

import importlib
import os
import platform
import shutil
import sys
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vllm_mods import __version__
from vllm_mods.doctor.facts import Package, Tool
from vllm_mods.library import data_root
from vllm_mods.trees.cache import cache_folder

SINGLE_FILE = "VLLM_MODS_SINGLE_FILE"
"""Set by the file that ``tools/single_file.py`` makes: where that file is."""
_MODULES = {"gitpython": "git", "pyyaml": "yaml"}  # the others are called as they are imported


def tool() -> Tool:
    """Look at this vllm-mods. Its packages are imported: one for another Python fails only then."""
    root = data_root()
    file = os.environ.get(SINGLE_FILE)
    bundled = os.path.basename(root) == "_data"
    place = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    git = shutil.which("git")
    cache = cache_folder(os.environ)
    return Tool(
        version=__version__,
        origin="single file" if file else "wheel" if bundled else "checkout",
        place=file or (place if bundled else root),
        python=f"{platform.python_implementation()} {platform.python_version()}",
        executable=sys.executable,
        packages=tuple(_package(one, git) for one in _requirements(root)),
        git=git,
        cache=cache,
        cache_fault=_cache_fault(cache),
    )


def _requirements(root: str) -> list[Requirement]:
    try:
        lines = metadata.requires("vllm-mods") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        with open(os.path.join(root, "pyproject.toml"), "rb") as file:
            lines = tomllib.load(file)["project"]["dependencies"]
    found = map(Requirement, lines)
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def _package(wanted: Requirement, git: str | None) -> Package:
    name = str(canonicalize_name(wanted.name))
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Package(name, str(wanted.specifier), None, "it is not installed")
    fault = None
    if not wanted.specifier.contains(version, prereleases=True):
        fault = f"{wanted.specifier} is needed"
    elif name != "gitpython" or git:  # without git, that one does not load
        try:
            importlib.import_module(_MODULES.get(name, name.replace("-", "_")))
        except ImportError as error:
            said = str(error).strip() or repr(error)
            fault = f"it does not load: {said.splitlines()[0]}"
    return Package(name, str(wanted.specifier), version, fault)


def _cache_fault(folder: str) -> str | None:
    """Tell why nothing can be written in the cache, by what is there of it; nothing is made."""
    there = folder
    while not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        return f"{there} is no folder"
    return None if os.access(there, os.W_OK | os.X_OK) else f"{there} cannot be written"
