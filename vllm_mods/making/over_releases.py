"""A script run on many releases, and a variant for each effect that differs.

Each variant is proven on each release that it is stated for: it makes the very changes of the script.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.library import mod_folder
from vllm_mods.making import compose
from vllm_mods.making.compose import Composed, Wanted
from vllm_mods.making.recording import Recording
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


class _ReleaseRun(NamedTuple):
    """What a script did on a release: None with the reason where that is no mod."""

    release: Release
    recording: Recording | None
    why: str = ""


def make(
    wanted: Wanted,
    releases: Sequence[Release],
    run: Callable[[Tree], Recording],
    tell: Callable[[str], None],
) -> MadeOver:
    """Make a mod of what a script does on releases, oldest first; ``run`` records it on one.

    Raises ``Refused`` where it makes a mod on none of them.
    """
    effects = []
    for number, release in enumerate(releases, 1):
        tell(f"running on {release.version}, {number} of {len(releases)}")
        try:
            effects.append(_ReleaseRun(release, run(release.tree)))
        except VllmModsError as error:
            effects.append(_ReleaseRun(release, None, error.message))
    useful = [effect for effect in effects if effect.recording is not None]
    if not useful:
        reasons = (f"\n  {one.release.version}: {one.why}" for one in reversed(effects))
        raise Refused(
            f"on none of {len(effects)} releases does the script make a mod:{''.join(reasons)}",
            hint="--vllm SPEC, the releases that it was written for",
        )
    recordings = [one.recording for one in useful if one.recording is not None]
    wanted = wanted._replace(env=tuple(dict.fromkeys(row for one in recordings for row in one.env)))
    cache = SummaryCache()
    variants = _variants(wanted, useful, tell, cache)
    files, plans, variants = _settled(wanted, variants, useful, releases, tell, cache=cache)
    rows = tuple(_row(effect, plans[effect.release.version], variants) for effect in effects)
    notes = dict.fromkeys(line for one in recordings for line in one.notes)
    unknown = compose.unknown(wanted._replace(vllm=wanted.vllm or "stated"), None)
    return MadeOver(files, rows, tuple(notes), tuple(unknown))


def _settled(
    wanted: Wanted,
    variants: _Variants,
    useful: Sequence[_ReleaseRun],
    releases: Sequence[Release],
    tell: Callable[[str], None],
    *,
    cache: SummaryCache,
) -> tuple[dict[str, bytes], dict[str, ModPlan], _Variants]:
    """Take releases out of ranges until each variant does on all of its own what the script does."""
    recordings = {one.release.version: one.recording for one in useful}
    while variants:
        mod, files = _joined(wanted, variants, releases)
        plans = {}
        for number, release in enumerate(releases, 1):
            tell(f"proving on {release.version}, {number} of {len(releases)}")
            plans[release.version] = planner.plan([mod], release.tree, cache=cache).mods[0]
        right = {version for version in recordings if _same(plans[version], recordings[version])}
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
    wanted: Wanted, useful: Sequence[_ReleaseRun], tell: Callable[[str], None], cache: SummaryCache
) -> _Variants:
    """Compose a variant where none of those before makes the changes; newest release first."""
    variants: _Variants = []
    for release, recording, _ in reversed(useful):
        assert recording is not None  # noqa: S101  (the useful ones have one)
        same = (row for row in variants if _makes(row[0], release, recording, cache))
        if (row := next(same, None)) is not None:
            row[1].append(release.version)
            continue
        tell(f"a variant for {release.version}")
        name = ".".join(release.version.split(".")[:2])
        stated = wanted._replace(
            variant=release.version if name in {row[0].parts.id for row in variants} else name,
            vllm=f"=={release.version}",
            python=recording.python,
            fetched=recording.fetched,
        )
        try:
            composed = compose.compose(
                stated, recording.changes, recording.templates, release.tree, cache=cache
            )
        except Refused as error:
            tell(f"{release.version}: {error.message}")
            continue
        variants.append((composed, [release.version]))
    return variants


def _makes(composed: Composed, release: Release, recording: Recording, cache: SummaryCache) -> bool:
    """Return True if a variant makes the changes of a recording on its release."""
    variant = composed.mod.variants[0]
    if variant.python != recording.python or len(variant.templates) != len(recording.templates):
        return False
    return _same(planner.plan([composed.mod], release.tree, cache=cache).mods[0], recording)


def _same(planned: ModPlan, recording: Recording | None) -> bool:
    if recording is None or not planned.verdict.writes:
        return False
    changes = {
        one.path: one.after
        for one in planned.changes
        if not one.path.startswith(f"{planner.WORKSPACE}/")
    }
    return changes == {one.path: one.after for one in recording.changes}


def _joined(
    wanted: Wanted, variants: _Variants, releases: Sequence[Release]
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
    text = compose.written(wanted, parts, f"vLLM {parts[-1].vllm}")
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


def _row(effect: _ReleaseRun, planned: ModPlan, variants: _Variants) -> ReleaseRow:
    version = effect.release.version
    ids = [composed.parts.id for composed, covered in variants if version in covered]
    if ids:
        return ReleaseRow(version, ids[0], planned.verdict.value)
    why = effect.why or "no variant makes the changes of the script there"
    return ReleaseRow(version, None, planned.verdict.value, why)
