"""One part of a variant on one view of a tree: put in, or taken out, where it belongs."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, PlacedHunk, TextReplacement
from vllm_mods.formats import diff
from vllm_mods.placing import relocation
from vllm_mods.placing.answers import BaseKnown, Located, Lost
from vllm_mods.placing.headers import written_in
from vllm_mods.placing.scopes import read_scopes
from vllm_mods.placing.target import Target, splice
from vllm_mods.planning.layered_tree import LayeredTree

NEW_FILE_MODE = 0o644


class Part(NamedTuple):
    """A variant's change to one file: a diff of a patch, a whole file (overlay, template), or other text.

    ``whole`` is the file's content; ``replaces`` the sha256 of files it may replace; ``other`` is text for text; ``written``
    is what encloses each hunk's changes, by its number, in the file that it was written for, where that is known; ``at_base``
    says that the tree calls itself what the variant was written for, ``base`` is the file as that one version was shipped with it.
    """

    source: str
    diff: "diff.FileDiff | None" = None
    path: str = ""
    whole: bytes | None = None
    replaces: tuple[str, ...] = ()
    optional: bool = False
    other: TextReplacement | None = None
    written: Mapping[int, tuple[str, ...]] = MappingProxyType({})
    at_base: bool = False
    base: bytes | None = None


def placed_hunk(part: Part, hunk: diff.Hunk, line: int, scope: str, proof: str) -> PlacedHunk:
    """Return a hunk of a part in its place."""
    return PlacedHunk(part.source, part.path, hunk.number, line, line - hunk.stated, scope, proof)


def target_of(path: str, data: bytes) -> Target:
    """Return a file to place hunks in, with its scopes if it is Python's."""
    return Target(data, read_scopes if path.endswith((".py", ".pyi")) else None)


class PatchingStep:
    """One part on one view: lays the change over the view, or has findings that say why not.

    ``beneath`` is its file without what ``others``, mods, did to it. Unless it is to ``explain``, what is wrong is not
    looked into: only whether it would go in is asked.
    """

    def __init__(self, part: Part, view: LayeredTree, *, explain: bool = False) -> None:
        self.part = part
        self.view = view
        self.beneath: bytes | None = None
        self.others: Sequence[str] = ()
        self.explain = explain
        self.findings: list[Finding] = []
        self.hunks: list[PlacedHunk] = []

    def fail(self, code: FindingCode, message: str, **place: object) -> None:
        """Note what is wrong."""
        self.findings.append(Finding(code=code, message=message, **place))  # type: ignore[arg-type]

    def put_in(self) -> list[Finding]:
        """Put the part in, and return what is wrong. Raises ``TreeError`` for a file that cannot be read."""
        if self.part.other is not None:
            self.put_other(self.part.other)
        elif self.part.diff is None:
            self.put_whole()
        else:
            self.run(self.part.diff)
        return self.findings

    def take_out(self) -> list[Finding]:
        """Take the part out, and return what is wrong. Raises ``TreeError`` for a file that cannot be read."""
        part = self.part
        if part.other is not None:
            self.put_other(part.other._replace(old=part.other.new, new=part.other.old))
        elif part.diff is not None:
            self.run(part.diff.reversed(), back=True)
        elif self.view.read(part.path) != part.whole:
            self.fail(FindingCode.TEXT, f"{part.path} differs from {part.source}", path=part.path)
        else:
            self.view.lay([FileChange(part.path, part.whole, None)])
        return self.findings

    def put_other(self, other: TextReplacement) -> None:
        """Put text in the place of other text: it stands there as often as it has to, or not at all."""
        path, source = other.path, self.part.source
        before = self.view.read(path)
        if before is None:
            if not self.reports_absent_package(path):
                self.fail(FindingCode.FILE_GONE, f"{path} does not exist", path=path)
            return
        old = other.old.encode()
        places = [match.start() for match in re.finditer(re.escape(old), before)] if old else []
        lines = [before.count(b"\n", 0, at) + 1 for at in places]
        if len(places) != other.times:
            times = f"{len(places)} times" if places else "nowhere"
            message = f"{path}: the text of {source} appears {times}; expected: {'once' if other.times == 1 else f'{other.times} times'}"
            code = FindingCode.AMBIGUOUS if len(places) > other.times else FindingCode.TEXT
            self.fail(code, message, path=path, line=lines[0] if lines else None)
            return
        target = target_of(path, before)
        for number, line in enumerate(lines, 1):
            scope = "" if target.scopes is None else target.scopes.at(line)
            self.hunks.append(PlacedHunk(source, path, number, line, 0, scope, "file"))
        self.view.lay([FileChange(path, before, before.replace(old, other.new.encode()))])

    def put_whole(self) -> None:
        """Put a whole file in."""
        part = self.part
        before = self.view.read(part.path)
        if before is not None and (before == part.whole or sha256(before) not in part.replaces):
            other = f"different contents from {part.source}; vllm-mods replaces no unknown file"
            bytes_ = "the same bytes" if before == part.whole else other
            message = f"{part.path} already exists, with {bytes_}"
            self.fail(FindingCode.FILE_THERE, message, path=part.path)
            return
        mode = NEW_FILE_MODE if before is None else None
        self.view.lay([FileChange(path=part.path, before=before, after=part.whole, mode=mode)])

    def run(self, file: diff.FileDiff, *, back: bool = False) -> None:
        """Put a diff of one file in; ``back`` says that it is reversed."""
        before = None if file.old_path is None else self.view.read(file.old_path)
        if file.old_path is None or (before is None and file.may_create):
            if not (back and self.reports_absent_package(file.path)):  # never there is not removed
                self.create(file)
            return
        if before is None:
            self.file_missing(file)
            return
        renamed = file.new_path not in (None, file.old_path)
        if renamed and self.view.read(file.new_path or "") is not None:
            message = f"{file.new_path} already exists, so {file.old_path} cannot be renamed to it"
            self.fail(FindingCode.FILE_THERE, message, path=file.new_path)
            return
        if file.new_path is None:
            if b"".join(file.hunks[0].old if file.hunks else ()) != before:
                message = f"the patch deletes {file.old_path}, but its contents differ"
                self.fail(FindingCode.TEXT, message, path=file.old_path, line=1)
                return
            self.view.lay([FileChange(file.old_path, before, None)])
            return
        after = self.place(file, before, back=back)
        if after is None:
            return
        mode = self.view.mode(file.old_path) if renamed and file.mode is None else file.mode
        if renamed:
            self.view.lay([FileChange(file.old_path, before, None)])
            before = None
        self.view.lay([FileChange(file.new_path, before, after, mode)])

    def create(self, file: diff.FileDiff) -> None:
        """Put a new file in."""
        assert file.new_path is not None  # noqa: S101  (the reader refuses two /dev/null)
        content = b"".join(file.hunks[0].new) if file.hunks else b""
        if self.view.read(file.new_path) is not None:
            message = f"{file.new_path} already exists, but the patch creates it"
            self.fail(FindingCode.FILE_THERE, message, path=file.new_path)
            return
        mode = file.mode if file.mode is not None else NEW_FILE_MODE
        self.view.lay([FileChange(path=file.new_path, before=None, after=content, mode=mode)])

    def place(self, file: diff.FileDiff, before: bytes, *, back: bool) -> bytes | None:
        """Return the file with every hunk in its proven place; None and findings otherwise."""
        from vllm_mods.formats.concrete_syntax import UnparsableError  # noqa: PLC0415
        from vllm_mods.placing import layers  # noqa: PLC0415  (for trees that no lock knows)

        path = file.path
        target = target_of(path, before)
        placed: list[tuple[int, diff.Hunk]] = []
        try:
            spots = self.place_hunks(file, target, back=back)
            if self.beneath is not None and not back:
                below = self.place_hunks(file, target_of(path, self.beneath), back=False)
                spots = layers.place_through(
                    file, spots, below, self.beneath, target, others=" or ".join(self.others)
                )
            for hunk, spot in zip(file.hunks, spots, strict=True):
                if isinstance(spot, Lost):
                    self.report_lost(hunk, spot, path, target)
                    continue
                placed.append((spot.line, hunk))
                self.hunks.append(placed_hunk(self.part, hunk, *spot))
        except UnparsableError as error:
            message = f"{path} cannot be parsed as Python, so nothing proves where a hunk belongs: {error}"
            self.fail(FindingCode.UNPARSABLE, message, path=path)
        return None if self.findings else splice(target.lines, placed)

    def place_hunks(
        self, file: diff.FileDiff, target: Target, *, back: bool
    ) -> tuple[Located | Lost, ...]:
        """Place the hunks of a file in one state of it."""
        from vllm_mods.placing import locate  # noqa: PLC0415  (for trees that no lock knows)

        base = BaseKnown.NONE
        if target.data == self.part.base:
            base = BaseKnown.RELEASED
        elif self.part.at_base:
            base = BaseKnown.VERSION
        return locate.place(file, target, back=back, written=self.part.written, base=base)

    def report_lost(self, hunk: diff.Hunk, spot: Lost, path: str, target: Target) -> None:
        """Say why a hunk has no place."""
        place = {"path": path, "hunk": hunk.number, "scope": spot.scope}
        label = f"{path}, hunk {hunk.number} of {self.part.source}"
        label += f" (`{spot.scope}`)" if spot.scope else ""
        enough = len(self.findings) >= limits.EXPLAINED
        if not self.explain or spot.code != FindingCode.ABSENT or enough:
            line = spot.lines[0] if spot.lines else None
            code = FindingCode.TEXT if spot.code == FindingCode.ABSENT else spot.code
            self.fail(code, f"{label}: {spot.message}", line=line, **place)
            return
        gone = _gone(target, spot.scope)
        if gone is not None:
            reason, where = relocation.search(self.view, gone, path)
            self.fail(reason, f"{label}: `{gone}` is not in the file; {where}", **place)
            return
        from vllm_mods.placing.nearest import nearest  # noqa: PLC0415

        near = nearest(hunk, target, spot.scope)
        line, words = near[:2] if near else (None, "nothing in the file resembles the hunk's text")
        self.fail(FindingCode.TEXT, f"{label}: {words}", line=line, **place)

    def reports_absent_package(self, path: str) -> bool:
        """Say of a file of a package that the tree has nothing of that nobody can tell from here."""
        package = path.partition("/")[0]
        if package == "vllm" or any(True for _ in self.view.paths(package)):
            return False
        message = f"{path} belongs to the package {package}, which this tree does not have; check an installed tree, or add --with NAME==VERSION"
        self.fail(FindingCode.NOT_IN_TREE, message, path=path)
        return True

    def file_missing(self, file: diff.FileDiff) -> None:
        """Say that a file is gone, and where its definitions are, or that its package is not in the tree."""
        path = file.path
        if self.reports_absent_package(path):
            return
        named = dict.fromkeys(name for hunk in file.hunks if (name := written_in(hunk)))
        names = tuple(named)[: limits.EXPLAINED]
        looked = names if self.explain else ()
        results = [relocation.search(self.view, name, path) for name in looked]
        message = "; ".join([f"{path} does not exist", *(words for _, words in results)])
        gone = bool(results) and all(code == "superseded" for code, _ in results)
        scope = next(iter(names), None)
        code = FindingCode.SUPERSEDED if gone else FindingCode.FILE_GONE
        self.fail(code, message, path=path, scope=scope)


def _gone(target: Target, scope: str | None) -> str | None:
    """Return the class or function that a hunk was written in if the file no longer defines it."""
    if not scope or target.scopes is None:
        return None
    known = {one.name.rsplit(".", 1)[-1] for one in target.scopes.definitions}
    return None if scope in known else scope
