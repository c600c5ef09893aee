"""The library in an installed distribution, which says where it is by an entry point of the group ``vllm_mods.libraries``.

The value is a package; that is found, and nothing of it is imported.
"""

from __future__ import annotations

import os
from importlib import metadata
from importlib.machinery import PathFinder

from packaging.version import parse as parse_version

from vllm_mods.base.errors import UsageError

GROUP = "vllm_mods.libraries"


def installed(name: str) -> tuple[str, str]:
    """Return the version of an installed distribution, and the folder of its library. Raises ``UsageError``."""
    try:
        distribution = metadata.distribution(name)
    except metadata.PackageNotFoundError as error:
        raise UsageError(
            f"package:{name}: no such distribution is installed where vllm-mods is",
            hint=f"pip install {name}",
        ) from error
    try:
        packages = [one.value for one in distribution.entry_points.select(group=GROUP)]
        parse_version(distribution.version)
    except (ValueError, TypeError) as error:  # no UTF-8, no entry points, no version
        raise UsageError(
            f"package:{name}: what pip wrote of it is damaged: {error}",
            hint=f"pip install --force-reinstall {name}",
        ) from error
    if len(packages) != 1:
        raise UsageError(
            f"package:{name}: {distribution.version} has {len(packages)} entry points in {GROUP}, and not one",
            hint="it brings no library; does another distribution?",
        )
    places: list[str] | None = None
    for end in range(1, len(parts := packages[0].split(".")) + 1):
        spec = PathFinder.find_spec(".".join(parts[:end]), places)  # runs no code of it
        places = list(spec.submodule_search_locations or ()) if spec else []
    folder = next((place for place in places or () if os.path.isdir(place)), None)
    if folder is None:
        raise UsageError(
            f"package:{name}: {distribution.version} names the package {packages[0]}, which is not there",
            hint=f"pip install --force-reinstall {name}",
        )
    return distribution.version, folder
