"""A diff that could be meant in two ways: the line that says so, why, and the command that makes a better one."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import DiffError
from vllm_mods.formats import diff

HEAD = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
GIT = b"diff --git a/vllm/x.py b/vllm/x.py\n"
HUNK = b"@@ -1 +1 @@\n-a\n+b\n"
NO_END = b"\\ No newline at end of file\n"
AGAIN = "make the patch again with `git diff`"
BY_HAND = "if the diff was edited by hand: make the diff again with `git diff`, or run `recountdiff` on the file"
RENAMES = "make the patch with `git diff`, which marks renamed files"
IN_TREE = "paths in a patch are relative to the folder that contains vllm/"
PREFIXES = (
    "make the patch with `git diff --src-prefix=a/ --dst-prefix=b/`; "
    "`vllm-mods new NAME --from-diff FILE --tree TREE` takes any paths"
)
OVERLAY = "put the file into the mod's overlay"
PARENT = "make it against one parent: git diff FIRST_PARENT MERGE"
CASES: dict[str, tuple[bytes, int, str | None]] = {
    "a merge": (b"prose\ndiff --cc vllm/x.py\n", 2, PARENT),
    "a merge, in other words": (b"diff --combined vllm/x.py\n", 1, PARENT),
    "a hunk of a merge": (HEAD + b"@@@ -1 -1 +1 @@@\n", 3, PARENT),
    "a hunk without numbers": (HEAD + b"@@\n-a\n+b\n", 3, AGAIN),
    "a hunk of no file": (b"prose\n" + HUNK, 2, AGAIN),
    "packed bytes": (GIT + b"index 1..2 100644\nGIT binary patch\n", 3, OVERLAY),
    "a word for bytes": (b"Binary files a/x and b/x differ\n", 1, OVERLAY),
    "a copy": (
        GIT + b"similarity index 100%\ncopy from vllm/a.py\n",
        3,
        "make the patch with `git diff --no-renames`, or use an overlay",
    ),
    "one name of two": (GIT + b"--- a/vllm/x.py\n@@ -1 +1 @@\n", 2, AGAIN),
    "the last name": (GIT + b"--- a/vllm/x.py", 2, AGAIN),
    "another name below": (GIT + HEAD.replace(b"x.py", b"y.py") + HUNK, 3, AGAIN),
    "two names": (b"x\n" + HEAD.replace(b"b/vllm/x", b"b/vllm/y") + HUNK, 2, RENAMES),
    "two names in one head": (
        b"x\n" + GIT.replace(b"b/vllm/x", b"b/vllm/y") + b"old mode 100644\nnew mode 100755\n",
        2,
        RENAMES,
    ),
    "other names than renamed": (
        GIT.replace(b"b/vllm/x", b"b/vllm/y")
        + b"rename from vllm/x.py\nrename to vllm/y.py\n"
        + HEAD
        + HUNK,
        4,
        None,
    ),
    "no hunk": (b"x\n" + GIT + b"index 1..2 100644\n", 2, AGAIN),
    "both sides nowhere": (b"x\n--- /dev/null\n+++ /dev/null\n" + HUNK, 2, None),
    "new by one line alone": (GIT + b"new file mode 100644\n" + HEAD + HUNK, 1, None),
    "new and gone": (b"x\n" + GIT + b"new file mode 100644\ndeleted file mode 100644\n", 2, None),
    "old lines of a new file": (b"x\n--- /dev/null\n+++ b/vllm/x.py\n" + HUNK, 2, None),
    "new lines of a gone file": (b"x\n--- a/vllm/x.py\n+++ /dev/null\n" + HUNK, 2, None),
    "no prefix": (HEAD.replace(b"a/", b"") + HUNK, 1, PREFIXES),
    "the prefix of the other side": (HEAD.replace(b"b/", b"a/") + HUNK, 2, PREFIXES),
    "outside the tree": (HEAD.replace(b"a/vllm", b"a/../vllm") + HUNK, 1, IN_TREE),
    "ends in CR": (
        HEAD.replace(b"\n", b"\r\n") + HUNK,
        1,
        "dos2unix p.patch, or make the diff again with `git diff --output=p.patch`",
    ),
    "overlapping": (HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\n c\n@@ -2 +2 @@\n-c\n+d\n", 7, None),
    "a line more": (HEAD + HUNK + b"+c\n", 6, BY_HAND),
    "a line more behind an empty one": (HEAD + HUNK + b"\n\n-c\n", 8, BY_HAND),
    "a line of no kind": (HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\nc\n", 6, BY_HAND),
    "lines that are missing": (HEAD + b"@@ -1,2 +1 @@\n-a\n+b\n", 3, BY_HAND),
    "a line of the side that is whole": (HEAD + b"@@ -1 +1,2 @@\n-a\n-b\n+c\n", 5, None),
    "an old line behind the last": (
        HEAD + b"@@ -1,2 +1,2 @@\n-a\n" + NO_END + b"+b\n" + NO_END + b"-c\n+d\n",
        8,
        None,
    ),
    "a new line behind the last": (
        HEAD + b"@@ -1,2 +1,2 @@\n+a\n" + NO_END + b"-b\n" + NO_END + b"+c\n-d\n",
        8,
        None,
    ),
    "a kept line behind the last": (
        HEAD + b"@@ -1,2 +1,3 @@\n+a\n" + NO_END + b" b\n c\n",
        6,
        None,
    ),
    "nothing changed": (HEAD + b"@@ -1 +1 @@\n a\n", 3, None),
    "cut off": (HEAD + HUNK[:-1], 5, None),
    "prose": (b"prose\n", 1, "make the diff again with `git diff` or `diff -u`"),
    "another form": (b"x\n2c\nc\n.\n", 2, "make the diff again with `git diff` or `diff -u`"),
    "of PowerShell": (
        b"\xff\xfe" + HEAD.decode().encode("utf-16-le"),
        1,
        "make the diff again with `git diff --output=p.patch`, which keeps all bytes",
    ),
    "terminal colour codes": (
        HEAD + b"\x1b[31m-a\x1b[m\n",
        3,
        "make the diff again with `git diff --no-color`, or: sed -i 's/\\x1b\\[[0-9;]*[mK]//g' p.patch",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_has_its_line_and_what_to_do(case: str) -> None:
    data, line, hint = CASES[case]
    with pytest.raises(DiffError) as caught:
        diff.parse(data, "p.patch")
    assert (caught.value.line, caught.value.hint) == (line, hint)


def test_a_version_below_a_signature_is_no_line_of_a_hunk() -> None:
    for end in (b"-- \n2.39.5\n", b"--\n", b"\n-- \n2.39.5\n\n"):
        assert len(diff.parse(HEAD + HUNK + end, "p.patch")) == 1
    for end in (b"-- \n+c\n", b"--\n@@ -5 +5 @@\n", b"--\n d\n"):
        with pytest.raises(DiffError, match="the hunk has more lines than its header states"):
            diff.parse(HEAD + HUNK + end, "p.patch")


def test_an_empty_file_comes_and_goes_by_its_mode_alone() -> None:
    made, gone = diff.parse(
        GIT + b"new file mode 100755\n" + GIT + b"deleted file mode 100644\n", "p.patch"
    )
    assert (made.old_path, made.new_path, made.mode) == (None, "vllm/x.py", 0o755)
    assert (gone.old_path, gone.new_path, gone.old_mode) == ("vllm/x.py", None, 0o644)


def test_both_sides_may_end_without_a_line_end() -> None:
    (file,) = diff.parse(HEAD + b"@@ -1 +1 @@\n-a\n" + NO_END + b"+b\n" + NO_END, "p.patch")
    assert (file.hunks[0].old, file.hunks[0].new) == ((b"a",), (b"b",))
    (file,) = diff.parse(HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\n c\n" + NO_END, "p.patch")
    assert (file.hunks[0].old, file.hunks[0].new) == ((b"a\n", b"c"), (b"b\n", b"c"))


def test_hunks_may_come_in_any_order_and_their_new_lines_follow_from_the_old() -> None:
    late, early = b"@@ -9 +90,2 @@\n-a\n+b\n+c\n", b"@@ -3,2 +3,0 @@\n-d\n-e\n"
    (file,) = diff.parse(HEAD + late + early + b"@@ -5 +1 @@\n-f\n+g\n", "p.patch")
    starts = [(one.number, one.old_start, one.new_start) for one in file.hunks]
    assert starts == [(2, 3, 2), (3, 5, 3), (1, 9, 7)]


@pytest.mark.parametrize(
    ("behind", "section"),
    [
        (b"", ""),
        (b" ", ""),
        (b" class A:", "class A:"),
        (b"  def f(x):  ", "def f(x):"),
        (b"x", "x"),
        (b" \xff", "\ufffd"),
    ],
)
def test_what_stands_behind_the_numbers_of_a_hunk_is_its_section(
    behind: bytes, section: str
) -> None:
    (file,) = diff.parse(HEAD + HUNK.replace(b"+1 @@", b"+1 @@" + behind), "p.patch")
    assert file.hunks[0].section == section
