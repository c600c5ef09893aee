"""Our own reading of a unified diff, line by line: what could be meant in two ways is refused. Pure."""

import re
from collections.abc import Callable

from vllm_mods.base import limits
from vllm_mods.base.errors import DiffError
from vllm_mods.formats import diff_forms, diff_names
from vllm_mods.formats.file_diff import FileDiff, Hunk

# Compiled when first used, but for the one that every run uses.
_HUNK = re.compile(
    rb"@@ -(\d{1,18})(?:,(\d{1,18}))? \+(\d{1,18})(?:,(\d{1,18}))? @@(?: ?([^\r\n]*))?\r?\n?\Z"
)
_MODE = rb"(old mode|new mode|new file mode|deleted file mode) ([0-7]{6})\n?\Z"
MANY = "split it into several mods"
_INDEX = rb"index ([0-9A-Fa-f]{1,64})\.\.([0-9A-Fa-f]{1,64})(?: ([0-7]{6}))?\r?\Z"
_OLD_NAMES = (b"--- a/", b'--- "a/', b"--- /dev/null")
_NEW_NAMES = (b"+++ b/", b'+++ "b/', b"+++ /dev/null")
_SIGNATURE = b"--"  # of a mail; `git format-patch` puts its version below
_NO_NEWLINE = b"\\ "
_AGAIN = "make the patch again with `git diff`"
_BY_HAND = "if the diff was edited by hand: make the diff again with `git diff`, or run `recountdiff` on the file"


def read(data: bytes, where: str, root: str) -> tuple[tuple[FileDiff, ...], dict[int, bytes]]:
    """Return a patch's files, and each hunk's text by the line of its head. Raises ``DiffError``."""
    reader = _DiffReader(data, where, root.strip("/"))
    return reader.files(), reader.texts


class _DiffReader:
    def __init__(self, data: bytes, where: str, root: str) -> None:
        self.where = where
        self.root = root
        self.at = 0
        if len(data) > limits.PATCH:
            raise self.fail(f"it has more than {limits.PATCH}", hint=MANY)
        self.data = data.removeprefix(diff_forms.BYTE_ORDER_MARK)
        self.lines = self.data.split(b"\n")
        if self.lines[-1] == b"":
            self.lines.pop()
        # every line but possibly the last one had a terminator
        self.unterminated = not data.endswith(b"\n")
        if self.data.count(b"\n@@ -") > limits.HUNKS:
            raise self.fail(f"it has more than {limits.HUNKS}", hint=MANY)
        # by the line of its head, the text of each hunk
        self.texts: dict[int, bytes] = {}

    def fail(self, why: str, *, line: int | None = None, hint: str | None = None) -> DiffError:
        return DiffError(self.where, self.at + 1 if line is None else line, why, hint=hint)

    def peek(self) -> bytes | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def files(self) -> tuple[FileDiff, ...]:
        diff_forms.refuse_foreign(self.data, self.where)
        diffs: list[FileDiff] = []
        while (line := self.peek()) is not None:
            if line.startswith(b"diff --git "):
                diffs.append(self.git_file())
            elif self.is_head(line):
                diffs.append(self.plain_file())
            else:
                self.preamble(line)
                self.at += 1
        if not diffs:
            raise diff_forms.without_changes(self.data, self.where)
        return tuple(diffs)

    def is_head(self, line: bytes) -> bool:
        """Tell whether the two lines from here on are a file's names; in prose, no hunk follows."""
        if not line.startswith(b"--- "):
            return False
        new, body = (*self.lines[self.at + 1 : self.at + 3], b"", b"")[:2]
        named = line.startswith(_OLD_NAMES) and new.startswith(_NEW_NAMES)
        return new.startswith(b"+++ ") and (named or body.startswith(b"@@"))

    def preamble(self, line: bytes) -> None:
        """Refuse what is a change in disguise; anything else in front of a file is prose."""
        if line.startswith((b"diff --cc ", b"diff --combined ", b"@@@ ")):
            why = "this is a combined diff of a merge, which has no single base"
            raise self.fail(why, hint="make it against one parent: git diff FIRST_PARENT MERGE")
        self.no_binary(line)
        if line.startswith(b"@@"):
            why = "the hunk belongs to no file: a hunk must follow a file header or another hunk of that file"
            if not _HUNK.match(line):
                why = "the hunk header has no line numbers"
            raise self.fail(why, hint=_AGAIN)

    def no_binary(self, line: bytes) -> None:
        if line == b"GIT binary patch" or (
            line.startswith(b"Binary files ") and line.endswith(b" differ")
        ):
            why = "a binary change has no text to match"
            raise self.fail(why, hint="put the file into the mod's overlay")

    def git_file(self) -> FileDiff:
        start = self.at
        self.no_carriage_return(self.lines[start])
        self.at += 1
        modes: dict[bytes, int] = {}
        names: dict[bytes, str] = {}
        old_blob = new_blob = None
        while (line := self.peek()) is not None:
            if mode := re.match(_MODE, line):
                modes[mode[1]] = self.permissions(int(mode[2], 8))
            elif line.startswith((b"rename from ", b"rename to ")):
                words = b"rename from" if line.startswith(b"rename from") else b"rename to"
                names[words] = self.path(line[len(words) + 1 :], None)
            elif line.startswith((b"copy from ", b"copy to ")):
                why = "the patch copies another file and has only the differences from that file"
                hint = "make the patch with `git diff --no-renames`, or use an overlay"
                raise self.fail(why, hint=hint)
            elif line.startswith(b"index "):
                old_blob, new_blob = self.blobs(line)
            elif not line.startswith((b"similarity index ", b"dissimilarity index ")):
                break
            self.at += 1
        if line is not None:
            self.no_binary(line)
        old, new = self.git_names(start, modes, names)
        hunks = self.hunks()
        file = FileDiff(
            old_path=old,
            new_path=new,
            hunks=hunks,
            mode=modes.get(b"new file mode", modes.get(b"new mode")),
            old_mode=modes.get(b"deleted file mode", modes.get(b"old mode")),
            patch_line=start + 1,
            old_blob=old_blob,
            new_blob=new_blob,
        )
        created, deleted = b"new file mode" in modes, b"deleted file mode" in modes
        self.consistent(file, renames=bool(names), created=created, deleted=deleted)
        return file

    def git_names(
        self, head: int, modes: dict[bytes, int], names: dict[bytes, str]
    ) -> tuple[str | None, str | None]:
        """Read the two paths from the lines that state them: '---' and '+++', renames, the header."""
        start, header = self.at, self.lines[head]
        line = self.peek()
        # to git, this belongs to the header, prose or not
        if line is not None and line.startswith(b"--- "):
            if not b"".join(self.lines[self.at + 1 : self.at + 2]).startswith(b"+++ "):
                why = "a '---' line in a file's header has no '+++' line after it"
                raise self.fail(why, hint=_AGAIN)
            old, new = self.side(b"--- ", b"a/"), self.side(b"+++ ", b"b/")
            if names and (old, new) != (names.get(b"rename from"), names.get(b"rename to")):
                why = "the rename lines and the '---'/'+++' lines name different files"
                raise self.fail(why, line=start + 1)
            if not names:
                self.check_head(header, {old, new} - {None})
            return old, new
        if names:
            return names.get(b"rename from"), names.get(b"rename to")
        self.at = head  # which is the line that says what is wrong
        path = self.name(header.removeprefix(b"diff --git "), diff_names.in_git_head)
        self.at = start
        created, deleted = b"new file mode" in modes, b"deleted file mode" in modes
        return (None if created else path, None if deleted and not created else path)

    def check_head(self, header: bytes, named: set[str | None]) -> None:
        """Refuse what ``git apply`` calls inconsistent: the first line of a part states another file than those below."""
        try:
            path = diff_names.in_git_head(header.removeprefix(b"diff --git "))
        except diff_names.BadName:  # it does not state one name twice: to git the lines below count
            return
        path = f"{self.root}/{path}" if self.root else path
        if other := next((name for name in named if name != path), None):
            why = f"the 'diff --git' line names {path}, but the '---'/'+++' lines name {other}"
            raise self.fail(why, line=self.at, hint=_AGAIN)

    def plain_file(self) -> FileDiff:
        """Read a part as `diff -u` writes it: time stamps may say that there is no file."""
        start = self.at
        stamped = [diff_names.is_epoch(line) for line in self.lines[start : start + 2]]
        old, new = self.side(b"--- ", b"a/"), self.side(b"+++ ", b"b/")
        if old is not None and new is not None:
            if diff_names.is_backup_of(old, new) or diff_names.is_backup_of(new, old):
                old = new = min(old, new, key=len)
            old, new = (None if stamped[0] else old), (None if stamped == [False, True] else new)
        hunks = self.hunks()
        first = hunks[0] if len(hunks) == 1 and None not in (old, new) else None
        file = FileDiff(
            old_path=old,
            new_path=new,
            hunks=hunks,
            patch_line=start + 1,
            may_create=first is not None and first.old_start == 0 and not first.old,
        )
        self.consistent(file, renames=False, created=old is None, deleted=new is None)
        return file

    def consistent(self, file: FileDiff, *, renames: bool, created: bool, deleted: bool) -> None:
        line = file.patch_line
        if file.old_path is None and file.new_path is None:
            raise self.fail("both sides are /dev/null", line=line)
        if (file.old_path is None) != created or (file.new_path is None) != deleted:
            why = "the mode lines and the '---'/'+++' lines contradict each other: only one of them says that the file is new or deleted"
            raise self.fail(why, line=line)
        if not created and not deleted and (file.old_path != file.new_path) != renames:
            sides = f"{file.old_path} and {file.new_path}"
            why = f"the two sides name different files ({sides}) without a rename"
            hint = "make the patch with `git diff`, which marks renamed files"
            raise self.fail(why, line=line, hint=hint)
        if not file.hunks and not renames and not created and not deleted and file.mode is None:
            why = "no hunk follows the file header, so nothing changes"
            raise self.fail(why, line=line, hint=_AGAIN)
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
        old, new = (name.decode().lower() for name in stated.group(1, 2))
        return old if old.strip("0") else None, new if new.strip("0") else None

    def permissions(self, mode: int) -> int:
        if mode & 0o170000 != 0o100000:
            kinds = {0o120000: "symbolic link", 0o160000: "submodule"}
            raise self.fail(f"a {kinds.get(mode & 0o170000, 'special file')} cannot be patched")
        return mode & 0o777

    def side(self, marker: bytes, prefix: bytes) -> str | None:
        line = self.lines[self.at]
        self.no_carriage_return(line)
        raw = line[len(marker) :]
        name = None if diff_names.is_no_file(raw) else self.path(raw, prefix)
        self.at += 1
        return name

    def no_carriage_return(self, line: bytes) -> None:
        if line.endswith(b"\r"):
            why = "the patch file has CRLF line endings, so the line endings of the target are unknown"
            hint = f"dos2unix {self.where}, or make the diff again with `git diff --output={self.where}`"
            raise self.fail(why, hint=hint)

    def path(self, raw: bytes, prefix: bytes | None) -> str:
        return self.name(raw, lambda name: diff_names.path(name, prefix=prefix))

    def name(self, raw: bytes, read: Callable[[bytes], str]) -> str:
        try:
            name = read(raw)
        except diff_names.BadName as error:
            raise self.fail(error.message, hint=error.hint) from error
        return f"{self.root}/{name}" if self.root else name

    def hunks(self) -> tuple[Hunk, ...]:
        hunks: list[Hunk] = []
        while (line := self.peek()) is not None and line.startswith(b"@@"):
            if line.startswith(b"@@@") or not _HUNK.match(line):
                self.preamble(line)
            hunks.append(self.hunk(len(hunks) + 1))
        if hunks:
            self.after_hunks()
        return self.in_order(hunks)

    def in_order(self, hunks: list[Hunk]) -> tuple[Hunk, ...]:
        """Sort by the stated old lines, and let the new ones follow from them."""
        ordered: list[Hunk] = []
        shift = 0
        end = 0
        for hunk in sorted(hunks, key=lambda hunk: hunk.stated):
            if hunk.stated < end:
                raise self.fail("the hunk overlaps another hunk of this file", line=hunk.patch_line)
            end = hunk.stated + len(hunk.old)
            ordered.append(hunk._replace(new_start=hunk.stated + shift - (not hunk.new)))
            shift += len(hunk.new) - len(hunk.old)
        return tuple(ordered)

    def after_hunks(self) -> None:
        """Refuse lines that look like a hunk's and belong to none: the usual tools drop them in silence."""
        while self.peek() == b"":
            self.at += 1
        line = self.peek() or b""
        if line.rstrip(b" ") == _SIGNATURE:
            following = self.lines[self.at + 1 : self.at + 2]
            if not following or not following[0].startswith((b"@@", b"+", b"-", b" ")):
                self.at += 1
                return
        if line.startswith((b"+", b"-", b" ", b"\\")) and not self.is_head(line):
            why = "the hunk has more lines than its header states; other tools drop the extra lines silently"
            raise self.fail(why, hint=_BY_HAND)

    def hunk(self, number: int) -> Hunk:
        start = self.at
        head = _HUNK.match(self.lines[self.at])
        assert head is not None  # noqa: S101  (the caller has looked)
        self.no_carriage_return(self.lines[self.at])
        olds, news = int(head[2] or 1), int(head[4] or 1)
        self.at += 1
        lines: list[tuple[str, bytes]] = []
        closed = {"-": False, "+": False}
        while olds or news:
            line = self.peek()
            if line is None:
                why = f"the patch ends in the middle of a hunk: {olds} old and {news} new lines are missing, or its @@ line states too many"
                raise self.fail(why, line=start + 1, hint=_BY_HAND)
            kind = line[:1].decode("latin-1") or " "
            # an editor that strips blanks at line ends turns the empty context line " " into ""
            text = line[1:] + b"\n"
            if kind not in " +-":
                why = f"the hunk header states {olds} more old and {news} more new lines, but this line is neither old nor new"
                raise self.fail(why, hint=_BY_HAND)
            if (kind != "+" and (olds == 0 or closed["-"])) or (
                kind != "-" and (news == 0 or closed["+"])
            ):
                raise self.fail("the hunk has more lines than its header states")
            if self.at == len(self.lines) - 1 and self.unterminated:
                raise self.fail("the patch is cut off: its last line has no newline")
            olds -= kind != "+"
            news -= kind != "-"
            self.at += 1
            if (self.peek() or b"").startswith(_NO_NEWLINE):
                text = text[:-1]
                if not text:
                    raise self.fail("the last line is empty and has no newline")
                closed["-"] |= kind != "+"
                closed["+"] |= kind != "-"
                self.at += 1
            lines.append((kind, text))
        if all(kind == " " for kind, _ in lines):
            raise self.fail("the hunk changes nothing", line=start + 1)
        self.texts[start + 1] = b"\n".join(self.lines[start : self.at]) + b"\n"
        least = int(any(kind != "+" for kind, _ in lines))
        return Hunk(
            number=number,
            # "line 0" of a side with lines is its beginning, to git too
            old_start=max(int(head[1]), least),
            new_start=int(head[3]),
            section=(head[5] or b"").decode("utf-8", "replace").strip(),
            lines=tuple(lines),
            patch_line=start + 1,
        )
