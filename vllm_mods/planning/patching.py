"""Try one variant of a mod on one view of a tree. Pure; guesses nothing.

``forward`` puts the variant in, ``backward`` takes it out again: the same code on
the reversed diffs. Either succeeds for the whole variant or not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import DiffError, TreeError
from vllm_mods.base.model import (
    FileChange,
    Finding,
    Level,
    Mod,
    OptionalPatch,
    PlacedHunk,
    Tree,
    Variant,
    Verdict,
)
from vllm_mods.formats import diff, diff_reader
from vllm_mods.placing import locate
from vllm_mods.placing.relocation import Search
from vllm_mods.placing.target import Target, matches
from vllm_mods.planning.layered_tree import LayeredTree

NEW_FILE_MODE = 0o644

VERDICTS = {
    "unreadable": Verdict.UNREADABLE,
    "unparsable": Verdict.UNREADABLE,
    "file-gone": Verdict.MISSING,
    "scope-gone": Verdict.MISSING,
    "superseded": Verdict.MISSING,
    "ambiguous": Verdict.MISPLACED,
    "both-ways": Verdict.MISPLACED,
    "elsewhere": Verdict.MISPLACED,
    "order": Verdict.MISPLACED,
    "unprovable": Verdict.MISPLACED,
    "merge": Verdict.MISPLACED,
    "carried": Verdict.CONFLICT,
    "edge": Verdict.CONFLICT,
    "file-there": Verdict.CONFLICT,
    "text": Verdict.CONFLICT,
    "not-in-tree": Verdict.UNREADABLE,
}
"""What each code of a finding makes of a plan, the gravest first."""


class Part(NamedTuple):
    """A variant's change to one file: a diff of a patch, or a whole file (overlay, template).

    ``whole`` is the file's content; ``replaces`` the sha256 of files it may replace.
    """

    source: str
    diff: diff.FileDiff | None = None
    path: str = ""
    whole: bytes | None = None
    replaces: tuple[str, ...] = ()
    optional: bool = False


class Attempt(NamedTuple):
    """What became of it. ``changes`` is empty unless ``ok``; ``beside`` is what the fit looked at.

    ``proof`` and ``unexamined`` are as in ``ModPlan``.
    """

    variant: Variant
    ok: bool
    verdict: Verdict
    changes: tuple[FileChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    hunks: tuple[PlacedHunk, ...] = ()
    beside: tuple[str, ...] = ()
    proof: str = ""
    unexamined: tuple[tuple[str, str], ...] = ()
    optional: tuple[OptionalPatch, ...] = ()


def parts_of(
    mod: Mod, variant: Variant, workspace: str, *, vouched: bool = False
) -> tuple[Part, ...]:
    """Return a variant's parts in the order they apply. Raises ``DiffError`` for a bad patch.

    ``vouched`` says that mod.lock knows the patches, so that one reading of them is enough.
    """
    reader = diff.read if vouched else diff.parse
    parts: list[Part] = []
    hunks = 0
    for patch in variant.patches:
        where = f"{mod.directory}/{patch.source}"
        files = reader(patch.data, where, root=patch.root)
        parts += [
            Part(source=patch.source, diff=file, path=file.path, optional=patch.optional)
            for file in files
        ]
        hunks += sum(len(file.hunks) for file in files)
        if hunks > limits.HUNKS:
            why = f"with the patches before it, it has more than {limits.HUNKS}"
            raise DiffError(where, 1, why, hint=diff_reader.MANY)
    parts += [
        Part(source=file.source, path=file.path, whole=file.data, replaces=file.replaces)
        for file in variant.overlay
    ]
    parts += [
        Part(source=file.source, path=f"{workspace}/{file.file}", whole=file.data)
        for file in variant.templates
    ]
    return tuple(parts)


def forward(variant: Variant, parts: tuple[Part, ...], tree: Tree) -> Attempt:
    """Put the variant in."""
    from vllm_mods.placing import relocation  # noqa: PLC0415  (for trees that are not as expected)

    view = LayeredTree(tree)
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
            search = relocation.search if len(findings) + len(wrong) < limits.EXPLAINED else None
            step = PatchingStep(part, trial, search)
            try:
                step.put_in()
            except TreeError as error:
                step.fail("unreadable", error.message, path=part.path)
            wrong += step.findings
            placed += step.hunks
        if free and wrong:
            is_in = backward(variant, _required(group), view).ok
            verdict = Verdict.APPLIED if is_in else worst(wrong)
            optional.append(OptionalPatch(free, verdict, wrong[0].message))
            left_out += wrong
            continue
        findings += wrong
        hunks += placed
        if free:
            view.lay(trial.changes())
            moved = any(hunk.offset for hunk in placed)
            optional.append(OptionalPatch(free, Verdict.MOVED if moved else Verdict.APPLIES))
    if left_out and not findings and not view.changes():
        findings = left_out  # nothing of the variant goes in
    if findings:
        verdict = worst(findings)
        return Attempt(variant=variant, ok=False, verdict=verdict, findings=tuple(findings))
    moved = any(hunk.offset for hunk in hunks)
    return Attempt(
        variant=variant,
        ok=True,
        verdict=Verdict.MOVED if moved else Verdict.APPLIES,
        changes=view.changes(),
        findings=(
            *notes(hunks, view.changes()),
            *(_left_out(one) for one in optional if one.message),
        ),
        hunks=tuple(hunks),
        optional=tuple(optional),
    )


def backward(variant: Variant, parts: tuple[Part, ...], tree: Tree) -> Attempt:
    """Take the variant out, last part first. ``ok`` means that all of it was in."""
    needed = tuple(part for part in parts if not part.optional)
    refused = Attempt(variant=variant, ok=False, verdict=Verdict.CONFLICT)
    if all(_only_mode(part) for part in parts) or not _maybe_in(needed, tree):
        return refused
    view = LayeredTree(tree)
    for free, group in reversed(_groups(parts)):
        trial = LayeredTree(view) if free else view
        wrong = _taken_out(group, trial)
        if free and not wrong:
            view.lay(trial.changes())
        elif free and forward(variant, _required(group), view).ok:
            return refused  # it is still to be put in
        elif wrong and not free:
            return refused._replace(verdict=worst(wrong))
    if not (needed or view.changes()):
        return refused
    return Attempt(variant=variant, ok=True, verdict=Verdict.APPLIED, changes=view.changes())


def _taken_out(group: Sequence[Part], view: LayeredTree) -> list[Finding]:
    """Take parts out, last one first, up to one that is not in."""
    for part in reversed(group):
        if not _only_mode(part):
            step = PatchingStep(part, view)
            step.take_out()
            if step.findings:
                return step.findings
    return []


def _groups(parts: Sequence[Part]) -> list[tuple[str, tuple[Part, ...]]]:
    """Return parts that go in together, those of an optional patch with its name."""
    found = itertools.groupby(parts, key=lambda part: part.source if part.optional else "")
    return [(name, tuple(group)) for name, group in found]


def _required(group: Sequence[Part]) -> tuple[Part, ...]:
    return tuple(part._replace(optional=False) for part in group)


def _left_out(one: OptionalPatch) -> Finding:
    """Say of an optional patch that it is not put in."""
    return note(
        "optional", f"{one.patch} is optional and not put in ({one.verdict}): {one.message}"
    )


def worst(findings: Sequence[Finding]) -> Verdict:
    """Return the verdict of a plan that has these errors."""
    codes = {finding.code for finding in findings if finding.level is Level.ERROR}
    return next(verdict for code, verdict in VERDICTS.items() if code in codes)


def _only_mode(part: Part) -> bool:
    """Tell whether a part changes permission bits alone: a tree does not tell if it is in."""
    return part.diff is not None and part.diff.only_mode


def _maybe_in(parts: tuple[Part, ...], tree: Tree) -> bool:
    """Look by text alone, so that an unpatched tree is told from a patched one without parsing."""
    last = {part.diff.new_path or part.path: part.diff for part in parts if part.diff is not None}
    for path, file in last.items():
        data = tree.read(path)
        if (data is None) != (file.new_path is None):
            return False
        if data is not None and not all(
            not hunk.new or matches(data, hunk.new) for hunk in file.hunks
        ):
            return False
    return all(tree.read(part.path) == part.whole for part in parts if part.diff is None)


def note(code: str, message: str, **place: object) -> Finding:
    """Return a finding that is only to be known."""
    return Finding(code, message, level=Level.NOTE, **place)  # type: ignore[arg-type]


def notes(hunks: Sequence[PlacedHunk], changes: Sequence[FileChange]) -> list[Finding]:
    """Say what a user should know of hunks that have their place, and of modes."""
    notes = []
    for change in changes:
        if change.mode is not None and change.before == change.after:
            why = "whatever it has: a tree does not tell"
            message = f"{change.path} gets the mode {change.mode:04o}, {why}"
            notes.append(note("mode", message, path=change.path))
    for hunk in hunks:
        place = {"path": hunk.path, "line": hunk.line, "hunk": hunk.number, "scope": hunk.scope}
        if hunk.offset:
            message = f"hunk {hunk.number} lands at line {hunk.line}, {hunk.offset:+d} from where it was written"
            notes.append(note("offset", message, **place))
        if hunk.proof == "unique" and hunk.path.endswith(".py"):
            message = (
                f"all that places hunk {hunk.number} is that its text occurs once in the file: "
                "the patch does not say which class or function it was written in"
            )
            notes.append(note("unique-only", message, **place))
    return notes


def placed_hunk(part: Part, hunk: diff.Hunk, line: int, scope: str, proof: str) -> PlacedHunk:
    """Return a hunk of a part in its place."""
    offset = line - hunk.stated
    return PlacedHunk(part.source, part.path, hunk.number, line, offset, scope, proof)


def target_of(path: str, data: bytes) -> Target:
    """Return a file to place hunks in, with its scopes if it is Python's."""
    from vllm_mods.placing.scopes import read_scopes  # noqa: PLC0415  (for trees that no lock knows)

    return Target(data, read_scopes if path.endswith((".py", ".pyi")) else None)


class PatchingStep:
    """One part on one view: lays the change over the view, or has findings that say why not.

    Without ``search``, what is wrong is not looked into: only whether it would go in is asked.
    """

    def __init__(self, part: Part, view: LayeredTree, search: Search | None = None) -> None:
        self.part = part
        self.view = view
        self.search = search
        self.findings: list[Finding] = []
        self.hunks: list[PlacedHunk] = []

    def fail(self, code: str, message: str, **place: object) -> None:
        """Note what is wrong."""
        self.findings.append(Finding(code=code, message=message, **place))  # type: ignore[arg-type]

    def put_in(self) -> None:
        """Put the part in. Raises ``TreeError`` for a file that cannot be read."""
        if self.part.diff is None:
            self.put_whole()
        else:
            self.run(self.part.diff)

    def take_out(self) -> None:
        """Take the part out. Raises ``TreeError`` for a file that cannot be read."""
        part = self.part
        if part.diff is not None:
            self.run(part.diff.reversed(), back=True)
        elif self.view.read(part.path) != part.whole:
            self.fail("text", f"{part.path} is not as {part.source} has it", path=part.path)
        else:
            self.view.lay([FileChange(path=part.path, before=part.whole, after=None)])

    def put_whole(self) -> None:
        """Put a whole file in."""
        part = self.part
        before = self.view.read(part.path)
        if before is not None and (before == part.whole or sha256(before) not in part.replaces):
            same = before == part.whole
            bytes_ = "the same bytes" if same else f"other bytes than {part.source}"
            never = "" if same else "; it is never replaced unseen"
            message = f"{part.path} is there already, with {bytes_}{never}"
            self.fail("file-there", message, path=part.path)
            return
        mode = NEW_FILE_MODE if before is None else None
        self.view.lay([FileChange(path=part.path, before=before, after=part.whole, mode=mode)])

    def run(self, file: diff.FileDiff, *, back: bool = False) -> None:
        """Put a diff of one file in; ``back`` says that it is reversed."""
        before = None if file.old_path is None else self.view.read(file.old_path)
        if file.old_path is None or (before is None and file.may_create):
            self.create(file)
            return
        if before is None:
            self.file_missing(file)
            return
        renamed = file.new_path not in (None, file.old_path)
        if renamed and self.view.read(file.new_path or "") is not None:
            message = (
                f"{file.new_path} is there already, so {file.old_path} cannot be renamed to it"
            )
            self.fail("file-there", message, path=file.new_path)
            return
        if file.new_path is None:
            if b"".join(file.hunks[0].old if file.hunks else ()) != before:
                message = f"the patch deletes {file.old_path}, but its content is another"
                self.fail("text", message, path=file.old_path, line=1)
                return
            self.view.lay([FileChange(path=file.old_path, before=before, after=None)])
            return
        after = self.place(file, before, back=back)
        if after is None:
            return
        if renamed:
            self.view.lay([FileChange(path=file.old_path, before=before, after=None)])
            before = None
        self.view.lay([FileChange(path=file.new_path, before=before, after=after, mode=file.mode)])

    def create(self, file: diff.FileDiff) -> None:
        """Put a new file in."""
        assert file.new_path is not None  # noqa: S101  (the reader refuses two /dev/null)
        content = b"".join(file.hunks[0].new) if file.hunks else b""
        if self.view.read(file.new_path) is not None:
            message = f"{file.new_path} is there already, and the patch creates it"
            self.fail("file-there", message, path=file.new_path)
            return
        mode = file.mode if file.mode is not None else NEW_FILE_MODE
        self.view.lay([FileChange(path=file.new_path, before=None, after=content, mode=mode)])

    def place(self, file: diff.FileDiff, before: bytes, *, back: bool) -> bytes | None:
        """Return the file with every hunk in its proven place; None and findings otherwise."""
        from vllm_mods.formats.concrete_syntax import UnparsableError  # noqa: PLC0415

        path = file.path
        target = target_of(path, before)
        placed: list[tuple[int, diff.Hunk]] = []
        try:
            for hunk, spot in zip(file.hunks, locate.place(file, target, back=back), strict=True):
                if isinstance(spot, locate.Lost):
                    self.lost(hunk, spot, path, target)
                    continue
                placed.append((spot.line, hunk))
                self.hunks.append(placed_hunk(self.part, hunk, *spot))
        except UnparsableError as error:
            message = (
                f"{path} cannot be read as Python, so nothing proves where a hunk belongs: {error}"
            )
            self.fail("unparsable", message, path=path)
        return None if self.findings else locate.splice(target.lines, placed)

    def lost(self, hunk: diff.Hunk, spot: locate.Lost, path: str, target: Target) -> None:
        """Say why a hunk has no place."""
        place = {"path": path, "hunk": hunk.number, "scope": spot.scope}
        label = f"{path}: hunk {hunk.number} of {self.part.source}"
        label += f" (`{spot.scope}`)" if spot.scope else ""
        if self.search is None or spot.code != "absent" or len(self.findings) >= limits.EXPLAINED:
            line = spot.lines[0] if spot.lines else None
            code = "text" if spot.code == "absent" else spot.code
            self.fail(code, f"{label}: {spot.message}", line=line, **place)
            return
        gone = _gone(target, spot.scope)
        if gone is not None:
            code, found = self.search(self.view, gone, path)
            self.fail(code, f"{label}: there is no `{gone}` in it any more; {found}", **place)
            return
        from vllm_mods.placing.nearest import nearest  # noqa: PLC0415

        near = nearest(hunk, target, spot.scope)
        line, words = near[:2] if near is not None else (None, "nothing like its text is there")
        self.fail("text", f"{label}: {words}", line=line, **place)

    def file_missing(self, file: diff.FileDiff) -> None:
        """Say that a file is gone, and where its definitions are, or that its package is not in the tree."""
        path = file.path
        package = path.partition("/")[0]
        if package != "vllm" and not any(True for _ in self.view.paths(package)):
            message = (
                f"{path} is of the package {package}, which {self.view.spec} does not hold: whether it goes in, "
                "a tree says that has it, such as an installed one"
            )
            self.fail("not-in-tree", message, path=path)
            return
        named = dict.fromkeys(name for hunk in file.hunks if (name := _named(hunk)))
        names = tuple(named)[: limits.EXPLAINED]
        found = (
            [] if self.search is None else [self.search(self.view, name, path) for name in names]
        )
        said = "; ".join([f"there is no {path}", *(words for _, words in found)])
        gone = bool(found) and all(code == "superseded" for code, _ in found)
        scope = next(iter(names), None)
        self.fail("superseded" if gone else "file-gone", said, path=path, scope=scope)


def _named(hunk: diff.Hunk) -> str | None:
    """Return the class or function that the section header names."""
    words = hunk.section.split("(")[0].rstrip(":").split()
    return words[-1] if len(words) >= 2 and words[-2] in {"class", "def"} else None


def _gone(target: Target, scope: str | None) -> str | None:
    """Return the class or function that a hunk was written in if the file no longer defines it."""
    if not scope or target.scopes is None:
        return None
    known = {one.name.rsplit(".", 1)[-1] for one in target.scopes.definitions()}
    return None if scope in known else scope
