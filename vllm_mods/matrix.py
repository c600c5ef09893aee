"""Every mod on every tree: a cell is one plan of one mod on one tree. Pure but for the trees it opens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from vllm_mods import locking, plan, versions
from vllm_mods.errors import TreeError, UsageError
from vllm_mods.fit.world import Cache
from vllm_mods.model import Finding, ModPlan, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from vllm_mods.lock import Lock, LockedTree
    from vllm_mods.model import Mod, Tree
    from vllm_mods.trees.index import ReleaseFile

_BEYOND = 3


class Cell(NamedTuple):
    """One mod on one tree: ``version`` is vLLM's, ``tree`` the spec it was opened by.

    ``meant`` tells whether some variant's range names this version.
    """

    version: str
    tree: str
    planned: ModPlan
    meant: bool


def choose_releases(
    mods: Sequence[Mod], files: Iterable[ReleaseFile], spec: str | None
) -> tuple[str, ...]:
    """Return the ``pypi:`` trees to look at, oldest first; every rebuilt wheel is one of its own.

    ``spec`` is a PEP 440 specifier; without it, all final releases that some mod's range
    names, and the newest three beyond them.
    """
    by_version: dict[str, list[ReleaseFile]] = {}
    for file in files:
        if file.yanked is None:
            by_version.setdefault(file.version, []).append(file)
    ordered = sorted(by_version, key=versions.sort_key)
    if spec is not None:
        try:
            chosen = [version for version in ordered if versions.in_range(version, spec)]
        except ValueError as error:
            raise UsageError(str(error), hint="such as --vllm '>=0.19,<0.22'") from error
    else:
        final = [version for version in ordered if not Version(version).is_prerelease]
        named = [version for version in final if any(is_meant(mod, version) for mod in mods)]
        beyond = final[final.index(named[-1]) + 1 :] if named else final
        chosen = [*named, *beyond[-_BEYOND:]]
    return tuple(
        f"pypi:{name}" for version in chosen for name in _builds(version, by_version[version])
    )


def is_meant(mod: Mod, version: str | None) -> bool:
    """Tell whether the range of one of the mod's variants names this version."""
    return any(versions.in_range(version, variant.vllm) for variant in mod.variants)


def cells(
    mods: Sequence[Mod], specs: Iterable[str], opener: Callable[[str], Tree]
) -> Iterator[Cell]:
    """Plan each mod alone on each tree. A tree that cannot be read fails its own cells only."""
    cache = Cache()
    for spec in specs:
        try:
            tree = opener(spec)
            version = tree.version
        except TreeError as error:
            for mod in mods:
                yield _unreadable(mod, spec, error)
            continue
        for mod in mods:
            try:
                planned = plan.plan([mod], tree, cache=cache).mods[0]
            except TreeError as error:
                yield _unreadable(mod, spec, error)
                continue
            yield Cell(
                version=version or "unknown",
                tree=spec,
                planned=planned,
                meant=is_meant(mod, version),
            )


def lock_from(mod: Mod, found: Iterable[Cell]) -> Lock:
    """Make a mod's lock from its cells: one entry per distinct state of the touched files."""
    labels: dict[LockedTree, list[str]] = {}
    witnesses: dict[LockedTree, list[str]] = {}
    for cell in found:
        planned = cell.planned
        entry = locking.entry(planned)
        if planned.mod.name != mod.name or entry is None:
            continue
        for kept, one in ((labels, cell.version), (witnesses, planned.witness)):
            if one not in kept.setdefault(entry, []):
                kept[entry].append(one)
    return locking.of(
        mod,
        (
            entry._replace(vllm=tuple(labels[entry]), witness=tuple(witnesses[entry]))
            for entry in labels
        ),
    )


def _builds(version: str, files: Sequence[ReleaseFile]) -> list[str]:
    """Name each x86_64 wheel of a release; the version itself stands for the one pip would take."""
    wheels = [
        file
        for file in files
        if file.kind == "wheel" and any(platform.endswith("x86_64") for platform in file.platforms)
    ]
    wheels.sort(key=lambda file: file.build)
    return [*(file.filename for file in wheels[:-1]), version]


def _unreadable(mod: Mod, spec: str, error: TreeError) -> Cell:
    finding = Finding(code="unreadable", message=error.message)
    planned = ModPlan(
        mod=mod, variant=None, verdict=Verdict.UNREADABLE, in_range=False, findings=(finding,)
    )
    version = spec.removeprefix("pypi:")
    return Cell(version=version, tree=spec, planned=planned, meant=True)
