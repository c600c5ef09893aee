"""A script run on many releases, and a variant for each effect that differs.

Each variant is proven on each release that it is stated for: it makes the very changes of the script.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import Refused, VllmModsError
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.library import mod_folder
from vllm_mods.making import compose
from vllm_mods.making.compose import Composed, ModEffect, NewMod, Parts, ReleaseRow, Wanted
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.layered_tree import LayeredTree


class _MadeVariant(NamedTuple):
    composed: Composed
    versions: tuple[str, ...]


def make(
    wanted: Wanted,
    releases: Mapping[str, Tree],
    run: Callable[[Tree], ModEffect],
    tell: Callable[[str], None],
) -> NewMod:
    """Make a mod of what a script does on releases by version, oldest first; ``run`` does it on one.

    Raises ``Refused`` where it makes a mod on none of them.
    """
    effects: dict[str, ModEffect] = {}
    why: dict[str, str] = {}
    hint = None
    for number, (version, tree) in enumerate(releases.items(), 1):
        tell(f"running the script on {version}, {number} of {len(releases)}")
        try:
            effects[version] = run(tree)
        except VllmModsError as error:
            why[version], hint = error.message, error.hint
    if not effects:
        reasons = (f"\n  {version}: {text}" for version, text in reversed(why.items()))
        message = f"the script makes no mod on any of {len(why)} releases:{''.join(reasons)}"
        hint = hint or "name other releases with --vllm SPEC, or with an --image for each"
        raise Refused(message, hint=hint)
    return _Maker(wanted, releases, effects, tell).make(why)


@dataclass
class _Maker:
    """Makes variants of the ``effects`` of a script, by the releases on which it had one."""

    wanted: Wanted
    trees: Mapping[str, Tree]
    effects: dict[str, ModEffect]
    tell: Callable[[str], None]
    cache: SummaryCache = field(default_factory=SummaryCache)

    def make(self, why: dict[str, str]) -> NewMod:
        """Take releases out of ranges until each variant does on all of its own what the script does."""
        proven = self.compose_variants()
        plans: dict[str, ModPlan] = {}
        while True:
            if not proven:
                message = "no variant reproduces the script's changes on the release that it is for"
                raise Refused(message, hint="--tree TREE names a release that the script is for")
            variants = proven
            mod, files = self.join(variants)
            for number, (version, tree) in enumerate(self.trees.items(), 1):
                self.tell(f"checking the mod on {version}, {number} of {len(self.trees)}")
                plans[version] = planner.plan_alone(mod, tree, cache=self.cache)
            effects = self.effects.items()
            right = {name for name, effect in effects if compose.makes(plans[name], effect.changes)}
            kept = ((made, [name for name in over if name in right]) for made, over in variants)
            proven = [_MadeVariant(composed, tuple(over)) for composed, over in kept if over]
            if proven == variants:
                break
        files |= lock_entries.first(mod, ((plans[one], tree) for one, tree in self.trees.items()))
        ids = {version: one.composed.parts.id for one in variants for version in one.versions}
        unmade = "no variant reproduces the changes of the script on this release"
        whys = {version: why.get(version, unmade) for version in plans if version not in ids}
        verdicts = ((version, planned.verdict.value) for version, planned in plans.items())
        rows = (ReleaseRow(one, ids.get(one), verdict, whys.get(one)) for one, verdict in verdicts)
        notes = dict.fromkeys(line for effect in self.effects.values() for line in effect.notes)
        unknown = compose.unknown(self.wanted._replace(vllm=self.wanted.vllm or "stated"), None)
        failed = (f"{on}: {one}" for on, effect in self.effects.items() for one in effect.failed)
        more = tuple(notes), tuple(unknown), tuple(rows), None, tuple(failed)
        return NewMod(mod, files, None, *more)

    def compose_variants(self) -> list[_MadeVariant]:
        """Compose a variant where none of those before makes the changes: first of what has more optional parts, then of the newest release."""
        variants: list[_MadeVariant] = []
        newest_first = reversed(self.effects.items())
        for version, effect in sorted(newest_first, key=lambda row: -len(row[1].optional)):
            tree = self.trees[version]
            for number, (composed, covered) in enumerate(variants):
                if self.makes(composed, tree, effect):
                    variants[number] = _MadeVariant(composed, (*covered, version))
                    break
            else:
                self.tell(f"a variant for {version}")
                name = ".".join(version.split(".")[:2])
                is_taken = any(one.composed.parts.id == name for one in variants)
                variant = version if is_taken else name
                stated = self.wanted._replace(variant=variant, vllm=f"=={version}")
                try:
                    composed = compose.compose(stated, effect, tree, cache=self.cache)
                except Refused as error:
                    self.tell(f"{version}: {error.message}")
                else:
                    variants.append(_MadeVariant(composed, (version,)))
        return variants

    def makes(self, composed: Composed, tree: Tree, effect: ModEffect) -> bool:
        variant = composed.mod.variants[0]
        if variant.python != effect.python or len(variant.templates) != len(effect.templates):
            return False
        planned = planner.plan_alone(composed.mod, tree, cache=self.cache)
        return compose.makes(planned, effect.changes)

    def join(self, variants: Sequence[_MadeVariant]) -> tuple[Mod, dict[str, bytes]]:
        """Put variants, oldest first, into one mod with the ranges that they hold in."""
        files: dict[str, bytes] = {}
        parts = []
        in_order = sorted(variants, key=lambda one: max(map(versions.sort_key, one.versions)))
        for composed, covered in in_order:
            parts.append(self.stated_for(composed.parts, covered))
            files |= composed.files
        env = tuple(dict.fromkeys(row for effect in self.effects.values() for row in effect.env))
        newest = f"vLLM {parts[-1].vllm}"
        files[mod_folder.MANIFEST] = compose.written(self.wanted, parts, newest, env)
        return mod_folder.load_files(self.wanted.name, files), files

    def stated_for(self, part: Parts, covered: Sequence[str]) -> Parts:
        """Return a variant with the ranges, of vLLM and of other packages, of the releases that it is for."""
        packages = []
        for name, _ in part.packages:
            beside = (LayeredTree(self.trees[version]).package(name) for version in covered)
            present = [*dict.fromkeys(filter(None, beside))]
            packages.append((name, span(present, present)))
        vllm, made_on = span(covered, [*self.trees]), f"# Made on vLLM {covered[0]}."
        return part._replace(vllm=vllm, made_on=made_on, packages=tuple(packages))


def span(covered: Sequence[str], every: Sequence[str]) -> str:
    """Return the range of some releases: from the first to the last, without those between that are not of them."""
    low, *_, high = sorted((*covered, *covered), key=versions.sort_key)
    if low == high:
        return f"=={low}"
    in_order = sorted(every, key=versions.sort_key)
    between = in_order[in_order.index(low) : in_order.index(high)]
    left_out = (f"!={version}" for version in between if version not in covered)
    return ",".join((f">={low}", f"<={high}", *left_out))
