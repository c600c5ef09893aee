"""What all steps of one plan share: the tree as it is, the mods' locks and patches, small questions."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from vllm_mods.base import versions
from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan, Variant, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats.mod_lock import Lock
from vllm_mods.formats.receipt import Receipt
from vllm_mods.planning import lock_entries, patching, requirements, written
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part
from vllm_mods.planning.patching import note
from vllm_mods.trees.receipt_tree import pristine

_ONE_VERSION = r"\s*==\s*[^*,\s]+\s*"

Origin = Callable[[Mod, Variant], Tree | None]


class PlanContext:
    """One tree, remembered as far as it was read.

    ``view`` is what mods change one after the other, ``untouched`` the tree before any mod, those of the receipt included:
    a mod has the same places in one plan with others and after them.
    """

    def __init__(
        self, tree: Tree, receipt: Receipt | None, workspace: str, origin: Origin | None
    ) -> None:
        self.tree = LayeredTree(tree)
        self.view = LayeredTree(self.tree)
        self.untouched = pristine(self.tree, receipt)
        self.receipt = receipt
        self.workspace = workspace
        self.origin = origin or (lambda _mod, _variant: None)
        self.locks: dict[str, Lock] = {}
        self._parsed: dict[tuple[str, str], tuple[Part, ...]] = {}
        self._located: dict[tuple[str, str], tuple[Part, ...]] = {}
        self.package = cache(self.tree.package)
        self.changed_by = defaultdict[str, list[str]](list)
        for mod in receipt.mods if receipt is not None else ():
            for file in mod.files:
                self.changed_by[file.path].append(mod.name)

    def put_in(self, plan: ModPlan) -> None:
        """Lay a mod's changes over the tree, for the mods after it."""
        self.view.lay(plan.changes)
        for change in plan.changes:
            self.changed_by[change.path].append(plan.mod.name)

    def take_lock(self, mod: Mod) -> bool:
        """Keep a mod's lock if it was made from this very mod; False for a stale one."""
        locked = lock_entries.current(mod)
        known = {variant.id for variant in mod.variants}
        if locked and known.issuperset(tree.variant for tree in locked.trees):
            self.locks[mod.name] = locked
        return mod.lock is None or mod.name in self.locks

    def parts(self, mod: Mod, variant: Variant, *, vouched: bool = False) -> tuple[Part, ...]:
        """Return a variant's parts, read once. Raises ``DiffError`` for a bad patch."""
        key = (mod.name, variant.id)
        if key not in self._parsed:
            # looked up for variants with prebuilt code only
            platform = requirements.platform_of(self.tree) if variant.binary else None
            self._parsed[key] = patching.parts_of(
                mod, variant, self.workspace, vouched=vouched, platform=platform
            )
        return self._parsed[key]

    def located(self, mod: Mod, variant: Variant) -> tuple[Part, ...]:
        """Return a variant's parts, each with where it was written as far as mod.lock or the origin tells."""
        key = (mod.name, variant.id)
        if key not in self._located:
            at_base = _begins_at(variant, self.tree.version)
            only = at_base and re.fullmatch(_ONE_VERSION, variant.vllm) is not None
            parts = tuple(
                part._replace(at_base=at_base, base=self._shipped(part.path) if only else None)
                for part in self.parts(mod, variant)
            )
            locked = self.locks.get(mod.name)
            known = written.of_variant(locked.written if locked else (), variant)
            if not known and variant in self.nearest(mod) and (base := self.origin(mod, variant)):
                known = written.record(variant, parts, base)
            self._located[key] = written.attach(parts, known)
        return self._located[key]

    def _shipped(self, path: str) -> bytes | None:
        """Return a file as the version was shipped with it, None if it is not known to be that."""
        data = self.tree.read(path)
        known = data is not None and (self.tree.pristine or self.tree.is_released(path, data))
        return data if known else None

    def plan_of(
        self, mod: Mod, variant: Variant | None, verdict: Verdict, *findings: Finding
    ) -> ModPlan:
        """Return the plan of a mod that is in, or refused, for one of its variants."""
        in_range = variant is not None and self.in_range(mod, variant)
        return ModPlan(mod, variant, verdict, in_range=in_range, findings=findings)

    def by_range(self, mod: Mod) -> list[Variant]:
        """Return the variants, those that are meant for the tree first."""
        return sorted(mod.variants, key=lambda variant: not self.in_range(mod, variant))

    def in_range(self, mod: Mod, variant: Variant) -> bool:
        """Tell whether a variant is meant for the tree: by the lock, else by the range, and for its package."""
        # asked for whatever vLLM it is: where nobody can tell, the whole plan has to say so
        return self.is_for_vllm(mod, variant) and self._is_for_package(variant) is not False

    def _is_for_package(self, variant: Variant) -> bool | None:
        if not variant.package:
            return None
        return versions.in_range(self.package(variant.package), variant.package_version)

    def is_for_vllm(self, mod: Mod, variant: Variant) -> bool:
        """Tell whether a variant is meant for the version of the tree: by the lock, else by the range."""
        locked = self.locks.get(mod.name)
        for tree in locked.trees if locked is not None else ():
            if tree.variant == variant.id and self.tree.version in tree.vllm:
                return tree.in_range
        return bool(versions.in_range(self.tree.version, variant.vllm))

    def nearest(self, mod: Mod) -> tuple[Variant, ...]:
        """Return the variants that are meant for the tree, else the one whose range begins nearest to it."""
        inside = tuple(one for one in mod.variants if self.in_range(mod, one))
        if inside:
            return inside
        starts = {first_named(one): one for one in reversed(mod.variants)}
        return (starts[versions.nearest(self.tree.version or "0", starts, 1)[0]],)

    def as_released(self, variant: Variant, mod: Mod) -> bool:
        """Tell whether the files of a variant are as RECORD has them, those of this tool's mods included."""
        if self.tree.pristine:
            return True
        files = ((part.path, self.tree.read(part.path)) for part in self.parts(mod, variant))
        released = [self.tree.is_released(path, data) for path, data in files if data is not None]
        return bool(released) and all(released)

    def notes(self, mod: Mod, variant: Variant) -> list[Finding]:
        """Say what a user should know of a variant that goes in."""
        why = "is outside Python's packages, so only an image can hold the file"
        notes = [note(FindingCode.IMAGE_ONLY, f"{file.path} {why}") for file in mod.files]
        if variant.package:
            package = f"{variant.package} {self.package(variant.package) or 'of unknown version'}"
            notes.append(note(FindingCode.PACKAGE, f"{package} is installed beside this vLLM"))
        if self._is_for_package(variant) is False:
            message = f"variant `{variant.id}` is for {variant.package} {variant.package_version}; the variant is used because {self.package(variant.package)} has the same source"
            notes.append(note(FindingCode.VERSION_RANGE, message))
        if not self.is_for_vllm(mod, variant):
            message = f"variant `{variant.id}` ({variant.vllm}) is used although its range does not include this version, because the code that it changes is the same"
            notes.append(note(FindingCode.VERSION_RANGE, message))
        return notes

    def leftovers(self, paths: Iterable[str]) -> list[Finding]:
        """Point at what GNU patch leaves behind when it stops half-way."""
        places = (f"{path}{suffix}" for path in paths for suffix in (".rej", ".orig"))
        left = [one for one in places if not self.tree.remote and self.tree.read(one) is not None]
        why = "shows that a run of `patch` stopped half-way"
        return [note(FindingCode.LEFTOVER, f"{path} {why}", path=path) for path in left]


def ask_for_packages(mods: Iterable[Mod], tree: Tree) -> None:
    """Have a tree find the distributions that mods are for: what a path is of may be known by their names only."""
    for variant in (one for mod in mods for one in mod.variants if one.package):
        with suppress(TreeError):  # whoever reads it meets the same error, and has the words for it
            tree.package(variant.package)


def _begins_at(variant: Variant, version: str | None) -> bool:
    """Tell whether a variant's range begins at a version: nearly always the one that its author had.

    ``>=0.19`` begins at 0.19.1 too, ``>=0.19.0`` does not.
    """
    first = first_named(variant)
    series = f"=={first}.*" if first.count(".") == 1 else f"=={first}"
    try:
        return bool(versions.in_range(version, series))
    except ValueError:  # a range of one's own making names no version
        return False


def first_named(variant: Variant) -> str:
    """Return the first version that a variant's range names."""
    return variant.vllm.split(",")[0].strip(" <>=!~") or "0"
