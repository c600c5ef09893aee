"""Where a project's file is: one rule for its libraries, its targets and its trust.

It is the file that ``VLLM_MODS_CONFIG`` names; else ``vllm-mods.toml``, or ``pyproject.toml`` with a
``[tool.vllm-mods]``, in the current folder or, inside of a repository, in the nearest one above it.
"""

import os

from vllm_mods.base.errors import UsageError
from vllm_mods.formats import project
from vllm_mods.library import reading

NAME = "vllm-mods.toml"
PYPROJECT = "pyproject.toml"
CONFIG = "VLLM_MODS_CONFIG"


def find() -> project.ProjectFile | None:
    """Read the project that holds here, None where there is none.

    Raises ``UsageError`` for two in one folder and for somebody else's above the current folder,
    ``ManifestError`` for one that cannot be read.
    """
    if named := os.environ.get(CONFIG):
        return read(os.path.abspath(named), must=True)
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        return None
    for folder in _upwards(here):
        places = [os.path.join(folder, name) for name in (NAME, PYPROJECT)]
        projects = [one for one in map(read, places) if one is not None]
        if len(projects) > 1:
            why = f"{places[0]} and [tool.vllm-mods] of {places[1]} are two settings files of one project"
            raise UsageError(why, hint="keep one of them")
        for project_here in projects:
            if folder != here and os.stat(project_here.where).st_uid not in {os.geteuid(), 0}:
                why = f"{project_here.where}, in a parent folder, belongs to another user"
                hint = f"{CONFIG}={project_here.where} vllm-mods …  # if you trust it"
                raise UsageError(why, hint=hint)
            return project_here
    return None


def read(where: str, *, must: bool = False) -> project.ProjectFile | None:
    """Read a file as a project, None if there is none in it. Raises as ``find``."""
    if not must:
        if not os.path.lexists(where):
            return None
        if not os.path.isfile(where):  # a pipe that nobody named would be waited for
            raise UsageError(f"{where} is not a regular file", hint=f"ls -l {where}")
    data = reading.read(where, None)
    if data is None:
        raise UsageError(f"{where}: no such file", hint=f"unset {CONFIG}, or set it to a file")
    if where.endswith(PYPROJECT) and b"vllm-mods" not in data:
        return None
    return project.parse(data, where)


def _upwards(here: str) -> list[str]:
    """Return a folder and those above it up to its repository's; without a repository, the folder alone."""
    folders = [here]
    while not os.path.lexists(os.path.join(folders[-1], ".git")):
        above = os.path.dirname(folders[-1])
        if above == folders[-1]:
            return [here]
        folders.append(above)
    return folders
