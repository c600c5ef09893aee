"""Read a unified diff, strictly, from bytes.

Format: GNU diffutils' "Detailed Description of Unified Format" with git's
extended headers (git-diff(1), "Generating patch text with -p"). A patch that
``patch`` or ``git apply`` would read generously is refused here: counts that lie,
number-less or combined hunks, binary parts, line endings that changed on the way.

``unidiff`` reads every patch a second time, and the two readings have to agree.
Its own reading is not enough: it drops lines beyond a hunk's stated counts
without a word, returns nothing for a combined diff, and works on text, not bytes.
"""

# No `from __future__ import annotations`: see model.py.

import re
from typing import NamedTuple

from vllm_mods.errors import DiffError

# Compiled when first used, but for the one that every run uses.
_HUNK = re.compile(
    rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@(?: ?([^\r\n]*))?\r?\n?\Z"
)
_MODE = rb"(old mode|new mode|new file mode|deleted file mode) ([0-7]{6})\n?\Z"
_MODES = (b"old mode ", b"new mode ", b"new file mode ", b"deleted file mode ")
_INDEX = rb"index ([0-9A-Fa-f]{1,64})\.\.([0-9A-Fa-f]{1,64})(?: ([0-7]{6}))?\r?\Z"
_MAIL = rb"From [0-9a-f]{40} "
_NO_NEWLINE = b"\\ "
_DEV_NULL = b"/dev/null"
_ESCAPES = {
    b"a": b"\a",
    b"b": b"\b",
    b"t": b"\t",
    b"n": b"\n",
    b"v": b"\v",
    b"f": b"\f",
    b"r": b"\r",
    b'"': b'"',
    b"\\": b"\\",
}


class Hunk(NamedTuple):
    """One hunk. ``lines`` are (kind, bytes) with kind ``" "``, ``"-"`` or ``"+"``.

    A line keeps its terminator; one without is the last of its file. ``old_start``
    is the stated 1-based line, ``number`` counts from 1 in the file's part of the patch.
    """

    number: int
    old_start: int
    new_start: int
    section: str
    lines: tuple[tuple[str, bytes], ...]
    patch_line: int

    @property
    def old(self) -> tuple[bytes, ...]:
        """The lines the hunk expects to find."""
        return tuple(text for kind, text in self.lines if kind != "+")

    @property
    def new(self) -> tuple[bytes, ...]:
        """The lines the hunk leaves in their place."""
        return tuple(text for kind, text in self.lines if kind != "-")

    @property
    def stated(self) -> int:
        """The 1-based line that it is for: a side of length 0 states the one before (POSIX diff)."""
        return self.old_start + (not self.old)

    def reversed(self) -> "Hunk":
        """Return the hunk that takes this one out again."""
        flip = {" ": " ", "-": "+", "+": "-"}
        return self._replace(
            old_start=self.new_start,
            new_start=self.old_start,
            lines=tuple((flip[kind], text) for kind, text in self.lines),
        )


class FileDiff(NamedTuple):
    """What a patch does to one file; ``None`` as a path stands for ``/dev/null``.

    ``mode`` is the permission bits that the patch states for the new file, if any.
    ``old_blob`` and ``new_blob`` are git's names of the two contents, from its ``index`` line:
    lower-case hex, often abbreviated; None where the patch has none, or all zeros for "no file".
    """

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...]
    mode: int | None
    old_mode: int | None
    patch_line: int
    old_blob: str | None = None
    new_blob: str | None = None

    @property
    def path(self) -> str:
        """The file that is there before, or the one that comes to be."""
        path = self.old_path if self.old_path is not None else self.new_path
        assert path is not None  # noqa: S101  (the reader refuses a section without paths)
        return path

    def reversed(self) -> "FileDiff":
        """Return the diff that takes this one out again."""
        return self._replace(
            old_path=self.new_path,
            new_path=self.old_path,
            mode=self.old_mode,
            old_mode=self.mode,
            old_blob=self.new_blob,
            new_blob=self.old_blob,
            hunks=tuple(hunk.reversed() for hunk in self.hunks),
        )


def parse(data: bytes, where: str, *, root: str = "") -> tuple[FileDiff, ...]:
    """Read a patch and have ``unidiff`` confirm the reading.

    ``where`` names the patch in errors, ``root`` is put in front of each path.
    Raises ``DiffError`` for anything that could not be applied exactly as written.
    """
    files = read(data, where, root=root)
    _confirm(files, data, where)
    return files


def read(data: bytes, where: str, *, root: str = "") -> tuple[FileDiff, ...]:
    """Read a patch without the second reading: for one whose hash mod.lock vouches for."""
    return _Reader(data, where, root.strip("/")).files()


def _confirm(files: tuple[FileDiff, ...], data: bytes, where: str) -> None:
    import io  # noqa: PLC0415

    from unidiff.errors import UnidiffParseError  # noqa: PLC0415
    from unidiff.patch import PatchSet  # noqa: PLC0415

    text = data.decode("utf-8", "surrogateescape")
    try:
        patch_set = PatchSet(io.StringIO(text, newline="\n"))
    except UnidiffParseError as error:
        raise DiffError(where, 1, f"unidiff cannot read this patch: {error}") from error
    theirs = [
        (
            hunk.source_start,
            hunk.target_start,
            [line.value for line in hunk if line.line_type in " +-"],
        )
        for file in patch_set
        for hunk in file
    ]
    ours = [
        (
            hunk.old_start,
            hunk.new_start,
            [text.decode("utf-8", "surrogateescape") for _, text in hunk.lines],
        )
        for file in files
        for hunk in file.hunks
    ]
    if len(theirs) != len(ours):
        raise DiffError(where, 1, f"{len(ours)} hunks were read, but unidiff reads {len(theirs)}")
    hunks = [hunk for file in files for hunk in file.hunks]
    for hunk, (start, target, lines), (their_start, their_target, their_lines) in zip(
        hunks, ours, theirs, strict=True
    ):
        # unidiff drops the terminator of the last line before "\ No newline", as we do, but keeps
        # a stripped empty context line as "\n": both compare equal without terminators.
        same = [line.rstrip("\n") for line in lines] == [line.rstrip("\n") for line in their_lines]
        if (start, target) != (their_start, their_target) or not same:
            raise DiffError(where, hunk.patch_line, "unidiff reads this hunk differently")


class _Reader:
    """A line cursor over one patch."""

    def __init__(self, data: bytes, where: str, root: str) -> None:
        self.lines = data.split(b"\n")
        if self.lines[-1] == b"":
            self.lines.pop()
        # every line but possibly the last one had a terminator
        self.unterminated = not data.endswith(b"\n")
        self.where = where
        self.root = root
        self.at = 0

    def fail(self, why: str, *, line: int | None = None, hint: str | None = None) -> DiffError:
        return DiffError(self.where, self.at + 1 if line is None else line, why, hint=hint)

    def peek(self) -> bytes | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def files(self) -> tuple[FileDiff, ...]:
        found: list[FileDiff] = []
        while (line := self.peek()) is not None:
            if line.startswith(b"diff --git "):
                found.append(self.git_file())
            elif line.startswith(b"--- ") and self.next_starts(b"+++ "):
                found.append(self.plain_file())
            else:
                self.preamble(line)
                self.at += 1
        if not found:
            raise self.fail(
                "there is no change in this file: no '--- a/…' and '+++ b/…' lines", line=1
            )
        return tuple(found)

    def next_starts(self, prefix: bytes) -> bool:
        return self.at + 1 < len(self.lines) and self.lines[self.at + 1].startswith(prefix)

    def preamble(self, line: bytes) -> None:
        """Refuse what is a change in disguise; anything else in front of a file is prose."""
        if line.startswith((b"diff --cc ", b"diff --combined ", b"@@@ ")):
            raise self.fail(
                "this is a combined diff of a merge, which has no single base",
                hint="make it against one parent: git diff FIRST_PARENT MERGE",
            )
        if line.startswith((b"GIT binary patch", b"Binary files ")):
            raise self.fail(
                "a binary change cannot be placed by its text",
                hint="put the whole file into the mod's overlay instead",
            )
        if line.startswith(b"@@"):
            raise self.fail(
                "a hunk without line numbers"
                if not _HUNK.match(line)
                else "a hunk before any file header",
                hint="make the patch again with `git diff`",
            )

    # --- one file -----------------------------------------------------------

    def git_file(self) -> FileDiff:  # noqa: C901  (one branch per kind of header line)
        start = self.at
        header = self.lines[self.at]
        self.no_carriage_return(header)
        self.at += 1
        modes: dict[bytes, int] = {}
        names: dict[bytes, str] = {}
        blobs: tuple[str | None, str | None] = (None, None)
        while (line := self.peek()) is not None:
            if line.startswith(_MODES) and (mode := re.match(_MODE, line)):
                modes[mode[1]] = self.permissions(int(mode[2], 8))
            elif line.startswith((b"rename from ", b"rename to ")):
                words = b"rename from" if line.startswith(b"rename from") else b"rename to"
                names[words] = self.name(line[len(words) + 1 :], prefix=None)
            elif line.startswith((b"copy from ", b"copy to ")):
                raise self.fail(
                    "a copy: the patch holds only the difference from another file",
                    hint="make the patch with `git diff --no-renames`, or use an overlay",
                )
            elif line.startswith(b"index "):
                blobs = self.blobs(line)
            elif not line.startswith((b"similarity index ", b"dissimilarity index ")):
                break
            self.at += 1
        if line is not None:
            self.preamble(line) if line.startswith((b"GIT binary", b"Binary files")) else None
        old: str | None
        new: str | None
        if line is not None and line.startswith(b"--- ") and self.next_starts(b"+++ "):
            old, new = self.names()
        elif names:
            old, new = names.get(b"rename from"), names.get(b"rename to")
        else:
            old = new = self.both_names(header)
            if b"new file mode" in modes:
                old = None
            elif b"deleted file mode" in modes:
                new = None
        hunks = self.hunks()
        file = FileDiff(
            old_path=old,
            new_path=new,
            hunks=hunks,
            mode=modes.get(b"new file mode", modes.get(b"new mode")),
            old_mode=modes.get(b"deleted file mode", modes.get(b"old mode")),
            patch_line=start + 1,
            old_blob=blobs[0],
            new_blob=blobs[1],
        )
        self.consistent(
            file,
            renames=bool(names),
            created=b"new file mode" in modes,
            deleted=b"deleted file mode" in modes,
        )
        return file

    def plain_file(self) -> FileDiff:
        start = self.at
        old, new = self.names()
        file = FileDiff(
            old_path=old,
            new_path=new,
            hunks=self.hunks(),
            mode=None,
            old_mode=None,
            patch_line=start + 1,
        )
        self.consistent(file, renames=False, created=old is None, deleted=new is None)
        return file

    def consistent(self, file: FileDiff, *, renames: bool, created: bool, deleted: bool) -> None:
        line = file.patch_line
        if file.old_path is None and file.new_path is None:
            raise self.fail("both sides are /dev/null", line=line)
        if (file.old_path is None) != created or (file.new_path is None) != deleted:
            raise self.fail(
                "the mode lines and the '---'/'+++' lines disagree on whether the file is new or deleted",
                line=line,
            )
        if (
            None not in (file.old_path, file.new_path)
            and (file.old_path != file.new_path) != renames
        ):
            raise self.fail(
                f"the two sides name different files ({file.old_path} and {file.new_path}) without a rename",
                line=line,
                hint="make the patch with `git diff`, which says so when a file is renamed",
            )
        if not file.hunks and not renames and not created and not deleted and file.mode is None:
            raise self.fail("this part changes nothing: it has no hunks", line=line)
        if created and file.hunks and (len(file.hunks) > 1 or file.hunks[0].old):
            raise self.fail("a new file cannot have old lines", line=line)
        if deleted and file.hunks and (len(file.hunks) > 1 or file.hunks[0].new):
            raise self.fail("a deleted file cannot have new lines", line=line)

    def blobs(self, line: bytes) -> tuple[str | None, str | None]:
        stated = re.match(_INDEX, line)
        if stated is None:
            return None, None
        if stated[3] is not None:
            self.permissions(int(stated[3], 8))
        old, new = (
            None if not name.strip(b"0") else name.decode().lower() for name in stated.group(1, 2)
        )
        return old, new

    def permissions(self, mode: int) -> int:
        if mode & 0o170000 != 0o100000:
            kind = {0o120000: "symbolic link", 0o160000: "submodule"}.get(
                mode & 0o170000, "special file"
            )
            raise self.fail(f"a {kind} cannot be patched")
        return mode & 0o777

    # --- names --------------------------------------------------------------

    def names(self) -> tuple[str | None, str | None]:
        old = self.side(b"--- ", b"a/")
        new = self.side(b"+++ ", b"b/")
        return old, new

    def side(self, marker: bytes, prefix: bytes) -> str | None:
        line = self.lines[self.at]
        self.no_carriage_return(line)
        raw = line[len(marker) :]
        name = None
        if raw.split(b"\t")[0].rstrip() != _DEV_NULL:
            name = self.name(raw, prefix=prefix)
        self.at += 1
        return name

    def no_carriage_return(self, line: bytes) -> None:
        if line.endswith(b"\r"):
            raise self.fail(
                "the patch file itself has CRLF line endings, so the endings it asks for are not known",
                hint="save it with LF endings (`dos2unix`), or make it again with `git diff --binary`",
            )

    def name(self, raw: bytes, *, prefix: bytes | None) -> str:
        if raw.startswith(b'"'):
            raw = self.unquote(raw)
        elif b"\t" in raw:
            raw = raw.split(b"\t", 1)[0]
        if prefix is not None:
            if not raw.startswith(prefix):
                raise self.fail(
                    f"the path {raw.decode(errors='replace')!r} does not start with {prefix.decode()!r}",
                    hint="make the patch with `git diff --src-prefix=a/ --dst-prefix=b/`",
                )
            raw = raw[len(prefix) :]
        return self.safe(raw)

    def unquote(self, raw: bytes) -> bytes:
        out = bytearray()
        for part in re.finditer(rb'\\([0-3][0-7]{2})|\\(.?)|"|[^"\\]+', raw[1:]):
            if part[0] == b'"':
                return bytes(out)
            if part[1] is not None:
                out.append(int(part[1], 8))
            elif part[2] is None:
                out += part[0]
            elif part[2] in _ESCAPES:
                out += _ESCAPES[part[2]]
            else:
                raise self.fail("an unknown escape in a quoted path")
        raise self.fail("a quoted path is not closed")

    def safe(self, raw: bytes) -> str:
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.fail("a path is not UTF-8") from error
        parts = name.split("/")
        if name.startswith("/") or ".." in parts:
            raise self.fail(
                f"the path {name!r} leads out of the tree",
                hint="paths in a patch are relative to the folder that holds vllm/",
            )
        if "" in parts or "." in parts or any(ord(char) < 32 for char in name):
            raise self.fail(f"the path {name!r} is not a plain relative path")
        return f"{self.root}/{name}" if self.root else name

    def both_names(self, header: bytes) -> str:
        """Return the name in ``diff --git a/NAME b/NAME``, which states it twice."""
        rest = header[len(b"diff --git ") :]
        if rest.startswith(b'"'):
            return self.name(rest, prefix=b"a/")
        half = (len(rest) - 1) // 2
        first, second = rest[:half], rest[half + 1 :]
        if first[2:] != second[2:] or rest[half : half + 1] != b" ":
            raise self.fail("the two names of this part cannot be told apart")
        return self.name(first, prefix=b"a/")

    # --- hunks --------------------------------------------------------------

    def hunks(self) -> tuple[Hunk, ...]:
        found: list[Hunk] = []
        shift = 0
        end = 0
        while (line := self.peek()) is not None and line.startswith(b"@@"):
            if line.startswith(b"@@@") or not _HUNK.match(line):
                self.preamble(line)
            hunk = self.hunk(len(found) + 1)
            olds, news = len(hunk.old), len(hunk.new)
            # A side of length 0 states the line *before* it (POSIX diff), hence the correction.
            first = hunk.old_start + (olds == 0)
            if first + shift != hunk.new_start + (news == 0):
                raise self.fail(
                    f"the hunk's line numbers do not add up: with the hunks before it, line {hunk.old_start} "
                    f"becomes line {hunk.old_start + shift}, not {hunk.new_start}",
                    line=hunk.patch_line,
                    hint="a patch that was edited by hand: make it again with `git diff`, or run `recountdiff` on it",
                )
            if first < end:
                raise self.fail("the hunk overlaps the one before it", line=hunk.patch_line)
            end = first + olds
            shift += news - olds
            found.append(hunk)
        self.after_hunks()
        return tuple(found)

    def after_hunks(self) -> None:
        """Refuse lines that belong to no hunk: the usual tools drop them in silence."""
        line = self.peek()
        if line is None:
            return
        if line == b"-- " and (
            self.at + 2 >= len(self.lines)
            or not self.lines[self.at + 1].startswith((b"@@", b"+", b" "))
        ):
            self.at += 2  # the signature of `git format-patch`: "-- " and git's version
            while self.peek() == b"":
                self.at += 1
            if (line := self.peek()) is None or re.match(_MAIL, line):
                return
            raise self.fail("text after the end of the patch")
        if line.startswith((b"+", b"-", b" ", b"\\")) and not (
            line.startswith(b"--- ") and self.next_starts(b"+++ ")
        ):
            raise self.fail(
                "a line beyond the hunk's stated counts; other tools drop it without a word",
                hint="a patch that was edited by hand: make it again with `git diff`, or run `recountdiff` on it",
            )

    def hunk(self, number: int) -> Hunk:
        start = self.at
        head = _HUNK.match(self.lines[self.at])
        assert head is not None  # noqa: S101  (the caller has looked)
        self.no_carriage_return(self.lines[self.at])
        olds = 1 if head[2] is None else int(head[2])
        news = 1 if head[4] is None else int(head[4])
        self.at += 1
        lines: list[tuple[str, bytes]] = []
        closed = {"-": False, "+": False}
        while olds or news:
            line = self.peek()
            if line is None:
                raise self.fail(
                    f"the patch ends inside a hunk: {olds} old and {news} new lines are missing",
                    line=start + 1,
                )
            kind = line[:1].decode("latin-1") or " "
            # an editor that strips blanks at line ends turns the empty context line " " into ""
            text = (line[1:] if line else b"") + b"\n"
            if kind not in " +-":
                raise self.fail(
                    f"the hunk states {olds} more old and {news} more new lines, but this line is none of them",
                    hint="a patch that was edited by hand: make it again with `git diff`, or run `recountdiff` on it",
                )
            if (kind != "+" and (olds == 0 or closed["-"])) or (
                kind != "-" and (news == 0 or closed["+"])
            ):
                raise self.fail("a line beyond the hunk's stated counts")
            if self.at == len(self.lines) - 1 and self.unterminated:
                raise self.fail("the patch is cut off: its last line has no line end")
            olds -= kind != "+"
            news -= kind != "-"
            self.at += 1
            following = self.peek()
            if following is not None and following.startswith(_NO_NEWLINE):
                text = text[:-1]
                closed["-"] |= kind != "+"
                closed["+"] |= kind != "-"
                self.at += 1
            lines.append((kind, text))
        if all(kind == " " for kind, _ in lines):
            raise self.fail("the hunk changes nothing", line=start + 1)
        section = (head[5] or b"").decode("utf-8", "replace").strip()
        return Hunk(
            number=number,
            old_start=int(head[1]),
            new_start=int(head[3]),
            section=section,
            lines=tuple(lines),
            patch_line=start + 1,
        )
