"""The one function: mods and a tree in, verdicts and changes out.

Reads bytes from the tree and nothing else; writes nothing, prints nothing, imports
no vLLM. ``check``, ``apply``, ``matrix`` are views of what it returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods import fit
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import FileChange, Finding, Level, ModPlan, Plan, Verdict
from vllm_mods.formats import mod_lock
from vllm_mods.planning import carried_parts, dependencies, known_trees, patching
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.patching import Attempt

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mods.base.model import HunkState, Mod, Tree, Variant
    from vllm_mods.fit.world import SummaryCache
    from vllm_mods.formats.mod_lock import Lock, LockedTree
    from vllm_mods.formats.receipt import Receipt, ReceiptMod
    from vllm_mods.planning.patching import Part

    Origin = Callable[[Mod, Variant], Tree | None]

WORKSPACE = known_trees.WORKSPACE


def plan(
    mods: Sequence[Mod],
    tree: Tree,
    *,
    receipt: Receipt | None = None,
    workspace: str = WORKSPACE,
    strict_version: bool = False,
    cache: SummaryCache | None = None,
    origin: Origin | None = None,
) -> Plan:
    """Plan mods, in an order that respects ``requires`` and ``after``, onto one tree.

    ``receipt`` is what earlier applies left in the tree, ``workspace`` the folder that
    chat templates go to, ``cache`` what the fit derived from files of other trees, ``origin`` gives the
    tree that a variant was written for, where it can be had: a merge from there has to agree. A mod that
    does not go in leaves the others as they would be without it. Raises ``UsageError`` for mods that wait
    for each other in a circle and ``DiffError`` for a patch that is no good, whatever the tree.
    """
    planner = _Planner(
        tree, receipt, workspace, strict_version=strict_version, cache=cache, origin=origin
    )
    return planner.plan(dependencies.order(mods))


def hunk_states(
    planned: ModPlan, tree: Tree, origin: Origin | None = None
) -> tuple[HunkState, ...]:
    """Tell of each hunk of a plan's variant whether the tree carries it; ``()`` without a variant.

    ``tree`` is what the plan was made of, with the changes of the mods before this one; ``origin`` is
    that of ``plan``.
    """
    mod, variant = planned.mod, planned.variant
    if variant is None:
        return ()
    parts = patching.parts_of(mod, variant, WORKSPACE)
    if planned.verdict in {Verdict.UPSTREAM, Verdict.APPLIED}:
        return carried_parts.all_in(parts, "carried")
    if planned.verdict.writes or planned.verdict is Verdict.UNFIT:
        return carried_parts.all_in(parts, "placed")
    return carried_parts.states(parts, tree, origin and origin(mod, variant))


class _Planner:
    """One run of ``plan``: the view that mods change one after the other."""

    def __init__(
        self,
        tree: Tree,
        receipt: Receipt | None,
        workspace: str,
        *,
        strict_version: bool,
        cache: SummaryCache | None,
        origin: Origin | None,
    ) -> None:
        self.tree = LayeredTree(tree)  # remembers what it read, for everything that looks below
        self.view = LayeredTree(self.tree)
        self.receipt = receipt
        self.workspace = workspace
        self.strict_version = strict_version
        self.cache = cache
        self.origin = origin or (lambda _mod, _variant: None)
        self.applied = {one.name for one in receipt.mods} if receipt is not None else set()
        self.locks: dict[str, Lock] = {}
        self.parsed: dict[tuple[str, str], tuple[Part, ...]] = {}

    def plan(self, mods: tuple[Mod, ...]) -> Plan:
        stale = {mod.name for mod in mods if not self.take_lock(mod)}
        present = self.find_applied(mods)
        done: dict[str, ModPlan] = {}
        for mod in mods:
            if mod.name in present:
                one = present[mod.name]
            elif objections := dependencies.objections(mod, mods, done, self.applied):
                one = _refused(mod, Verdict.CONFLICT, objections)
            else:
                one = self.put_in(mod)
            if mod.name in stale:
                one = one._replace(findings=(*one.findings, _stale_note(mod)))
            if one.verdict.writes:
                self.view.lay(one.changes)
            done[mod.name] = one
        return Plan(
            spec=self.tree.spec,
            version=self.tree.version,
            mods=tuple(done.values()),
            changes=self.view.changes(),
        )

    def take_lock(self, mod: Mod) -> bool:
        """Keep a mod's lock if it was made from this very mod; False for a stale one."""
        if mod.lock is None:
            return True
        locked = mod_lock.parse(mod.lock, f"{mod.directory}/mod.lock")
        known = {variant.id for variant in mod.variants}
        if locked.digest == mod.digest and known.issuperset(tree.variant for tree in locked.trees):
            self.locks[mod.name] = locked
            return True
        return False

    def parts(self, mod: Mod, variant: Variant, *, vouched: bool = False) -> tuple[Part, ...]:
        key = (mod.name, variant.id)
        if key not in self.parsed:
            self.parsed[key] = patching.parts_of(mod, variant, self.workspace, vouched=vouched)
        return self.parsed[key]

    # --- what is in already -------------------------------------------------

    def find_applied(self, mods: tuple[Mod, ...]) -> dict[str, ModPlan]:
        """Find the mods that are in, from the last one down.

        A mod can be seen only while nothing later covers its lines, so each one found is
        taken out (of a copy, in memory) before the next one is looked for.
        """
        found: dict[str, ModPlan] = {}
        bare = LayeredTree(self.tree)
        for mod in reversed(mods):
            try:
                present = self.present(mod, bare)
            except TreeError as error:
                present = _unreadable(mod, error)
            if present is not None:
                found[mod.name] = present
        return found

    def present(self, mod: Mod, bare: LayeredTree) -> ModPlan | None:
        """Return the plan of a mod that is in, and take it out of ``bare``; None if it is not."""
        entry = self.receipt.mod(mod.name) if self.receipt else None
        if entry is not None:
            return self.by_receipt(mod, entry)
        locked = self.locks.get(mod.name)
        if locked is not None and next(known_trees.states(locked, bare, self.workspace), None):
            return None
        for variant in self.by_range(mod):
            back = patching.backward(variant, self.parts(mod, variant), bare)
            if back.ok:
                bare.lay(back.changes)
                return self.inside(mod, variant)
        return None

    def by_receipt(self, mod: Mod, entry: ReceiptMod) -> ModPlan:
        assert self.receipt is not None  # noqa: S101  (the entry is out of it)
        variant = next((one for one in mod.variants if one.id == entry.variant), None)
        base = ModPlan(
            mod=mod, variant=variant, verdict=Verdict.APPLIED, in_range=self.in_range(mod, variant)
        )
        if entry.digest != mod.digest:
            finding = Finding(
                code="other-version",
                message=f"the receipt says that {entry.name} {entry.version} is in (digest {entry.digest[:12]}), "
                f"and this is {mod.version} (digest {mod.digest[:12]}); revert that one first",
            )
            return base._replace(verdict=Verdict.CONFLICT, findings=(finding,))
        final = {file.path: file.after for file in self.receipt.files}
        edited = [
            file.path
            for file in entry.files
            if sha256(self.tree.read(file.path)) != final.get(file.path, file.after)
        ]
        if not edited:
            return base
        finding = Finding(
            code="changed-since",
            message=f"the receipt says that this mod is in, but {', '.join(edited)} was changed since",
            path=edited[0],
        )
        return base._replace(verdict=Verdict.PARTIAL, findings=(finding,))

    def inside(self, mod: Mod, variant: Variant) -> ModPlan:
        """Build the plan of a mod that is in without a receipt: by hand, or by the release itself."""
        if self.released(mod, variant):
            finding = Finding(
                code="upstream",
                message=f"this release carries the change itself: {mod.name} is not needed on it",
                level=Level.NOTE,
            )
            verdict = Verdict.UPSTREAM
        else:
            finding = Finding(
                code="no-receipt",
                message="every change is in, and no receipt says that this tool put it in; whether the release "
                f"has it itself: `vllm-mods check {mod.name} --target pypi:{self.tree.version}`",
                level=Level.NOTE,
            )
            verdict = Verdict.APPLIED
        return ModPlan(
            mod=mod,
            variant=variant,
            verdict=verdict,
            in_range=self.in_range(mod, variant),
            findings=(finding,),
        )

    def released(self, mod: Mod, variant: Variant) -> bool:
        """Tell whether the files that a mod is in are as the distribution shipped them.

        RECORD says so of what this tool changed too, so it is believed only beside a receipt, of the
        files that the receipt does not name.
        """
        if self.tree.pristine:
            return True
        if self.receipt is None:
            return False
        touched = {file.path for file in self.receipt.files}
        paths = {part.path for part in self.parts(mod, variant)}
        return (
            bool(paths)
            and not paths & touched
            and all(
                (data := self.tree.read(path)) is not None and self.tree.is_released(path, data)
                for path in paths
            )
        )

    # --- putting a mod in ---------------------------------------------------

    def put_in(self, mod: Mod) -> ModPlan:
        locked = self.locks.get(mod.name)
        for tree in known_trees.states(locked, self.view, self.workspace) if locked else ():
            vouched = self.vouched(mod, tree)
            if vouched is not None and not (self.strict_version and not vouched.in_range):
                return vouched
        try:
            chosen = self.choose(mod)
            # a release that has it in other words takes it a second time, or is said to be in conflict
            return self.carried(mod) or chosen
        except TreeError as error:
            return _unreadable(mod, error)

    def carried(self, mod: Mod) -> ModPlan | None:
        """Return the plan of a mod that is in as the merge from where it comes from tells, else None."""
        for variant in self.nearest(mod):
            parts, origin = self.parts(mod, variant), self.origin(mod, variant)
            if (
                origin
                and len(carried_parts.carried_parts(parts, origin, self.view)) == len(parts) > 0
            ):
                return self.inside(mod, variant)
        return None

    def vouched(self, mod: Mod, tree: LockedTree) -> ModPlan | None:
        witness = known_trees.witness(tree.beside, self.view)
        if witness not in tree.witness:
            return None  # the fit was asked beside other files
        variant = self.variant(mod, tree.variant)
        done = known_trees.place(
            tree, self.parts(mod, variant, vouched=True), self.view, self.workspace
        )
        if done is None:
            return None
        changes, placed = done
        in_range = self.in_range(mod, variant)
        return ModPlan(
            mod=mod,
            variant=variant,
            verdict=Verdict.MOVED if any(hunk.offset for hunk in placed) else Verdict.APPLIES,
            in_range=in_range,
            changes=changes,
            hunks=placed,
            findings=(*patching.notes(placed, changes), *self.notes(variant, in_range=in_range)),
            vouched=True,
            beside=tree.beside,
            witness=witness,
            proof=tree.proof,
            unexamined=fit.unexamined(
                self.tree, "" if tree.proof == "types" else "the proof in mod.lock is without"
            ),
        )

    def choose(self, mod: Mod) -> ModPlan:
        """Try every variant against the tree's bytes; the range only orders the tries."""
        variants = self.by_range(mod)
        inside = [variant for variant in variants if self.in_range(mod, variant)]
        outside = [variant for variant in variants if not self.in_range(mod, variant)]
        failed: list[Attempt] = []
        for group in (inside,) if self.strict_version else (inside, outside):
            tries = [self.attempt(mod, variant) for variant in group]
            good = [one for one in tries if one.ok]
            results = {
                tuple((change.path, sha256(change.after)) for change in one.changes) for one in good
            }
            if len(results) > 1:
                return self.undecided(mod, good)
            if good:
                exact = (one for one in good if one.verdict is Verdict.APPLIES)
                return self.fits(mod, next(exact, good[0]))
            failed += tries
        return self.refuse(mod, inside, failed)

    def attempt(self, mod: Mod, variant: Variant) -> Attempt:
        """Put a variant in, and ask whether what comes out would work."""
        tried = patching.forward(variant, self.parts(mod, variant), self.view)
        if not tried.ok:
            return tried
        origin = self.origin(mod, variant) if variant in self.nearest(mod) else None
        parts = self.parts(mod, variant)
        against = carried_parts.disagreement(tried, parts, origin) if origin else None
        if against is not None:
            return Attempt(variant, ok=False, verdict=Verdict.MISPLACED, findings=(against,))
        looked = fit.fit(
            tried.changes,
            self.view,
            expects=variant.expects,
            allow=variant.allow,
            cache=self.cache,
        )
        found = looked.findings
        tried = tried._replace(
            beside=looked.beside, proof=looked.proof, unexamined=looked.unexamined
        )
        if any(finding.level is Level.ERROR for finding in found):
            return tried._replace(ok=False, verdict=Verdict.UNFIT, changes=(), findings=found)
        return tried._replace(findings=(*tried.findings, *found))

    def fits(self, mod: Mod, tried: Attempt) -> ModPlan:
        in_range = self.in_range(mod, tried.variant)
        return ModPlan(
            mod=mod,
            variant=tried.variant,
            verdict=tried.verdict,
            in_range=in_range,
            changes=tried.changes,
            hunks=tried.hunks,
            beside=tried.beside,
            witness=known_trees.witness(tried.beside, self.view),
            proof=tried.proof,
            unexamined=tried.unexamined,
            findings=(
                *tried.findings,
                *self.leftovers(tried.changes),
                *self.notes(tried.variant, in_range=in_range),
            ),
        )

    def undecided(self, mod: Mod, good: Sequence[Attempt]) -> ModPlan:
        named = " and ".join(f"`{one.variant.id}` ({one.variant.vllm})" for one in good)
        finding = Finding(
            code="two-variants",
            message=f"the variants {named} both fit, with different results, and nothing says which one is meant",
        )
        return _refused(mod, Verdict.UNSUPPORTED, (finding,))

    def refuse(self, mod: Mod, inside: Sequence[Variant], failed: Sequence[Attempt]) -> ModPlan:
        """Say why nothing fits, in the words of the variant that comes nearest."""
        if not failed:
            ranges = ", ".join(f"`{variant.id}` ({variant.vllm})" for variant in mod.variants)
            finding = Finding(
                code="no-variant",
                message=f"no variant is meant for vLLM {self.tree.version}: there are {ranges}",
            )
            return _refused(mod, Verdict.UNSUPPORTED, (finding,))
        meant = [tried for tried in failed if tried.variant in inside]
        # A variant that goes in and does not work says more than that it was not meant for the tree.
        unfit = [tried for tried in failed if tried.verdict is Verdict.UNFIT]
        if meant or unfit or self.tree.version is None:
            best = min(meant or unfit or failed, key=lambda tried: len(tried.findings))
            return self.refused(mod, best)
        if not self.as_released(failed[0].variant, mod):
            half = (one for one in (self.by_part(mod, tried) for tried in failed) if one)
            if (best_half := next(half, None)) is not None:
                return best_half
        (variant,) = self.nearest(mod)[:1]
        best = next(tried for tried in failed if tried.variant == variant)
        ranges = ", ".join(f"`{variant.id}` ({variant.vllm})" for variant in mod.variants)
        finding = Finding(
            code="no-variant",
            message=f"no variant is meant for vLLM {self.tree.version}, and none fits its source: there are {ranges}",
        )
        return ModPlan(
            mod=mod,
            variant=best.variant,
            verdict=Verdict.UNSUPPORTED,
            in_range=False,
            findings=(finding, *best.findings),
        )

    def refused(self, mod: Mod, tried: Attempt) -> ModPlan:
        plan = ModPlan(
            mod=mod,
            variant=tried.variant,
            verdict=tried.verdict,
            in_range=self.in_range(mod, tried.variant),
            findings=(*tried.findings, *self.leftovers(_touched(tried))),
            beside=tried.beside,
            proof=tried.proof,
            unexamined=tried.unexamined,
        )
        return plan if tried.verdict is Verdict.UNFIT else self.by_part(mod, tried) or plan

    def by_part(self, mod: Mod, tried: Attempt) -> ModPlan | None:
        """Say of a variant that does not go in what the tree carries of it; None if that is nothing."""
        variant = tried.variant
        parts = self.parts(mod, variant)
        states = carried_parts.states(parts, self.view, self.origin(mod, variant))
        inside = [one for one in states if one.state == "carried"]
        if not inside or len(inside) == len(states):
            return None
        rest = patching.forward(variant, carried_parts.without(parts, inside), self.view)
        labels = ", ".join(_labels(inside, states))
        if self.as_released(variant, mod):
            message = f"the release carries {labels} already"
            message += "; the rest goes in: it needs a variant of its own" if rest.ok else ""
            level = Level.ERROR if rest.ok else Level.NOTE
            finding = Finding("carried", message, path=inside[0].path, level=level)
            verdict = Verdict.CONFLICT if rest.ok else rest.verdict
        else:
            outside = _labels([one for one in states if one.state != "carried"], states)
            message = f"in already: {labels}; not in: {', '.join(outside)}"
            finding = Finding("half-applied", message, path=inside[0].path)
            verdict = Verdict.PARTIAL
        errors = () if rest.ok else rest.findings
        return ModPlan(
            mod=mod,
            variant=variant,
            verdict=verdict,
            in_range=self.in_range(mod, variant),
            findings=(finding, *errors, *self.leftovers(_touched(tried))),
        )

    def as_released(self, variant: Variant, mod: Mod) -> bool:
        """Tell whether the files of a variant are as RECORD has them, those of this tool's mods included."""
        if self.tree.pristine:
            return True
        told = [
            self.tree.is_released(part.path, data)
            for part in self.parts(mod, variant)
            if (data := self.tree.read(part.path)) is not None
        ]
        return bool(told) and all(told)

    def nearest(self, mod: Mod) -> tuple[Variant, ...]:
        """Return the variants that are meant for the tree, else the one whose range begins nearest to it."""
        from vllm_mods.base import versions  # noqa: PLC0415

        inside = tuple(one for one in mod.variants if self.in_range(mod, one))
        if inside:
            return inside
        starts = {_start(one): one for one in reversed(mod.variants)}
        return (starts[versions.nearest(self.tree.version or "0", starts, 1)[0]],)

    # --- small questions ----------------------------------------------------

    def variant(self, mod: Mod, name: str) -> Variant:
        return next(variant for variant in mod.variants if variant.id == name)

    def by_range(self, mod: Mod) -> list[Variant]:
        return sorted(mod.variants, key=lambda variant: not self.in_range(mod, variant))

    def in_range(self, mod: Mod, variant: Variant | None) -> bool:
        if variant is None:
            return False
        locked = self.locks.get(mod.name)
        for tree in locked.trees if locked is not None else ():
            if tree.variant == variant.id and self.tree.version in tree.vllm:
                return tree.in_range
        from vllm_mods.base import versions  # noqa: PLC0415  (packaging is slow to import)

        return bool(versions.in_range(self.tree.version, variant.vllm))

    def notes(self, variant: Variant, *, in_range: bool) -> list[Finding]:
        found = []
        if not in_range:
            said = (
                f"calls itself {self.tree.version}"
                if self.tree.version
                else "does not say its version"
            )
            found.append(
                Finding(
                    code="version-range",
                    message=f"the tree {said}, which variant `{variant.id}` ({variant.vllm}) is not "
                    "meant for, but its source is what the variant was written for",
                    level=Level.NOTE,
                )
            )
        found += [
            Finding(
                code="python-requirement",
                message=f"the patched code imports `{requirement}`, which this tool does not install",
                level=Level.NOTE,
            )
            for requirement in variant.python
        ]
        return found

    def leftovers(self, changes: Sequence[FileChange]) -> list[Finding]:
        """Point at what GNU patch leaves behind when it stops half-way."""
        return [
            Finding(
                code="leftover",
                message=f"{change.path}{suffix} is there: a `patch` run stopped half-way here once",
                path=f"{change.path}{suffix}",
                level=Level.NOTE,
            )
            for change in changes
            for suffix in (".rej", ".orig")
            if not self.tree.remote and self.tree.read(change.path + suffix) is not None
        ]


def _labels(some: Sequence[HunkState], every: Sequence[HunkState]) -> list[str]:
    """Name hunks for a person: by their patch where that is one of several and all of it is meant."""
    patches = dict.fromkeys(one.patch for one in every)
    labels = []
    for patch in patches:
        mine = [one for one in some if one.patch == patch]
        whole = len(mine) == sum(one.patch == patch for one in every)
        labels += [patch] if whole and len(patches) > 1 else [one.label for one in mine]
    return labels


def _start(variant: Variant) -> str:
    """Return the first version that a range names."""
    return variant.vllm.split(",")[0].strip(" <>=!~") or "0"


def _touched(tried: Attempt) -> tuple[FileChange, ...]:
    paths = {finding.path for finding in tried.findings if finding.path}
    return tuple(FileChange(path=path, before=None, after=None) for path in sorted(paths))


def _refused(mod: Mod, verdict: Verdict, findings: tuple[Finding, ...]) -> ModPlan:
    """Return the plan of a mod of which no variant came into it."""
    return ModPlan(mod=mod, variant=None, verdict=verdict, in_range=False, findings=findings)


def _unreadable(mod: Mod, error: TreeError) -> ModPlan:
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    return _refused(mod, Verdict.UNREADABLE, (Finding(code="unreadable", message=message),))


def _stale_note(mod: Mod) -> Finding:
    return Finding(
        code="stale-lock",
        message=f"mod.lock was made from another state of {mod.name}, so it vouches for nothing: "
        "`vllm-mods matrix --update-lock` makes it anew",
        level=Level.NOTE,
    )
