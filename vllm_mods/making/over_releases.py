"""A script run on many releases, and a variant for each effect that differs.

Each variant is proven on each release that it is stated for: it makes the very changes of the script.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.library import mod_folder
from vllm_mods.making import compose
from vllm_mods.making.compose import Composed, ModEffect, Wanted
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree


class Release(NamedTuple):
    """A release of vLLM to look at."""

    version: str
    tree: Tree


class ReleaseRow(NamedTuple):
    """What became of a release: its variant and verdict, or why it has no variant."""

    version: str
    variant: str | None
    verdict: str | None
    why: str | None = None


class MadeOver(NamedTuple):
    """A mod over several releases, by its files."""

    files: dict[str, bytes]
    rows: tuple[ReleaseRow, ...]
    notes: tuple[str, ...]
    unknown: tuple[str, ...]


_Variants = list[tuple[Composed, list[str]]]
"""Variants, newest first, each with the releases that it is for."""


def make(
    wanted: Wanted,
    releases: Sequence[Release],
    run: Callable[[Tree], ModEffect],
    tell: Callable[[str], None],
) -> MadeOver:
    """Make a mod of what a script does on releases, oldest first; ``run`` does it on one.

    Raises ``Refused`` where it makes a mod on none of them.
    """
    effects: dict[str, ModEffect] = {}
    why: dict[str, str] = {}
    for number, release in enumerate(releases, 1):
        tell(f"running on {release.version}, {number} of {len(releases)}")
        try:
            effects[release.version] = run(release.tree)
        except VllmModsError as error:
            why[release.version] = error.message
    if not effects:
        reasons = (f"\n  {version}: {text}" for version, text in reversed(why.items()))
        raise Refused(
            f"on none of {len(why)} releases does the script make a mod:{''.join(reasons)}",
            hint="--vllm SPEC, the releases that it was written for",
        )
    cache = SummaryCache()
    useful = [one for one in releases if one.version in effects]
    variants = _variants(wanted, useful, effects, tell, cache)
    files, plans, variants = _settled(wanted, variants, effects, releases, tell, cache=cache)
    ids = {version: one.parts.id for one, covered in variants for version in covered}
    unmade = "no variant makes the changes of the script there"
    rows = (
        ReleaseRow(
            version,
            ids.get(version),
            planned.verdict.value,
            None if version in ids else why.get(version, unmade),
        )
        for version, planned in plans.items()
    )
    notes = dict.fromkeys(line for one in effects.values() for line in one.notes)
    unknown = compose.unknown(wanted._replace(vllm=wanted.vllm or "stated"), None)
    return MadeOver(files, tuple(rows), tuple(notes), tuple(unknown))


def _settled(
    wanted: Wanted,
    variants: _Variants,
    effects: Mapping[str, ModEffect],
    releases: Sequence[Release],
    tell: Callable[[str], None],
    *,
    cache: SummaryCache,
) -> tuple[dict[str, bytes], dict[str, ModPlan], _Variants]:
    """Take releases out of ranges until each variant does on all of its own what the script does."""
    env = tuple(dict.fromkeys(row for one in effects.values() for row in one.env))
    while variants:
        mod, files = _joined(wanted, variants, releases, env)
        plans = {}
        for number, release in enumerate(releases, 1):
            tell(f"proving on {release.version}, {number} of {len(releases)}")
            plans[release.version] = planner.plan([mod], release.tree, cache=cache).mods[0]
        right = {version for version, one in effects.items() if _same(plans[version], one)}
        proven = [
            (variant, [one for one in covered if one in right]) for variant, covered in variants
        ]
        if proven == variants:
            return files, plans, variants
        variants = [(variant, covered) for variant, covered in proven if covered]
    raise Refused(
        "no variant makes the changes of the script where it was made",
        hint="--tree TREE, one release that it was written for",
    )


def _variants(
    wanted: Wanted,
    useful: Sequence[Release],
    effects: Mapping[str, ModEffect],
    tell: Callable[[str], None],
    cache: SummaryCache,
) -> _Variants:
    """Compose a variant where none of those before makes the changes; newest release first."""
    variants: _Variants = []
    for version, tree in reversed(useful):
        effect = effects[version]
        same = (row for row in variants if _makes(row[0], tree, effect, cache))
        if (row := next(same, None)) is not None:
            row[1].append(version)
            continue
        tell(f"a variant for {version}")
        name = ".".join(version.split(".")[:2])
        taken = name in {composed.parts.id for composed, _ in variants}
        stated = wanted._replace(variant=version if taken else name, vllm=f"=={version}")
        try:
            variants.append((compose.compose(stated, effect, tree, cache=cache), [version]))
        except Refused as error:
            tell(f"{version}: {error.message}")
    return variants


def _makes(composed: Composed, tree: Tree, effect: ModEffect, cache: SummaryCache) -> bool:
    """Return True if a variant makes the changes of an effect on the tree that it is of."""
    variant = composed.mod.variants[0]
    if variant.python != effect.python or len(variant.templates) != len(effect.templates):
        return False
    return _same(planner.plan([composed.mod], tree, cache=cache).mods[0], effect)


def _same(planned: ModPlan, effect: ModEffect) -> bool:
    changes = {
        one.path: one.after
        for one in planned.changes
        if not one.path.startswith(f"{planner.WORKSPACE}/")
    }
    meant = {one.path: one.after for one in effect.changes}
    return planned.verdict.writes and changes == meant


def _joined(
    wanted: Wanted,
    variants: _Variants,
    releases: Sequence[Release],
    env: Sequence[tuple[str, str]],
) -> tuple[Mod, dict[str, bytes]]:
    """Put variants, oldest first, into one mod with the ranges that they hold in."""
    files: dict[str, bytes] = {}
    parts = []
    every = [one.version for one in releases]
    many = len(variants) > 1
    for composed, covered in reversed(variants):
        part = composed.parts
        moved = {
            name: f"{part.id}/{name}" if many and name.startswith("overlay/") else name
            for name in composed.files
            if name != mod_folder.MANIFEST
        }
        files |= {moved[name]: composed.files[name] for name in moved}
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
    text = compose.written(wanted, parts, f"vLLM {parts[-1].vllm}", env)
    files[mod_folder.MANIFEST] = compose.encoded(text)
    return mod_folder.load_files(wanted.name, files), files


def _ranges(
    packages: Sequence[tuple[str, str]], trees: Sequence[Tree]
) -> tuple[tuple[str, str], ...]:
    """Return the ranges of other packages that some releases are read with."""
    ranges = []
    for name, _ in packages:
        versions_beside = {
            version for tree in trees if (version := LayeredTree(tree).package(name))
        }
        ranges.append((name, span([*versions_beside], [*versions_beside])))
    return tuple(ranges)


def span(covered: Sequence[str], every: Sequence[str]) -> str:
    """Return the range of some releases: from the first to the last, without those between that are not of them."""
    ordered = sorted(covered, key=versions.sort_key)
    low, high = ordered[0], ordered[-1]
    if low == high:
        return f"=={low}"
    in_order = sorted(every, key=versions.sort_key)
    between = in_order[in_order.index(low) : in_order.index(high)]
    return ",".join(
        [f">={low}", f"<={high}", *(f"!={one}" for one in between if one not in covered)]
    )
