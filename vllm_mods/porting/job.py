"""One variant ported to one tree, from reading its base to the verdict on what came out. Writes nothing."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from vllm_mods.base.model import FileChange, Level, Mod, Variant, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff_writer
from vllm_mods.library import mod_folder
from vllm_mods.planning import planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.porting import files, imports, repair, structure, text, variant
from vllm_mods.porting.files import FilePort
from vllm_mods.porting.follow import Followed

_ROUNDS = 4
"""How often fit is asked again: what is put right may show what is behind it."""


class Job(NamedTuple):
    """What is to be ported: a variant of a mod from its base to a target, and what to call it.

    ``base`` is None for a port that a person has finished; ``base_version`` is what it was. ``vllm``
    is the range that the new variant states, ``roots`` are the library's folders; with ``repair``, what fit
    finds wrong is put right where there is one way to. ``others`` are the versions of other packages that were named to be beside the target.
    """

    mod: Mod
    variant: Variant
    base: Tree | None
    base_version: str
    target: Tree
    name: str
    vllm: str
    roots: Sequence[str]
    repair: bool = True
    others: tuple[tuple[str, str], ...] = ()

    @property
    def target_version(self) -> str:
        """The version of the target, or what it was named."""
        return self.target.version or self.target.spec


class PortOutcome(NamedTuple):
    """What came out. ``new`` is None where something clashes, or the target has the change already.

    ``cuts`` are what ``new`` changes in the target, ``repaired`` says what of that no merge
    gave. ``steps`` are the versions between that it was carried over, as far as that went without a person;
    ``moved`` says which file of the base one of the last of these was. ``origin`` is the version that ``changes``
    are of: the base's, or that of the last step, where less is left from there.
    """

    job: Job
    changes: tuple[FileChange, ...]
    files: tuple[FilePort, ...]
    new: variant.NewVariant | None
    followed: tuple[Followed, ...]
    cuts: tuple[FileChange, ...] = ()
    repaired: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    moved: Mapping[str, str] = MappingProxyType({})
    origin: str = ""

    @property
    def clean(self) -> bool:
        """Whether everything was merged."""
        return all(one.ported.text is not None for one in self.files)

    @property
    def carried(self) -> bool:
        """Whether the target has everything already; nothing says which modes its files have."""
        modes = any(one.mode is not None and one.before is not None for one in self.changes)
        return bool(self.files) and not modes and all(one.carried for one in self.files)

    @property
    def fits(self) -> bool:
        """Whether there is a variant, and the target takes it."""
        return self.new is not None and self.new.planned.verdict.writes

    @property
    def left(self) -> bool:
        """Whether something is left to a person: what clashes, or what was merged and would not work."""
        return not self.clean if self.new is None else not self.new.planned.verdict.ok

    @property
    def left_places(self) -> tuple[int, int, int]:
        """How much is left: places that no marker can show, places with a marker, errors of the plan."""
        problems = [problem for one in self.files for problem in one.ported.problems]
        marked = sum(problem.code in structure.MARKED for problem in problems)
        findings = () if self.new is None else self.new.planned.findings
        return len(problems) - marked, marked, sum(one.level is Level.ERROR for one in findings)

    @property
    def removed(self) -> tuple[str, ...]:
        """The files of the target that the mod removes."""
        gone = {one.path for one in self.changes if one.after is None}
        done = (one for one in self.files if one.ported.text is not None)
        return tuple(one.new_path for one in done if one.path in gone)

    @property
    def homes(self) -> dict[str, str]:
        """The file of the base that each file of the target was."""
        return {one.new_path: self.moved.get(one.path, one.path) for one in self.files}


def run(job: Job, between: Callable[[], Iterable[Tree]] = tuple) -> PortOutcome:
    """Port a variant; if that leaves something to a person, try again release by release over the trees ``between``.

    If the steps leave something too, the outcome is whichever of the two leaves less.

    Raises ``Refused`` for a base that is not the one it was written for, ``TreeError`` for a tree that cannot be read.
    """
    assert job.base is not None  # noqa: S101  (only `finish` does without)
    changes = variant.changes_of(job.mod, job.variant, job.base)
    variant.check_base(job.mod, job.variant, changes, job.base)
    outcome = _port(job, changes, job.base)
    if not outcome.left:
        return outcome
    steps: tuple[str, ...] = ()
    moved = {change.path: change.path for change in changes}
    before = job.base
    for tree in between():
        ports = _files(changes, tree, before)
        through = [_through(change, one) for change, one in zip(changes, ports, strict=True)]
        if None in through:
            break
        changes = tuple(change for change in through if change)
        moved = {one.new_path: moved[one.path] for one in ports}
        steps += (tree.version or tree.spec,)
        before = tree
    stepped = _port(job, changes, before, moved) if steps else outcome
    worse = stepped.left and stepped.left_places >= outcome.left_places
    return (outcome if worse else stepped)._replace(steps=steps)


def _files(changes: Sequence[FileChange], tree: Tree, base: Tree) -> tuple[FilePort, ...]:
    made = {change.path for change in changes if change.before is None}
    return tuple(files.port(change, tree, base, made=made) for change in changes)


def _through(change: FileChange, port: FilePort) -> FileChange | None:
    """Return the change as it is in a release between, None where it clashes there.

    The release may have a part of the change already, and a later one may have taken that back. So ``before`` is not
    the release's file: it is the result with the whole change taken out.
    """
    after = port.ported.text
    if after is None:
        return None
    if change.before is None or change.after is None:
        return change._replace(path=port.new_path)
    python = port.path.endswith((".py", ".pyi"))
    before = text.port(change.after, change.before, after, python=python).text
    return None if before is None else FileChange(port.new_path, before, after)


def _port(
    job: Job,
    changes: tuple[FileChange, ...],
    base: Tree,
    moved: Mapping[str, str] = MappingProxyType({}),
) -> PortOutcome:
    ports = _files(changes, job.target, base)
    followed = tuple(one for port in ports for one in port.ported.followed)
    origin = job.base_version if base is job.base else base.version or base.spec
    outcome = PortOutcome(job, changes, ports, None, followed, moved=moved, origin=origin)
    brings = bool(job.variant.overlay or job.variant.templates)
    if not outcome.clean or (outcome.carried and not brings):
        return outcome
    cuts = tuple(
        FileChange(port.new_path, port.before, None if change.after is None else port.ported.text)
        for change, port in zip(changes, ports, strict=True)
    )
    outcome = outcome._replace(new=finish(job, cuts, outcome.homes), cuts=cuts)
    return _repair(outcome) if job.repair else outcome


def _repair(outcome: PortOutcome) -> PortOutcome:
    """Repair what fit finds wrong, if there is only one way to; keep the outcome as it was if that does not make it fit."""
    job, base = outcome.job, outcome.job.base
    current = outcome
    for _ in range(_ROUNDS):
        new = current.new
        if new is None or base is None or new.planned.verdict is not Verdict.UNFIT:
            break
        findings = new.planned.findings
        named = imports.follow(current.cuts, findings, base, job.target)
        done = repair.overrides(named.cuts, findings, base, job.target)
        if done.cuts == current.cuts:
            break
        repairs = (*current.repaired, *named.notes, *done.notes)
        current = current._replace(
            new=finish(job, done.cuts, outcome.homes, repairs), cuts=done.cuts, repaired=repairs
        )
    return current if current.fits else outcome


def finish(
    job: Job, cuts: Sequence[FileChange], homes: Mapping[str, str], repairs: Sequence[str] = ()
) -> variant.NewVariant:
    """Make the variant out of finished files, and plan it on the target.

    The patches get more context until every hunk has one proven place; what the plan says then is for the caller to
    judge. ``homes`` says of a file of the target which one of the base it was; ``repairs`` stand above the first patch.
    """
    result: variant.NewVariant | None = None
    package = job.variant.package
    version = LayeredTree(job.target).package(package) if package else None
    free = [os.path.basename(one.source) for one in job.variant.patches if one.optional]
    beside = {} if version is None else {"package": package, "version": f"=={version}"}
    comment = (
        f"Ported from `{job.variant.id}` (vLLM {job.base_version}) to vLLM {job.target_version}."
    )
    for context in diff_writer.CONTEXTS:
        patches = variant.patches(job.variant, cuts, job.name, context, homes)
        if repairs:
            first = next(iter(patches))
            head = "".join(f"Repaired by port: {one}\n" for one in repairs)
            patches[first] = head.encode() + patches[first]
        block = {"id": job.name, "vllm": job.vllm, "patches": list(patches), **beside}
        if free:
            block["optional"] = [one for one in patches if os.path.basename(one) in free]
        manifest = variant.manifest(job.mod, job.variant, block, comment)
        files = {**patches, mod_folder.MANIFEST: manifest}
        new = variant.load_mod(job.mod, files, job.roots)
        (own,) = (one for one in new.variants if one.id == job.name)
        planned = planner.plan_alone(new, job.target, own)
        result = variant.NewVariant(new, files, planned)
        if planned.verdict != "misplaced":
            break
    assert result is not None  # noqa: S101  (there are contexts)
    return result
