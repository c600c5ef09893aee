"""Which of a release's files is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from vllm_mods.trees.index import ReleaseFile


def choose(name: str, files: tuple[ReleaseFile, ...]) -> tuple[ReleaseFile, ...]:
    """Return the files that ``name`` can stand for, the best first; ``()`` if there are none.

    ``name`` is a file name, which stands for itself, or a version: then a wheel for Linux on
    x86_64 is best, whatever machine this is, so that an answer does not depend on who asks; among
    them the highest build tag; then any wheel; then the sdist. A version without a local part
    stands for one with it only if there is no other. Yanked files come into it, as with pip, only
    if nothing else has that version.
    """
    exact = tuple(file for file in files if file.filename == name)
    if exact:
        return exact
    wanted = parsed(name)
    if wanted is None:
        return ()
    matching = [file for file in files if Version(file.version) == wanted]
    if not matching and wanted.local is None:
        local = [file for file in files if Version(file.version).public == str(wanted)]
        newest = max((Version(file.version) for file in local), default=None)
        matching = [file for file in local if Version(file.version) == newest]
    kept = [file for file in matching if file.yanked is None] or matching
    return tuple(sorted(kept, key=_preference, reverse=True))


def without_ranges(candidates: tuple[ReleaseFile, ...]) -> ReleaseFile:
    """Return what to download in place of the wheel that is best: the smaller sdist, if it will do.

    A rebuilt wheel (it has a build tag) may hold other sources than the sdist.
    """
    wheel = candidates[0]
    sdist = next((file for file in candidates if file.kind == "sdist"), None)
    return wheel if sdist is None or wheel.build else sdist


def _preference(file: ReleaseFile) -> tuple[bool, bool, tuple[int, str] | tuple[()], list[int]]:
    linux = any(
        platform.startswith(("manylinux", "linux")) and platform.endswith("_x86_64")
        for platform in file.platforms
    )
    # cp38-abi3 < cp311: among wheels per interpreter any will do, but always the same one.
    digits = [int("".join(filter(str.isdigit, tag)) or 0) for tag in file.interpreters]
    return file.kind == "wheel", linux, file.build, sorted(digits)


def parsed(name: str) -> Version | None:
    """Return a version, None for what is none."""
    try:
        return Version(name)
    except InvalidVersion:
        return None
