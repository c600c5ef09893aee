"""A script's effect on many releases, with as few runs as tell it, and a variant for each effect that differs.

What a run did on one release it does on every other whose files are the same, of those that it changed or
read. Each variant is proven on each release that it is said to be for: it makes the very changes of the script.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.base.model import FileChange, Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.library import mod_folder
from vllm_mods.making import compose
from vllm_mods.making.compose import Composed, Wanted
from vllm_mods.making.fetching import TakenFile
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree


class Release(NamedTuple):
    """A release of vLLM to look at."""

    version: str
    tree: Tree


class ScriptEffect(NamedTuple):
    """What a script does on a release; ``required`` is that without the ``optional`` patches.

    ``paths`` are the files that it changed or read, ``everywhere`` says that it asked which version it is on.
    """

    changes: tuple[FileChange, ...]
    required: tuple[FileChange, ...]
    templates: dict[str, bytes]
    python: tuple[str, ...] = ()
    optional: Mapping[str, bytes] = {}
    told: tuple[str, ...] = ()
    paths: frozenset[str] = frozenset()
    everywhere: bool = False
    fetched: tuple[TakenFile, ...] = ()


class ReleaseRow(NamedTuple):
    """What became of a release: its variant and verdict, or why it has none; ``ran_on`` is where the run was."""

    version: str
    variant: str | None
    verdict: str | None
    ran_on: str | None
    why: str | None = None


class MadeOver(NamedTuple):
    """A mod over several releases, by its files."""

    files: dict[str, bytes]
    rows: tuple[ReleaseRow, ...]
    told: tuple[str, ...]
    unknown: tuple[str, ...]


_Variants = list[tuple[Composed, list[str]]]


class _Done(NamedTuple):
    """What a script did on a release, or why that is no mod; ``ran_on`` is empty where it was read."""

    release: Release
    effect: ScriptEffect | None
    why: str
    ran_on: str | None


def make(
    wanted: Wanted,
    releases: Sequence[Release],
    read: Callable[[Tree], ScriptEffect | None],
    run: Callable[[Tree], ScriptEffect],
    tell: Callable[[str], None],
) -> MadeOver:
    """Make a mod of what a script does on releases, oldest first.

    ``read`` tells what it does without a run, None where only a run tells; both raise ``VllmModsError``
    for what is no mod. Raises ``Refused`` where it is none anywhere.
    """
    done = _effects(releases, read, run, tell)
    useful = [one for one in done if one.effect is not None]
    if not useful:
        lines = dict.fromkeys(f"\n  {one.release.version}: {one.why}" for one in reversed(done))
        raise Refused(
            f"on none of {len(done)} releases does the script make a mod:{''.join(lines)}",
            hint="--vllm SPEC, the releases that it was written for",
        )
    cache = SummaryCache()
    variants = _variants(wanted, useful, tell, cache)
    files, plans, variants = _settled(wanted, variants, useful, releases, tell, cache=cache)
    rows = tuple(_row(one, plans[one.release.version], variants) for one in done)
    told = [line for one in useful if one.effect for line in one.effect.told]
    unknown = compose.unknown(wanted._replace(vllm=wanted.vllm or "stated"), None)
    return MadeOver(files, rows, tuple(dict.fromkeys(told)), tuple(unknown))


def _settled(
    wanted: Wanted,
    variants: _Variants,
    useful: Sequence[_Done],
    releases: Sequence[Release],
    tell: Callable[[str], None],
    *,
    cache: SummaryCache,
) -> tuple[dict[str, bytes], dict[str, ModPlan], _Variants]:
    """Take releases out of ranges until each variant does on all of its own what the script does."""
    effects = {one.release.version: one.effect for one in useful}
    while variants:
        mod, files = _joined(wanted, variants, releases)
        plans = {}
        for i, one in enumerate(releases, 1):
            tell(f"proving on {one.version}, {i} of {len(releases)}")
            plans[one.version] = planner.plan([mod], one.tree, cache=cache).mods[0]
        right = {version for version, effect in effects.items() if _same(plans[version], effect)}
        held = [(made, [one for one in covered if one in right]) for made, covered in variants]
        if held == variants:
            return files, plans, variants
        variants = [(made, covered) for made, covered in held if covered]
    raise Refused(
        "no variant makes the changes of the script where it was made",
        hint="--tree TREE, one release that it was written for",
    )


# --- what it does where


def _effects(
    releases: Sequence[Release],
    read: Callable[[Tree], ScriptEffect | None],
    run: Callable[[Tree], ScriptEffect],
    tell: Callable[[str], None],
) -> list[_Done]:
    """Tell of each release what the script does there; the newest one is run first."""
    found: dict[str, _Done] = {}
    waiting: list[Release] = []
    for one in reversed(releases):
        try:
            effect = read(one.tree)
        except VllmModsError as error:
            found[one.version] = _Done(one, None, error.message, None)
            continue
        if effect is None:
            waiting.append(one)
        else:
            found[one.version] = _Done(one, effect, "", None)
    ran: list[_Done] = []
    known: set[str] = set()
    everywhere = False
    trees = {one.version: one.tree for one in releases}

    @functools.cache
    def digest(version: str, path: str) -> str | None:
        return trees[version].digest(path) or sha256(trees[version].read(path))

    def key(one: Release) -> tuple[str | None, ...]:
        """Return what tells a release apart: hashes of files, and its version where that was asked for."""
        alone = one.version if everywhere or not known else None
        return (alone, *(digest(one.version, path) for path in sorted(known)))

    while True:
        by_key = {key(one.release): one for one in ran}
        todo = [one for one in waiting if key(one) not in by_key]
        if not todo:
            break
        first = todo[0]
        tell(f"running on {first.version}, {len(todo)} of {len(releases)} releases left")
        try:
            effect = run(first.tree)
        except VllmModsError as error:  # nobody knows what it rests on
            found[first.version] = _Done(first, None, error.message, first.version)
            waiting.remove(first)
            continue
        ran.append(_Done(first, effect, "", first.version))
        known |= effect.paths
        everywhere |= effect.everywhere
    for one in waiting:
        found[one.version] = by_key[key(one)]._replace(release=one)
    return [found[one.version] for one in releases]


# --- variants of it


def _variants(
    wanted: Wanted, done: Sequence[_Done], tell: Callable[[str], None], cache: SummaryCache
) -> _Variants:
    """Compose a variant where none of those before makes the changes; newest release first."""
    found: _Variants = []
    for one in reversed(done):
        effect, version = one.effect, one.release.version
        assert effect is not None  # noqa: S101  (these have one)
        goes = (made for made in found if _goes(made[0], one.release, effect, cache))
        if (like := next(goes, None)) is not None:
            like[1].append(version)
            continue
        tell(f"a variant for {version}")
        name = ".".join(version.split(".")[:2])
        asked = wanted._replace(
            variant=version if name in {made.parts.id for made, _ in found} else name,
            vllm=f"=={version}",
            python=effect.python,
            fetched=effect.fetched or wanted.fetched,
        )
        given = asked, effect.required, effect.templates, one.release.tree, effect.optional
        try:
            made = compose.compose(*given, cache=cache)
        except Refused as error:
            tell(f"{version}: {error.message}")
            continue
        found.append((made, [version]))
    return found


def _goes(made: Composed, release: Release, effect: ScriptEffect, cache: SummaryCache) -> bool:
    """Tell whether a variant makes these very changes of a release."""
    variant = made.mod.variants[0]
    if variant.python != effect.python or len(variant.templates) != len(effect.templates):
        return False
    return _same(planner.plan([made.mod], release.tree, cache=cache).mods[0], effect)


def _same(planned: ModPlan, effect: ScriptEffect | None) -> bool:
    if effect is None or not planned.verdict.writes:
        return False
    mine = {
        one.path: one.after
        for one in planned.changes
        if not one.path.startswith(f"{planner.WORKSPACE}/")
    }
    return mine == {one.path: one.after for one in effect.changes}


def _joined(
    wanted: Wanted, variants: _Variants, releases: Sequence[Release]
) -> tuple[Mod, dict[str, bytes]]:
    """Put variants, oldest first, into one mod with the ranges that they hold in."""
    files: dict[str, bytes] = {}
    parts = []
    every = [one.version for one in releases]
    many = len(variants) > 1
    for made, covered in reversed(variants):
        part = made.parts
        moved = {
            name: f"{part.id}/{name}" if many and name.startswith("overlay/") else name
            for name in made.files
            if name != mod_folder.MANIFEST
        }
        files |= {moved[name]: made.files[name] for name in moved}
        overlay, binary = (
            [{**one, "source": moved[str(one["source"])]} for one in group]
            for group in (part.overlay, part.binary)
        )
        part = part._replace(
            overlay=overlay,
            binary=binary,
            vllm=span(covered, every),
            made_on=f"# Made on vLLM {max(covered, key=versions.sort_key)}.",
        )
        trees = [one.tree for one in releases if one.version in covered]
        parts.append(part._replace(packages=_ranges(part.packages, trees)))
    text = compose.written(wanted, parts, f"vLLM {parts[-1].vllm}")
    files[mod_folder.MANIFEST] = compose.encoded(text)
    return mod_folder.load_files(wanted.name, files), files


def _ranges(
    packages: Sequence[tuple[str, str]], trees: Sequence[Tree]
) -> tuple[tuple[str, str], ...]:
    """Return the ranges of other packages that some releases are read with."""
    found = []
    for name, _ in packages:
        there = {version for tree in trees if (version := LayeredTree(tree).package(name))}
        found.append((name, span([*there], [*there])))
    return tuple(found)


def span(covered: Sequence[str], every: Sequence[str]) -> str:
    """Return the range of some releases: from the first to the last, without those between that are not of them."""
    ordered = sorted(covered, key=versions.sort_key)
    low, high = ordered[0], ordered[-1]
    if low == high:
        return f"=={low}"
    there = sorted(every, key=versions.sort_key)
    between = there[there.index(low) : there.index(high)]
    return ",".join(
        [f">={low}", f"<={high}", *(f"!={one}" for one in between if one not in covered)]
    )


def _row(one: _Done, planned: ModPlan, variants: _Variants) -> ReleaseRow:
    version = one.release.version
    ids = [made.parts.id for made, covered in variants if version in covered]
    why = one.why or None if ids else one.why or "no variant makes the changes of the script there"
    return ReleaseRow(version, ids[0] if ids else None, planned.verdict.value, one.ran_on, why)
