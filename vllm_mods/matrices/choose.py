"""Which trees a matrix is about: releases of the index, and what one ``--tree`` may stand for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from packaging.version import Version

from vllm_mods.base import versions
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.matrices.work import is_meant
from vllm_mods.trees.index import ReleaseFile, release_file

_BEYOND = 3


def specs(
    files: Callable[[], Iterable[ReleaseFile]],
    mods: Sequence[Mod],
    named: Sequence[str],
    spec: str | None,
    *,
    pre: bool = False,
) -> tuple[str, ...]:
    """Return the trees to look at, each once: the ``named`` ones, else releases."""
    if named:
        return tuple(dict.fromkeys(one for tree in named for one in expand(tree, pre=pre)))
    return choose_releases(mods, files(), spec, pre=pre)


def choose_releases(
    mods: Sequence[Mod], files: Iterable[ReleaseFile], spec: str | None, *, pre: bool = False
) -> tuple[str, ...]:
    """Return the ``pypi:`` trees to look at, oldest first; every rebuilt wheel is one of its own.

    ``spec`` is a PEP 440 specifier; without it, all releases that some mod's range names, and the
    newest three beyond them. Pre-releases come into it with ``pre`` or where ``spec`` names one.
    """
    by_version: dict[str, list[ReleaseFile]] = {}
    for file in files:
        if file.yanked is None:
            by_version.setdefault(file.version, []).append(file)
    ordered = [
        version
        for version in sorted(by_version, key=versions.sort_key)
        if pre or spec is not None or not Version(version).is_prerelease
    ]
    if spec is not None:
        try:
            chosen = [version for version in ordered if versions.in_range(version, spec)]
        except ValueError as error:
            raise UsageError(str(error), hint="such as --vllm '>=0.19,<0.22'") from error
    else:
        named = [version for version in ordered if any(is_meant(mod, version) for mod in mods)]
        beyond = ordered[ordered.index(named[-1]) + 1 :] if named else ordered
        chosen = [*named, *beyond[-_BEYOND:]]
    return tuple(
        f"pypi:{name}" for version in chosen for name in _builds(version, by_version[version])
    )


def expand(spec: str, *, pre: bool = False) -> tuple[str, ...]:
    """Return the trees that one ``--tree`` stands for.

    A folder of wheels stands for each wheel of vLLM in it, oldest version first; a range of
    revisions ``git:REPO@A..B`` for those tags of releases from A to B if both are tags, else for
    the commits after A up to B, along first parents. Anything else stands for itself.
    """
    if spec.startswith("git:") and ".." in spec.rpartition("@")[2]:
        from vllm_mods.trees.git import revisions  # noqa: PLC0415  (GitPython: 100 ms)

        return revisions(spec, pre=pre)
    if os.path.isdir(spec) and not os.path.exists(os.path.join(spec, "vllm", "__init__.py")):
        try:
            entries = os.listdir(spec)
        except OSError as error:
            raise TreeError(f"{spec}: {error.strerror}", hint=f"ls -la {spec}") from error
        wheels = [
            file
            for name in entries
            if (file := release_file(name, "")) is not None and file.kind == "wheel"
        ]
        wheels.sort(key=lambda file: (Version(file.version), file.build, file.filename))
        if wheels:
            return tuple(f"wheel:{os.path.join(spec, file.filename)}" for file in wheels)
    return (spec,)


def _builds(version: str, files: Sequence[ReleaseFile]) -> list[str]:
    """Name each x86_64 wheel of a release; the version itself stands for the one pip would take."""
    wheels = [
        file
        for file in files
        if file.kind == "wheel" and any(platform.endswith("x86_64") for platform in file.platforms)
    ]
    wheels.sort(key=lambda file: file.build)
    return [*(file.filename for file in wheels[:-1]), version]
