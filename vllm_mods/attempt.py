"""Try one variant of a mod on one view of a tree. Pure; guesses nothing.

``forward`` puts the variant in, ``backward`` takes it out again: the same code on
the reversed diffs. Either succeeds for the whole variant or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vllm_mods import diff, locate
from vllm_mods.digest import sha256
from vllm_mods.errors import TreeError
from vllm_mods.model import FileChange, Finding, HunkState, Level, PlacedHunk, Verdict
from vllm_mods.view import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from vllm_mods.model import Mod, Tree, Variant
    from vllm_mods.whereabouts import Search

    Wanted = AbstractSet[int | None]

NEW_FILE_MODE = 0o644


class Part(NamedTuple):
    """A variant's change to one file: a diff of a patch, or a whole file (overlay, template).

    ``whole`` is the file's content; ``replaces`` the sha256 of files it may replace.
    """

    source: str
    diff: diff.FileDiff | None = None
    path: str = ""
    whole: bytes | None = None
    replaces: tuple[str, ...] = ()


class Attempt(NamedTuple):
    """What became of it. ``changes`` is empty unless ``ok``; ``beside`` is what the fit looked at."""

    variant: Variant
    ok: bool
    verdict: Verdict
    changes: tuple[FileChange, ...] = ()
    findings: tuple[Finding, ...] = ()
    hunks: tuple[PlacedHunk, ...] = ()
    beside: tuple[str, ...] = ()


def parts_of(
    mod: Mod, variant: Variant, workspace: str, *, vouched: bool = False
) -> tuple[Part, ...]:
    """Return a variant's parts in the order they apply. Raises ``DiffError`` for a bad patch.

    ``vouched`` says that mod.lock knows the patches, so that one reading of them is enough.
    """
    reader = diff.read if vouched else diff.parse
    parts = [
        Part(source=patch.source, diff=file, path=file.path)
        for patch in variant.patches
        for file in reader(patch.data, f"{mod.directory}/{patch.source}", root=patch.root)
    ]
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
    from vllm_mods import whereabouts  # noqa: PLC0415  (for trees that are not as expected)

    return _run(variant, parts, tree, whereabouts.search)


def backward(variant: Variant, parts: tuple[Part, ...], tree: Tree) -> Attempt:
    """Take the variant out, last part first. ``ok`` means that all of it was in."""
    if all(_only_mode(part) for part in parts) or not _maybe_in(parts, tree):
        return Attempt(variant=variant, ok=False, verdict=Verdict.CONFLICT)
    view = View(tree)
    for part in reversed(parts):
        if _only_mode(part):
            continue
        step = _Step(part, view, None)
        if part.diff is None:
            if view.read(part.path) != part.whole:
                return Attempt(variant=variant, ok=False, verdict=Verdict.CONFLICT)
            view.lay([FileChange(path=part.path, before=part.whole, after=None)])
            continue
        step.run(part.diff.reversed())
        if step.findings:
            return Attempt(variant=variant, ok=False, verdict=step.verdict)
    return Attempt(variant=variant, ok=True, verdict=Verdict.APPLIED, changes=view.changes())


def states(parts: tuple[Part, ...], tree: Tree) -> tuple[HunkState, ...]:
    """Tell of each hunk, and each whole file, whether it could be put in, is in, or neither.

    Parts lie on top of each other: what could go in is put in from the first one up, what is in
    is taken out from the last one down.
    """
    found = {(i, number): "absent" for i, part in enumerate(parts) for number in _numbers(part)}

    def run(order: Iterable[int], state: str, put: Callable[[Part, View, Wanted], bool]) -> None:
        view = View(tree)
        for i in order:
            part = parts[i]
            left = [number for number in _numbers(part) if found[i, number] == "absent"]
            fit = [number for number in left if put(part, View(view), {number})]
            found.update(dict.fromkeys(((i, number) for number in fit), state))
            if fit:
                put(part, view, set(fit))

    def forth(part: Part, view: View, wanted: Wanted) -> bool:
        step = _Step(part, view, None)
        if part.diff is None:
            step.put_whole()
        else:
            step.run(_only(part.diff, wanted))
        return not step.findings

    def back(part: Part, view: View, wanted: Wanted) -> bool:
        if part.diff is None:
            there = view.read(part.path) == part.whole
            if there:
                view.lay([FileChange(path=part.path, before=part.whole, after=None)])
            return there
        step = _Step(part, view, None)
        step.run(_only(part.diff, wanted).reversed())
        return not step.findings

    # first what could go in: only what could not be put in (again) counts as carried
    run(range(len(parts)), "placed", forth)
    run(reversed(range(len(parts))), "carried", back)
    every = all_in(parts, "absent")
    return tuple(
        one._replace(state=state) for one, state in zip(every, found.values(), strict=True)
    )


def all_in(parts: tuple[Part, ...], state: str) -> tuple[HunkState, ...]:
    """Return the hunks and whole files of a variant, each in the same state."""
    return tuple(
        HunkState(patch=part.source, path=part.path, number=number, state=state)
        for part in parts
        for number in _numbers(part)
    )


def _numbers(part: Part) -> list[int | None]:
    """Return the numbers of a part's hunks; None stands for all that it does to its file."""
    file = part.diff
    if file is None or len(file.hunks) <= 1 or file.old_path != file.new_path:
        return [None]
    return [hunk.number for hunk in file.hunks]


def _only(file: diff.FileDiff, wanted: Wanted) -> diff.FileDiff:
    if None in wanted:
        return file
    return file._replace(hunks=tuple(hunk for hunk in file.hunks if hunk.number in wanted))


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
            not hunk.new or locate.matches(data, hunk.new) for hunk in file.hunks
        ):
            return False
    return all(tree.read(part.path) == part.whole for part in parts if part.diff is None)


def _run(
    variant: Variant,
    parts: tuple[Part, ...],
    tree: Tree,
    search: Search,
) -> Attempt:
    view = View(tree)
    findings: list[Finding] = []
    hunks: list[PlacedHunk] = []
    verdicts: list[Verdict] = []
    for part in parts:
        step = _Step(part, view, search)
        try:
            if part.diff is not None:
                step.run(part.diff)
            else:
                step.put_whole()
        except TreeError as error:
            step.fail(Verdict.UNREADABLE, "unreadable", error.message, path=part.path)
        findings += step.findings
        hunks += step.hunks
        if step.findings:
            verdicts.append(step.verdict)
    if verdicts:
        worst = min(verdicts, key=_SEVERITY.index)
        return Attempt(variant=variant, ok=False, verdict=worst, findings=tuple(findings))
    moved = any(hunk.offset for hunk in hunks)
    return Attempt(
        variant=variant,
        ok=True,
        verdict=Verdict.MOVED if moved else Verdict.APPLIES,
        changes=view.changes(),
        findings=tuple(notes(hunks, view.changes())),
        hunks=tuple(hunks),
    )


_SEVERITY = (Verdict.UNREADABLE, Verdict.MISSING, Verdict.MISPLACED, Verdict.CONFLICT)


def notes(hunks: Sequence[PlacedHunk], changes: Sequence[FileChange]) -> list[Finding]:
    """Say what a user should know of hunks that have their place, and of modes."""
    notes = [
        Finding(
            code="mode",
            message=f"{change.path} gets the mode {change.mode:04o}, whatever it has: a tree does not tell",
            path=change.path,
            level=Level.NOTE,
        )
        for change in changes
        if change.mode is not None and change.before == change.after
    ]
    for hunk in hunks:
        place = {"path": hunk.path, "line": hunk.line, "hunk": hunk.number, "scope": hunk.scope}
        if hunk.offset:
            notes.append(
                Finding(
                    code="offset",
                    message=f"hunk {hunk.number} lands at line {hunk.line}, {hunk.offset:+d} from where it was written",
                    level=Level.NOTE,
                    **place,  # type: ignore[arg-type]
                )
            )
        if hunk.proof == "unique" and hunk.path.endswith(".py"):
            notes.append(
                Finding(
                    code="unique-only",
                    message=f"all that places hunk {hunk.number} is that its text occurs once in the file: "
                    "neither mod.lock nor the patch says which class or function it was written in",
                    level=Level.NOTE,
                    **place,  # type: ignore[arg-type]
                )
            )
    return notes


class _Step:
    """One part on one view: lays the change over the view, or has findings that say why not."""

    def __init__(self, part: Part, view: View, search: Search | None) -> None:
        self.part = part
        self.view = view
        self.search = search
        self.findings: list[Finding] = []
        self.hunks: list[PlacedHunk] = []
        self.verdict = Verdict.APPLIES

    def fail(self, verdict: Verdict, code: str, message: str, **place: object) -> None:
        self.findings.append(Finding(code=code, message=message, **place))  # type: ignore[arg-type]
        if self.verdict not in _SEVERITY or _SEVERITY.index(verdict) < _SEVERITY.index(
            self.verdict
        ):
            self.verdict = verdict

    def put_whole(self) -> None:
        part = self.part
        before = self.view.read(part.path)
        if before == part.whole:
            self.fail(
                Verdict.CONFLICT,
                "file-there",
                f"{part.path} is there already, with the same bytes",
                path=part.path,
            )
        elif before is not None and sha256(before) not in part.replaces:
            self.fail(
                Verdict.CONFLICT,
                "file-there",
                f"{part.path} is there already, with other bytes than {part.source}; it is never replaced unseen",
                path=part.path,
            )
        else:
            mode = NEW_FILE_MODE if before is None else None
            self.view.lay([FileChange(path=part.path, before=before, after=part.whole, mode=mode)])

    def run(self, file: diff.FileDiff) -> None:
        before = None if file.old_path is None else self.view.read(file.old_path)
        if file.old_path is None or (before is None and file.may_create):
            self.create(file)
            return
        if before is None:
            self.file_missing(file)
            return
        if (
            file.new_path not in (None, file.old_path)
            and self.view.read(file.new_path or "") is not None
        ):
            self.fail(
                Verdict.CONFLICT,
                "file-there",
                f"{file.new_path} is there already, so {file.old_path} cannot be renamed to it",
                path=file.new_path,
            )
            return
        if file.new_path is None:
            if b"".join(file.hunks[0].old if file.hunks else ()) != before:
                self.fail(
                    Verdict.CONFLICT,
                    "text",
                    f"the patch deletes {file.old_path}, but its content is another",
                    path=file.old_path,
                    line=1,
                )
                return
            self.view.lay([FileChange(path=file.old_path, before=before, after=None)])
            return
        after = self.place(file, before)
        if after is None:
            return
        if file.new_path != file.old_path:
            self.view.lay([FileChange(path=file.old_path, before=before, after=None)])
            before = None
        self.view.lay([FileChange(path=file.new_path, before=before, after=after, mode=file.mode)])

    def create(self, file: diff.FileDiff) -> None:
        assert file.new_path is not None  # noqa: S101  (the reader refuses two /dev/null)
        content = b"".join(file.hunks[0].new) if file.hunks else b""
        if self.view.read(file.new_path) is not None:
            self.fail(
                Verdict.CONFLICT,
                "file-there",
                f"{file.new_path} is there already, and the patch creates it",
                path=file.new_path,
            )
            return
        mode = file.mode if file.mode is not None else NEW_FILE_MODE
        self.view.lay([FileChange(path=file.new_path, before=None, after=content, mode=mode)])

    def place(self, file: diff.FileDiff, before: bytes) -> bytes | None:
        """Return the file with every hunk in its proven place; None and findings otherwise."""
        from vllm_mods import scopes  # noqa: PLC0415

        path = file.path
        parse = scopes.read_scopes if path.endswith((".py", ".pyi")) else None
        target = locate.Target(data=before, parse=parse)
        try:
            spots = locate.place(file, target)
        except scopes.UnparsableError as error:
            self.fail(
                Verdict.UNREADABLE,
                "unparsable",
                f"{path} cannot be read as Python, so nothing proves where a hunk belongs: {error}",
                path=path,
            )
            return None
        placed: list[tuple[int, diff.Hunk]] = []
        for hunk, spot in zip(file.hunks, spots, strict=True):
            if isinstance(spot, locate.Lost):
                self.lost(hunk, spot, path, target)
                continue
            placed.append((spot.line, hunk))
            self.hunks.append(
                PlacedHunk(
                    patch=self.part.source,
                    path=path,
                    number=hunk.number,
                    line=spot.line,
                    offset=spot.line - hunk.stated,
                    scope=spot.scope,
                    proof=spot.proof,
                )
            )
        return None if self.findings else locate.splice(target.lines, placed)

    def lost(self, hunk: diff.Hunk, spot: locate.Lost, path: str, target: locate.Target) -> None:
        place = {"path": path, "hunk": hunk.number, "scope": spot.scope}
        label = f"hunk {hunk.number} of {self.part.source} ({path}"
        label += f", `{spot.scope}`)" if spot.scope else ")"
        if self.search is None:  # only asked whether it would go in
            self.fail(Verdict.CONFLICT, spot.code, spot.message, **place)
            return
        if spot.code != "absent":
            line = spot.lines[0] if spot.lines else None
            verdict = Verdict.CONFLICT if spot.code == "edge" else Verdict.MISPLACED
            self.fail(verdict, spot.code, f"{label}: {spot.message}", line=line, **place)
            return
        gone = _gone(target, spot.scope)
        if gone is not None:
            found = self.search(self.view, gone, path)
            self.fail(
                Verdict.MISSING,
                "scope-gone",
                f"{label}: `{gone}` is not in the file any more; {found}",
                **place,
            )
            return
        near = locate.nearest(hunk, target, spot.scope)
        line, words = near[:2] if near is not None else (None, "nothing like it is there")
        at = f" nearest is line {line}:" if line is not None else ""
        self.fail(
            Verdict.CONFLICT,
            "text",
            f"{label}: its text is not there;{at} {words}",
            line=line,
            **place,
        )

    def file_missing(self, file: diff.FileDiff) -> None:
        path = file.path
        if self.search is None:
            self.fail(Verdict.MISSING, "file-gone", f"there is no {path}", path=path)
            return
        names = dict.fromkeys(name for hunk in file.hunks if (name := _named(hunk)))
        found = "; ".join(self.search(self.view, name, path) for name in names)
        self.fail(
            Verdict.MISSING,
            "file-gone",
            f"there is no {path}" + (f"; {found}" if found else ""),
            path=path,
            scope=next(iter(names), None),
        )


def _named(hunk: diff.Hunk) -> str | None:
    """Return the class or function that the section header names."""
    words = hunk.section.split("(")[0].rstrip(":").split()
    return words[-1] if len(words) >= 2 and words[-2] in {"class", "def"} else None


def _gone(target: locate.Target, scope: str | None) -> str | None:
    """Return the first class or function of a chain that the file no longer defines."""
    if not scope or target.scopes is None:
        return None
    names = {one.name for one in target.scopes.definitions()}
    last = {name.rsplit(".", 1)[-1] for name in names}
    for chain in scope.split(" | "):
        if not chain or chain.endswith((" =", " import")) or chain.startswith("import "):
            continue
        # a header or a hunk of its own tells only the last name of the chain
        known = names if "." in chain else last
        if chain not in known:
            top = chain.split(".")[0]
            return top if "." in chain and top not in names else chain
    return None
