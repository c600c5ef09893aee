"""The strict reader in front of unidiff: what it takes, and what it refuses that others let through."""

from __future__ import annotations

import pytest

from vllm_mods import diff
from vllm_mods.errors import DiffError

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


REFUSED = {
    "counts too small drop lines in silence elsewhere": (
        HEAD + b"@@ -1,2 +1,2 @@\n one\n-two\n+deux\n-lost\n",
        "beyond the hunk's stated counts",
    ),
    "counts too large": (HEAD + b"@@ -1,5 +1,5 @@\n one\n-two\n+deux\n", "ends inside a hunk"),
    "counts that take the next file for content": (
        HEAD + b"@@ -1,4 +1,4 @@\n one\n-two\n+deux\n" + b"diff --git a/vllm/y.py b/vllm/y.py\n",
        "this line is none of them",
    ),
    "line numbers that do not add up": (
        HEAD + b"@@ -1,2 +1,3 @@\n one\n+1\n two\n@@ -10,2 +10,3 @@\n ten\n+1\n eleven\n",
        "do not add up",
    ),
    "overlapping hunks": (
        HEAD + b"@@ -1,2 +1,3 @@\n one\n+1\n two\n@@ -2,2 +3,3 @@\n two\n+1\n three\n",
        "overlaps",
    ),
    "combined diff": (
        b"diff --cc vllm/x.py\nindex 1,2..3\n--- a/vllm/x.py\n+++ b/vllm/x.py\n@@@ -1,1 -1,1 +1,1 @@@\n- a\n++b\n",
        "combined",
    ),
    "number-less hunk": (HEAD + b"@@ @@\n-a\n+b\n", "without line numbers"),
    "hunk without file": (b"@@ -1 +1 @@\n-a\n+b\n", "before any file header"),
    "binary": (
        b"diff --git a/vllm/x.so b/vllm/x.so\nindex 1..2 100644\nGIT binary patch\nliteral 1\n",
        "binary",
    ),
    "binary without data": (
        b"diff --git a/vllm/x.so b/vllm/x.so\nindex 1..2\nBinary files a/vllm/x.so and b/vllm/x.so differ\n",
        "binary",
    ),
    "garbage": (b"hello\nworld\n", "no change in this file"),
    "nothing": (b"", "no change in this file"),
    "patch saved with CRLF": (GOOD.replace(b"\n", b"\r\n"), "CRLF"),
    "path with ..": (GOOD.replace(b"vllm/x.py", b"vllm/../../etc/x"), "leads out of the tree"),
    "absolute path": (
        GOOD.replace(b"a/vllm/x.py", b"a//etc/passwd").replace(b"b/vllm/x.py", b"b//etc/passwd"),
        "leads out of the tree",
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
        "copy",
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
        "changes nothing",
    ),
    "cut off in the middle of a line": (GOOD[:-1], "cut off"),
    "text behind the end": (GOOD + b"-- \n2.39.5\nmore text\n", "text after the end"),
    "old lines in a new file": (
        b"diff --git a/vllm/n b/vllm/n\nnew file mode 100644\n--- /dev/null\n+++ b/vllm/n\n@@ -1 +1 @@\n-a\n+b\n",
        "new file cannot have old lines",
    ),
    "a line after the last one": (
        HEAD + b"@@ -1,2 +1,3 @@\n a\n\\ No newline at end of file\n+b\n c\n",
        "beyond the hunk's stated counts",
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
