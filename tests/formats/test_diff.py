"""The strict reader in front of unidiff: what it takes, and what it refuses that others let through."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base import line_diff
from vllm_mods.base.errors import DiffError
from vllm_mods.formats import diff
from vllm_mods.placing.target import splice

if TYPE_CHECKING:
    from pathlib import Path

HEAD = b"--- a/vllm/x.py\n+++ b/vllm/x.py\n"
GOOD = HEAD + b"@@ -1,3 +1,4 @@ class A:\n one\n-two\n+deux\n+trois\n three\n"


def read(data: bytes, root: str = "") -> tuple[diff.FileDiff, ...]:
    return diff.parse(data, "p.patch", root=root)


def test_a_plain_patch_is_read_to_the_byte() -> None:
    (file,) = read(GOOD)
    assert file.path == "vllm/x.py"
    (hunk,) = file.hunks
    assert hunk.old == (b"one\n", b"two\n", b"three\n")
    assert hunk.new == (b"one\n", b"deux\n", b"trois\n", b"three\n")
    assert (hunk.old_start, hunk.new_start, hunk.section, hunk.number) == (1, 1, "class A:", 1)


def test_root_is_put_in_front_of_each_path() -> None:
    (file,) = read(b"--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-a\n+b\n", root="vllm/deep/")
    assert file.path == "vllm/deep/x.py"


def test_carriage_returns_in_content_are_content() -> None:
    (file,) = read(HEAD + b"@@ -1,2 +1,2 @@\n one\r\n-two\r\n+deux\r\n")
    assert file.hunks[0].old == (b"one\r\n", b"two\r\n")


def test_separators_that_python_splits_at_stay_in_their_line() -> None:
    (file,) = read(HEAD + "@@ -1,2 +1,2 @@\n a\x0cb\u2028c\x85d\n-two\n+deux\n".encode())
    assert file.hunks[0].old[0] == "a\x0cb\u2028c\x85d\n".encode()


def test_a_missing_final_newline_is_kept_per_side() -> None:
    (file,) = read(HEAD + b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n")
    assert file.hunks[0].old == (b"a",)
    assert file.hunks[0].new == (b"b\n",)


def test_an_empty_context_line_may_have_lost_its_blank() -> None:
    (file,) = read(HEAD + b"@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n")
    assert file.hunks[0].old == (b"a\n", b"\n", b"b\n")


def test_bytes_that_are_not_utf_8_survive() -> None:
    (file,) = read(HEAD + b"@@ -1,2 +1,2 @@\n \xff\xfe\n-b\n+c\n")
    assert file.hunks[0].old[0] == b"\xff\xfe\n"


def test_a_new_a_deleted_and_a_renamed_file() -> None:
    new, gone, moved, mode, empty = read(
        b"diff --git a/vllm/n.py b/vllm/n.py\nnew file mode 100755\nindex 000..111\n"
        b"--- /dev/null\n+++ b/vllm/n.py\n@@ -0,0 +1 @@\n+x\n"
        b"diff --git a/vllm/d.py b/vllm/d.py\ndeleted file mode 100644\n"
        b"--- a/vllm/d.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        b"diff --git a/vllm/o.py b/vllm/p.py\nsimilarity index 90%\nrename from vllm/o.py\n"
        b"rename to vllm/p.py\n--- a/vllm/o.py\n+++ b/vllm/p.py\n@@ -1 +1 @@\n-x\n+y\n"
        b"diff --git a/vllm/m.sh b/vllm/m.sh\nold mode 100644\nnew mode 100755\n"
        b"diff --git a/vllm/with space.py b/vllm/with space.py\nnew file mode 100644\nindex 0..e\n"
    )
    assert (new.old_path, new.new_path, new.mode) == (None, "vllm/n.py", 0o755)
    assert (gone.old_path, gone.new_path) == ("vllm/d.py", None)
    assert (moved.old_path, moved.new_path) == ("vllm/o.py", "vllm/p.py")
    assert (mode.mode, mode.old_mode, mode.hunks) == (0o755, 0o644, ())
    assert empty.new_path == "vllm/with space.py"


def test_prose_and_mail_around_the_patch_are_not_part_of_it() -> None:
    mail = (
        b"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\n"
        b"Subject: [PATCH] x\n\n- a list\n+ in the message\n---\n vllm/x.py | 3 ++-\n\n"
        b"diff --git a/vllm/x.py b/vllm/x.py\nindex 1..2 100644\n" + GOOD + b"-- \n2.39.5\n\n"
    )
    files = read(mail + mail)
    assert [file.path for file in files] == ["vllm/x.py", "vllm/x.py"]


def test_a_quoted_path_is_decoded() -> None:
    (file,) = read(
        b'--- "a/vllm/\\303\\251\\t.py"\n+++ "b/vllm/\\303\\251\\t.py"\n@@ -1 +1 @@\n-a\n+b\n'.replace(
            b"\\t", b""
        )
    )
    assert file.path == "vllm/é.py"


def test_reversing_twice_gives_the_same_and_once_swaps_the_sides() -> None:
    (file,) = read(GOOD)
    assert file.reversed().hunks[0].old == file.hunks[0].new
    assert file.reversed().reversed() == file


def blobs(index: bytes) -> tuple[str | None, str | None]:
    (file,) = read(b"diff --git a/vllm/x.py b/vllm/x.py\n" + index + GOOD)
    assert (file.reversed().old_blob, file.reversed().new_blob) == (file.new_blob, file.old_blob)
    return file.old_blob, file.new_blob


def test_the_index_line_names_both_contents() -> None:
    assert blobs(b"index 0123abc..DEF4567 100644\n") == ("0123abc", "def4567")
    assert blobs(b"index " + b"a" * 40 + b".." + b"b" * 64 + b"\n") == ("a" * 40, "b" * 64)
    assert blobs(b"index 0000000..def4567\n") == (None, "def4567")


def test_without_an_index_line_no_content_is_named() -> None:
    assert blobs(b"") == (None, None)
    assert blobs(b"index of things\n") == (None, None)


# --- whatever git reads without a warning ----------------------------------------------------


def git_applies(data: bytes, files: dict[str, bytes], folder: Path) -> dict[str, bytes] | None:
    """Return what real git makes of some files, None if it does not take the patch in silence."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    done = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", "-"],
        cwd=folder,
        input=data,
        capture_output=True,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
        check=False,
    )
    if done.returncode or done.stderr:
        return None
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def made(data: bytes, files: dict[str, bytes]) -> dict[str, bytes]:
    """Return what our reading makes of some files, every hunk at its stated line."""
    out = dict(files)
    for file in diff.parse(data, "p.patch"):
        new = file.old_path is None or (file.may_create and file.old_path not in out)
        before = b"" if new else out.pop(file.old_path or "")
        there = [(hunk.old_start + (not hunk.old), hunk) for hunk in file.hunks]
        after = splice(line_diff.split(before), there)
        assert after is not None
        if file.new_path is not None:
            out[file.new_path] = after
        else:
            assert after == b""
    return out


NUMBERS = b"".join(b"%d\n" % number for number in range(1, 31))
ADD_AT_2 = b"@@ -2,3 +2,4 @@\n 2\n+A\n 3\n 4\n"
ADD_AT_20 = b"@@ -20,3 +%d,4 @@\n 20\n+B\n 21\n 22\n"
X = {"vllm/x.py": NUMBERS}
NEW = b"@@ -0,0 +1,2 @@\n+one\n+two\n"
GONE = b"@@ -1 +0,0 @@\n-gone\n"
TODAY = b"\t2026-11-22 03:00:00.123456789 +0100\n"


def stamped(old: bytes, new: bytes, hunks: bytes) -> bytes:
    return b"diff -urN a/vllm/n.py b/vllm/n.py\n--- a/vllm/n.py%s+++ b/vllm/n.py%s%s" % (
        old,
        new,
        hunks,
    )


EPOCHS = (
    b"\t1970-01-01 00:00:00.000000000 +0000\n",
    b"\t1970-01-01 01:00:00.000000000 +0100\n",
    b"\t1970-01-01 05:30:00 +05:30\n",
    b"\t1969-12-31 16:00:00.000000000 -0800\n",
)
NO_EPOCHS = (
    b"\t1970-01-01 00:00:00 +0100\n",
    b"\t1970-01-01 00:00:00.5 +0000\n",
    b"\t1970-01-01 00:00:00\n",
    b"\t1969-12-31 16:00:00 +0800\n",
)

READ = {
    **{f"created, {at!r}": (stamped(at, TODAY, NEW), dict[str, bytes]()) for at in EPOCHS},
    **{f"deleted, {at!r}": (stamped(TODAY, at, GONE), {"vllm/n.py": b"gone\n"}) for at in EPOCHS},
    **{
        f"emptied, {at!r}": (stamped(TODAY, at, GONE), {"vllm/n.py": b"gone\n"}) for at in NO_EPOCHS
    },
    "the first lines of an empty file": (stamped(TODAY, TODAY, NEW), {"vllm/n.py": b""}),
    "the first lines of a file that is not there": (HEAD + NEW, dict[str, bytes]()),
    "a blank line after the last hunk": (HEAD + ADD_AT_2 + b"\n", X),
    "blank lines between files": (
        HEAD + ADD_AT_2 + b"\n\n" + HEAD.replace(b"x", b"y") + ADD_AT_2,
        {**X, "vllm/y.py": NUMBERS},
    ),
    "prose after the last hunk": (HEAD + ADD_AT_2 + b"some words\n and more\n+ a list\n", X),
    "another commit of `git log -p`": (
        HEAD
        + ADD_AT_2
        + b"\ncommit 0123\n\n    words\n\n"
        + HEAD
        + ADD_AT_20.replace(b"-20", b"-21") % 22,
        X,
    ),
    "a mail's signature of several lines": (HEAD + ADD_AT_2 + b"-- \nJane Doe\n at work\n", X),
    "a signature without its blank": (HEAD + ADD_AT_2 + b"--\n2.39.5\n\n", X),
    "a heading in prose that looks like names": (b"--- old\n+++ new\nwords\n" + HEAD + ADD_AT_2, X),
    "a new start that does not follow": (HEAD + ADD_AT_2 + ADD_AT_20 % 20, X),
    "a new start from nowhere": (HEAD + ADD_AT_2 + ADD_AT_20 % 3, X),
    "hunks in another order than the file's": (HEAD + ADD_AT_20 % 21 + ADD_AT_2, X),
    "line 0 of a file with lines": (HEAD + b"@@ -0,3 +1,4 @@\n 1\n+A\n 2\n 3\n", X),
    "x.orig beside x": (HEAD.replace(b"a/vllm/x.py", b"a/vllm/x.py.orig") + ADD_AT_2, X),
    "x beside x.new": (HEAD.replace(b"b/vllm/x.py", b"b/vllm/x.py.new") + ADD_AT_2, X),
    "x~ beside x": (HEAD.replace(b"a/vllm/x.py", b"a/vllm/x.py~") + ADD_AT_2, X),
    "stamps whose tab became blanks": (
        b"--- a/vllm/x.py  2024-01-01 00:00:00.12 +0000\n+++ b/vllm/x.py  2024-01-01 00:00:00\n"
        + ADD_AT_2,
        X,
    ),
    "a sentence that begins with Binary files": (b"Binary files are big\n" + HEAD + ADD_AT_2, X),
    "a marker in another language": (
        HEAD + b"@@ -1 +1 @@\n-a\n\\ Kein Zeilenumbruch am Dateiende.\n+b\n",
        {"vllm/x.py": b"a"},
    ),
    "a marker that ends the patch without a line end": (
        HEAD + b"@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file",
        {"vllm/x.py": b"a\n"},
    ),
    "a marker on a line that stays": (
        HEAD + b"@@ -1,2 +1,2 @@\n-a\n+b\n z\n\\ No newline at end of file\n",
        {"vllm/x.py": b"a\nz"},
    ),
    "a marker on both sides": (
        HEAD + b"@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n",
        {"vllm/x.py": b"a"},
    ),
}


@pytest.mark.parametrize("case", READ)
def test_what_git_applies_in_silence_is_read_and_means_the_same(case: str, tmp_path: Path) -> None:
    data, files = READ[case]
    expected = git_applies(data, files, tmp_path)
    assert expected is not None
    assert made(data, files) == expected


def test_taking_out_what_may_create_a_file_creates_none() -> None:
    (file,) = read(HEAD + NEW)
    assert (file.may_create, file.reversed().may_create) == (True, False)
    assert not read(b"diff --git a/vllm/x.py b/vllm/x.py\n" + HEAD + NEW)[0].may_create


def test_the_new_start_is_where_the_hunk_will_be() -> None:
    (file,) = read(HEAD + ADD_AT_2 + ADD_AT_20 % 3)
    assert [(hunk.old_start, hunk.new_start) for hunk in file.hunks] == [(2, 2), (20, 21)]
    after = NUMBERS.replace(b"2\n3", b"2\nA\n3").replace(b"20\n", b"20\nB\n")
    there = [(hunk.old_start, hunk) for hunk in file.reversed().hunks]
    assert splice(line_diff.split(after), there) == NUMBERS


def test_hunks_keep_their_number_when_they_are_put_in_order() -> None:
    (file,) = read(HEAD + ADD_AT_20 % 21 + ADD_AT_2)
    assert [(hunk.number, hunk.old_start) for hunk in file.hunks] == [(2, 2), (1, 20)]


def test_a_byte_order_mark_is_no_part_of_the_first_name() -> None:
    mode = b"diff --git a/vllm/x.py b/vllm/x.py\nold mode 100644\nnew mode 100755\n"
    for head in (b"", mode):
        assert read(b"\xef\xbb\xbf" + head + GOOD) == read(head + GOOD)


def test_a_second_reader_that_disagrees_is_not_said_to_be_the_users_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unidiff.patch.PatchSet", lambda _text: [])
    with pytest.raises(DiffError) as caught:
        read(GOOD)
    assert caught.value.line == 3
    assert "unidiff" not in caught.value.message
    assert "report" in (caught.value.hint or "")


REFUSED = {
    "counts too small drop lines in silence elsewhere": (
        HEAD + b"@@ -1,2 +1,2 @@\n one\n-two\n+deux\n-lost\n",
        "the hunk has more lines than its header states",
    ),
    "counts too large": (
        HEAD + b"@@ -1,5 +1,5 @@\n one\n-two\n+deux\n",
        "ends in the middle of a hunk:",
    ),
    "counts that take the next file for content": (
        HEAD + b"@@ -1,4 +1,4 @@\n one\n-two\n+deux\n" + b"diff --git a/vllm/y.py b/vllm/y.py\n",
        "this line is neither",
    ),
    "overlapping hunks": (
        HEAD + b"@@ -1,2 +1,3 @@\n one\n+1\n two\n@@ -2,2 +3,3 @@\n two\n+1\n three\n",
        "overlaps",
    ),
    "combined diff": (
        b"diff --cc vllm/x.py\nindex 1,2..3\n--- a/vllm/x.py\n+++ b/vllm/x.py\n@@@ -1,1 -1,1 +1,1 @@@\n- a\n++b\n",
        "combined",
    ),
    "number-less hunk": (HEAD + b"@@ @@\n-a\n+b\n", "header has no line numbers"),
    "hunk without file": (b"@@ -1 +1 @@\n-a\n+b\n", "belongs to no file"),
    "binary": (
        b"diff --git a/vllm/x.so b/vllm/x.so\nindex 1..2 100644\nGIT binary patch\nliteral 1\n",
        "binary",
    ),
    "binary without data": (
        b"diff --git a/vllm/x.so b/vllm/x.so\nindex 1..2\nBinary files a/vllm/x.so and b/vllm/x.so differ\n",
        "binary",
    ),
    "garbage": (b"hello\nworld\n", "no diff: it has"),
    "nothing": (b"", "no diff: it has"),
    "patch saved with CRLF": (GOOD.replace(b"\n", b"\r\n"), "CRLF"),
    "path with ..": (GOOD.replace(b"vllm/x.py", b"vllm/../../etc/x"), "points outside the tree"),
    "absolute path": (
        GOOD.replace(b"a/vllm/x.py", b"a//etc/passwd").replace(b"b/vllm/x.py", b"b//etc/passwd"),
        "points outside the tree",
    ),
    "no prefix": (
        GOOD.replace(b"a/vllm", b"vllm").replace(b"b/vllm", b"vllm"),
        "does not start with",
    ),
    "control character in a path": (
        b'--- "a/vllm/x\\n.py"\n+++ "b/vllm/x\\n.py"\n@@ -1 +1 @@\n-a\n+b\n',
        "not a plain relative path",
    ),
    "two names without a rename": (
        GOOD.replace(b"b/vllm/x.py", b"b/vllm/y.py"),
        "without a rename",
    ),
    "copy": (
        b"diff --git a/vllm/x.py b/vllm/y.py\nsimilarity index 100%\ncopy from vllm/x.py\ncopy to vllm/y.py\n",
        "copies another file",
    ),
    "symbolic link": (
        b"diff --git a/vllm/x b/vllm/x\nnew file mode 120000\n--- /dev/null\n+++ b/vllm/x\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file\n",
        "symbolic link",
    ),
    "target of a symbolic link": (
        b"diff --git a/vllm/x b/vllm/x\nindex 1..2 120000\n--- a/vllm/x\n+++ b/vllm/x\n@@ -1 +1 @@\n-y\n+z\n",
        "symbolic link",
    ),
    "submodule": (b"diff --git a/vllm/x b/vllm/x\nnew file mode 160000\n", "submodule"),
    "hunk that changes nothing": (HEAD + b"@@ -1,2 +1,2 @@\n one\n two\n", "changes nothing"),
    "file part that changes nothing": (
        b"diff --git a/vllm/x.py b/vllm/x.py\nindex 1..2 100644\n",
        "nothing changes",
    ),
    "cut off in the middle of a line": (GOOD[:-1], "cut off"),
    "old lines in a new file": (
        b"diff --git a/vllm/n b/vllm/n\nnew file mode 100644\n--- /dev/null\n+++ b/vllm/n\n@@ -1 +1 @@\n-a\n+b\n",
        "new file cannot have old lines",
    ),
    "a part without hunks": (HEAD + b"\n" + HEAD.replace(b"x", b"y") + ADD_AT_2, "no hunk follows"),
    "a blank line between two hunks of a file": (HEAD + ADD_AT_2 + b"\n" + ADD_AT_20 % 21, "file"),
    "counts too small, and a blank line that lost its blank": (
        HEAD + ADD_AT_2 + b"\n+lost\n",
        "the hunk has more lines than its header states",
    ),
    "a stamp that says there was no file, and old lines": (
        stamped(EPOCHS[0], TODAY, b"@@ -1 +1 @@\n-a\n+b\n"),
        "new file cannot have old lines",
    ),
    "a stamp that says there will be no file, and new lines": (
        stamped(TODAY, EPOCHS[0], b"@@ -1 +1 @@\n-a\n+b\n"),
        "deleted file cannot have new lines",
    ),
    "git's header with two names and no rename": (
        b"diff --git a/vllm/x.py b/vllm/y.py\nold mode 100644\nnew mode 100755\n",
        "names two files",
    ),
    "git's parts with two names and no rename": (
        b"diff --git a/vllm/x.py.orig b/vllm/x.py\n"
        + HEAD.replace(b"a/vllm/x.py", b"a/vllm/x.py.orig")
        + ADD_AT_2,
        "without a rename",
    ),
    "rename lines that name another file": (
        b"diff --git a/vllm/x.py b/vllm/y.py\nrename from vllm/x.py\nrename to vllm/y.py\n"
        + HEAD
        + ADD_AT_2,
        "rename lines",
    ),
    "x.orig beside x without a folder in front": (
        HEAD.replace(b"a/vllm/x.py", b"vllm/x.py.orig").replace(b"b/", b"") + ADD_AT_2,
        "the path 'vllm/x.py.orig' does not start with 'a/'",
    ),
    "UTF-16 with its mark": (GOOD.decode().encode("utf-16"), "UTF-16"),
    "UTF-16 without": (GOOD.decode().encode("utf-16-le"), "UTF-16"),
    "terminal colour codes": (
        (
            b"\x1b[1m--- a/vllm/x.py\x1b[m\n\x1b[1m+++ b/vllm/x.py\x1b[m\n"
            b"\x1b[36m@@ -1 +1 @@\x1b[m\n\x1b[31m-a\x1b[m\n\x1b[32m+\x1b[m\x1b[32mb\x1b[m\n"
        ),
        "terminal colour codes",
    ),
    "coloured in the hunks": (
        HEAD + b"\x1b[36m@@ -1 +1 @@\x1b[m\n-a\n+b\n",
        "terminal colour codes",
    ),
    "context diff": (
        (
            b"*** a/vllm/x.py\t2026\n--- b/vllm/x.py\t2026\n***************\n*** 1,2 ****\n  a\n! b\n"
            b"--- 1,2 ----\n  a\n! c\n"
        ),
        "context diff",
    ),
    "normal diff": (b"diff a/vllm/x.py b/vllm/x.py\n2c2\n< b\n---\n> c\n", "without context"),
    "ed script": (b"2c\nc\n.\n", "ed script"),
    "an empty line that lacks its line end": (
        HEAD + b"@@ -1 +1,2 @@\n a\n+\n\\ No newline at end of file\n",
        "is empty and has no newline",
    ),
    "a line after the last one": (
        HEAD + b"@@ -1,2 +1,3 @@\n a\n\\ No newline at end of file\n+b\n c\n",
        "the hunk has more lines than its header states",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_the_line_and_the_reason(case: str) -> None:
    data, why = REFUSED[case]
    with pytest.raises(DiffError) as caught:
        read(data)
    assert why in caught.value.message
    assert caught.value.message.startswith("p.patch:")
    assert caught.value.line >= 1
    assert "unidiff" not in caught.value.message


@pytest.mark.parametrize("more", [b"--- old\n+++ new\nwords\n", b"--- old\nwords\n", b"--- old"])
def test_names_behind_a_head_belong_to_it_as_git_has_it(more: bytes) -> None:
    """Drawn: prose behind an empty new file, of the form of a file's names."""
    head = b"diff --git a/vllm/y.py b/vllm/y.py\nnew file mode 100644\nindex 0000000..e69de29\n"
    assert read(head)[0].path == "vllm/y.py"
    with pytest.raises(DiffError):
        read(head + more)


@pytest.mark.parametrize(
    "names", [(b"a/g.py", b"b/g.py"), (b"a/g.py", b"/dev/null"), (b"a/f.py", b"b/g.py")]
)
def test_a_git_part_whose_lines_name_another_file_is_inconsistent(
    names: tuple[bytes, bytes],
) -> None:
    head = b"diff --git a/f.py b/f.py\n"
    head += b"deleted file mode 100644\n" * (names[1] == b"/dev/null")
    new = b"+1,0" if names[1] == b"/dev/null" else b"+1"
    lines = b"-x\n" if names[1] == b"/dev/null" else b"-x\n+y\n"
    text = head + b"--- %b\n+++ %b\n@@ -1 %b @@\n" % (*names, new.replace(b"1,0", b"0,0")) + lines
    with pytest.raises(DiffError, match=r"the 'diff --git' line names f\.py"):
        diff.parse(text, "x.patch")


def test_a_tab_in_a_name_in_front_of_a_time_stamp_does_not_cut_the_name() -> None:
    text = b"--- a/x\ty.py%b+++ b/x\ty.py%b@@ -1 +1 @@\n-a\n+b\n" % (TODAY, TODAY)
    with pytest.raises(DiffError, match="is not a plain relative path"):
        diff.parse(text, "x.patch")
