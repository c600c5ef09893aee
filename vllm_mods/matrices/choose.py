"""Which releases of the index a matrix is about."""

from collections.abc import Iterable, Sequence

from packaging.version import Version

from vllm_mods.base import versions
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.matrices.work import is_meant
from vllm_mods.trees.index import ReleaseFile

_BEYOND = 3
_SUCH_AS = "such as --vllm '>=0.19,<0.22'"


def choose_releases(
    mods: Sequence[Mod], files: Iterable[ReleaseFile], spec: str | None, *, pre: bool = False
) -> tuple[str, ...]:
    """Return the ``pypi:`` trees to look at, oldest first; every rebuilt wheel is one of its own.

    ``spec`` is a PEP 440 specifier; without it, all releases that some mod's range names, and the
    newest three beyond them. Pre-releases come into it with ``pre`` or where ``spec`` names one.
    Raises ``UsageError`` for a ``spec`` that is none, or that no release is in.
    """
    by_version: dict[str, list[ReleaseFile]] = {}
    for file in files:
        if file.yanked is None:
            by_version.setdefault(file.version, []).append(file)
    ordered = sorted(by_version, key=versions.sort_key)
    if spec is None and not pre:
        ordered = [version for version in ordered if not Version(version).is_prerelease]
    if spec is not None:
        try:
            chosen = [version for version in ordered if versions.in_range(version, spec)]
        except ValueError as error:
            raise UsageError(str(error), hint=_SUCH_AS) from error
        if not chosen:
            newest = f"; the newest is {ordered[-1]}" if ordered else ""
            raise UsageError(f"{spec} contains no release of vLLM{newest}", hint=_SUCH_AS)
    else:
        named = [version for version in ordered if any(is_meant(mod, version) for mod in mods)]
        beyond = ordered[ordered.index(named[-1]) + 1 :] if named else ordered
        chosen = [*named, *beyond[-_BEYOND:]]
    return tuple(f"pypi:{name}" for one in chosen for name in _builds(one, by_version[one]))


def _builds(version: str, files: Sequence[ReleaseFile]) -> list[str]:
    """Name each x86_64 wheel of a release; the version itself stands for the one pip would take."""
    built = (file for file in sorted(files, key=lambda file: file.build) if file.kind == "wheel")
    wheels = [file for file in built if any(name.endswith("x86_64") for name in file.platforms)]
    return [*(file.filename for file in wheels[:-1]), version]
