"""Try one variant of a mod on one view of a tree. Pure; guesses nothing.

``forward`` puts the variant in, ``backward`` takes it out again: the same code on
the reversed diffs. Either succeeds for the whole variant or not at all.
"""

import itertools
import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from vllm_mods.base import limits
from vllm_mods.base.errors import DiffError, TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import (
    BinaryFile,
    FileChange,
    Finding,
    Level,
    Mod,
    ModPlan,
    OptionalPatch,
    OverlayFile,
    PlacedHunk,
    Variant,
    Verdict,
)
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff, diff_reader
from vllm_mods.placing.target import matches
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part, PatchingStep

VERDICTS = {
    FindingCode.UNREADABLE: Verdict.UNREADABLE,
    FindingCode.UNPARSABLE: Verdict.UNREADABLE,
    FindingCode.FILE_GONE: Verdict.MISSING,
    FindingCode.SCOPE_GONE: Verdict.MISSING,
    FindingCode.SUPERSEDED: Verdict.MISSING,
    FindingCode.AMBIGUOUS: Verdict.MISPLACED,
    FindingCode.LOOK_ALIKE: Verdict.MISPLACED,
    FindingCode.BOTH_WAYS: Verdict.MISPLACED,
    FindingCode.ELSEWHERE: Verdict.MISPLACED,
    FindingCode.ORDER: Verdict.MISPLACED,
    FindingCode.UNPROVABLE: Verdict.MISPLACED,
    FindingCode.MERGE: Verdict.MISPLACED,
    FindingCode.CONFLICTING_MOD: Verdict.CONFLICT,
    FindingCode.CARRIED: Verdict.CONFLICT,
    FindingCode.EDGE: Verdict.CONFLICT,
    FindingCode.FILE_THERE: Verdict.CONFLICT,
    FindingCode.TEXT: Verdict.CONFLICT,
    FindingCode.NOT_IN_TREE: Verdict.UNREADABLE,
}
"""What each code of a finding makes of a plan, the gravest first."""


def parts_of(
    mod: Mod,
    variant: Variant,
    workspace: str,
    *,
    vouched: bool = False,
    platform: str | None = None,
) -> tuple[Part, ...]:
    """Return a variant's parts in the order they apply. Raises ``DiffError`` for a bad patch.

    Of prebuilt code those for ``platform``, the first of each path where that is not known.
    ``vouched`` says that mod.lock knows the patches, so that one reading of them is enough.
    """
    reader = diff.read if vouched else diff.parse
    parts: list[Part] = []
    hunks = size = 0
    for patch in variant.patches:
        where = os.path.join(mod.directory, patch.source)
        files = reader(patch.data, where, root=patch.root)
        parts += [Part(patch.source, file, file.path, optional=patch.optional) for file in files]
        size += len(patch.data)
        hunks += sum(len(file.hunks) for file in files)
        for most, count in ((limits.PATCH, size), (limits.HUNKS, hunks)):
            if count > most:
                why = f"this patch and those before it have more than {most}"
                raise DiffError(where, 1, why, hint=diff_reader.MANY)
    replaced = enumerate(variant.replace)
    parts += [Part(source=f"replace[{i}]", path=one.path, other=one) for i, one in replaced]
    built = [file for file in variant.binary if platform in {None, file.platform}]
    first_built = {file.path: file for file in reversed(built)}
    whole: tuple[OverlayFile | BinaryFile, ...] = (*variant.overlay, *first_built.values())
    contents = [(one.source, one.path, one.data, one.replaces) for one in whole]
    contents += ((one.source, f"{workspace}/{one.file}", one.data, ()) for one in variant.templates)
    parts += [Part(source, None, path, data, was) for source, path, data, was in contents]
    return tuple(parts)


def forward(
    plan: ModPlan,
    parts: tuple[Part, ...],
    tree: Tree,
    *,
    beneath: Tree | None = None,
    changed_by: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> ModPlan:
    """Return a plan with its parts in, or what is wrong; ``beneath`` lacks what other mods did: ``changed_by``, by path."""
    view = LayeredTree(tree)
    below = LayeredTree(beneath or tree)
    findings: list[Finding] = []
    hunks: list[PlacedHunk] = []
    optional: list[OptionalPatch] = []
    left_out: list[Finding] = []
    for free, group in _groups(parts):
        trial = LayeredTree(view) if free else view
        wrong: list[Finding] = []
        placed: list[PlacedHunk] = []
        for part in group:
            # for what has no place, the whole file is looked through
            step = PatchingStep(part, trial, explain=len(findings) + len(wrong) < limits.EXPLAINED)
            try:
                step.beneath = _beneath(part, below, trial, tree)
                step.others = changed_by.get(part.path, ())
                step.put_in()
            except TreeError as error:
                step.fail(FindingCode.UNREADABLE, error.message, path=part.path)
            wrong += step.findings
            placed += step.hunks
        if free and wrong:
            verdict = Verdict.APPLIED if backward(group, view) is not None else worst(wrong)
            optional.append(OptionalPatch(free, verdict, wrong[0].message))
            left_out += wrong
            continue
        findings += wrong
        hunks += placed
        if free:
            view.lay(trial.changes())
            optional.append(OptionalPatch(free, as_placed(placed)))
    if left_out and not findings and not view.changes():
        findings = left_out  # nothing of the variant goes in
    if findings:
        return plan._replace(verdict=worst(findings), findings=tuple(findings))
    changes = view.changes()
    more = notes(hunks, changes)
    for left in optional:
        if left.message:
            message = f"{left.patch} is optional and was left out ({left.verdict}): {left.message}"
            more.append(note(FindingCode.OPTIONAL, message))
    return plan._replace(
        verdict=as_placed(hunks),
        changes=changes,
        findings=tuple(more),
        hunks=tuple(hunks),
        optional=tuple(optional),
    )


def _beneath(part: Part, below: Tree, view: LayeredTree, tree: Tree) -> bytes | None:
    """Return a file as it was before other mods changed it; None where none did, or this one has by now."""
    now = view.read(part.path)
    try:
        before = below.read(part.path)
    except TreeError:  # its original is damaged: the file as it is now counts
        return None
    return before if before != now == tree.read(part.path) else None


def backward(parts: tuple[Part, ...], tree: Tree) -> tuple[FileChange, ...] | None:
    """Return the changes that take a variant out, last part first; None unless all of it is in."""
    needed = tuple(part for part in parts if not part.optional)
    if all(_only_mode(part) for part in parts) or not _maybe_in(needed, tree):
        return None
    view = LayeredTree(tree)
    for free, group in reversed(_groups(parts)):
        trial = LayeredTree(view) if free else view
        steps = (PatchingStep(part, trial) for part in reversed(group) if not _only_mode(part))
        is_out = not any(step.take_out() for step in steps)
        if is_out and free:
            view.lay(trial.changes())
        elif not is_out and (not free or _goes_in(group, LayeredTree(view))):
            return None  # it is still to be put in
    return view.changes() if needed else view.changes() or None


def _goes_in(group: Sequence[Part], view: LayeredTree) -> bool:
    try:
        return not any(PatchingStep(part, view).put_in() for part in group)
    except TreeError:
        return False


def _groups(parts: Sequence[Part]) -> list[tuple[str, tuple[Part, ...]]]:
    """Return parts that go in together, those of an optional patch with its name."""
    groups = itertools.groupby(parts, key=lambda part: part.source if part.optional else "")
    return [(name, tuple(group)) for name, group in groups]


def as_placed(hunks: Sequence[PlacedHunk]) -> Verdict:
    """Return the verdict of hunks that have their places."""
    return Verdict.MOVED if any(hunk.offset for hunk in hunks) else Verdict.APPLIES


def worst(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of a plan that has these errors."""
    codes = {finding.code for finding in findings if finding.level is Level.ERROR}
    return next(verdict for code, verdict in VERDICTS.items() if code in codes)


def _only_mode(part: Part) -> bool:
    """Tell whether a part changes permission bits alone: a tree does not tell if it is in."""
    diff = part.diff
    return diff is not None and not diff.hunks and diff.old_path == diff.new_path


def _maybe_in(parts: tuple[Part, ...], tree: Tree) -> bool:
    """Look by text alone, so that an unpatched tree is told from a patched one without parsing."""
    last = {part.diff.new_path or part.path: part.diff for part in parts if part.diff is not None}
    for path, file in last.items():
        data = tree.read(path)
        if (data is None) != (file.new_path is None):
            return False
        if data is not None and any(one.new and not matches(data, one.new) for one in file.hunks):
            return False
    whole = (part for part in parts if part.diff is None and part.other is None)
    return all(tree.read(part.path) == part.whole for part in whole)


def note(code: FindingCode, message: str, **place: object) -> Finding:
    """Return a finding of the level of a note."""
    return Finding(code, message, level=Level.NOTE, **place)  # type: ignore[arg-type]


def add_notes(plan: ModPlan, *findings: Finding) -> ModPlan:
    """Return a plan with more findings."""
    return plan._replace(findings=(*plan.findings, *findings))


def refuse(plan: ModPlan, verdict: Verdict, *findings: Finding) -> ModPlan:
    """Refuse a plan after all, for these findings."""
    return add_notes(plan, *findings)._replace(verdict=verdict, changes=(), hunks=())


def notes(hunks: Sequence[PlacedHunk], changes: Sequence[FileChange]) -> list[Finding]:
    """Say what a user should know of hunks that have their place, and of modes."""
    notes = []
    for change in changes:
        if change.mode is not None and change.before == change.after:
            message = f"{change.path} gets the permission bits {change.mode:04o}; the present bits of the file were not compared with these"
            notes.append(note(FindingCode.MODE, message, path=change.path))
    is_one = len({(hunk.path, hunk.patch) for hunk in hunks}) == 1
    for hunk in hunks:
        label = f"hunk {hunk.number}" + ("" if is_one else f" of {hunk.path} ({hunk.patch})")
        place = {"path": hunk.path, "line": hunk.line, "hunk": hunk.number, "scope": hunk.scope}
        if hunk.offset:
            message = f"{label}: applies at line {hunk.line}, offset {hunk.offset:+d}"
            notes.append(note(FindingCode.OFFSET, message, **place))
        if hunk.proof == "unique" and hunk.path.endswith(".py"):
            message = f"{label}: only the text, which matches once in the file, proves the place; the patch does not name every enclosing class and function"
            notes.append(note(FindingCode.UNIQUE_ONLY, message, **place))
    return notes
