"""Which file each part of somebody's diff means, and what of a diff is refused."""

from __future__ import annotations

import pytest
from lowering import lower
from memory_tree import MemoryTree
from mod_making import diff_of, indexed

from vllm_mods.base.errors import DiffError, Refused
from vllm_mods.making import from_diff

OLD = "".join(f"A{n} = {n}\n" for n in range(9))
NEW = OLD.replace("A4 = 4", "A4 = 5")
OTHER = OLD.replace("A", "B")
FILES = {
    "vllm/__init__.py": b"",
    "vllm/x.py": OLD.encode(),
    "vllm/sub/x.py": OTHER.encode(),
    "vllm/sub/y.py": OTHER.encode(),
    "vllm/t.py": b"def f():\n    a = 1\n\n\ndef g():\n    a = 1\n",
}
TREE = MemoryTree(FILES)
ADDED = b"--- /dev/null\n+++ %b\n@@ -0,0 +1 @@\n+N = 1\n"


def diff(old: str, new: str, before: str = OLD, after: str = NEW) -> bytes:
    body = diff_of("x", before, after).partition(b"+++ b/x\n")[2]
    return f"--- {old}\n+++ {new}\n".encode() + body


def changed(*parts: bytes) -> tuple[dict[str, tuple[str | None, str | None]], tuple[str, ...]]:
    effect = from_diff.changes(b"".join(parts), "x.diff", TREE)
    changes = {
        one.path: (
            None if one.before is None else one.before.decode(),
            None if one.after is None else one.after.decode(),
        )
        for one in effect.changes
    }
    return changes, effect.notes


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a/vllm/x.py", "b/vllm/x.py"),
        ("x.py.orig", "x.py"),
        ("/usr/lib/python3/site-packages/vllm/x.py\t2026-01-01", "/tmp/vllm/x.py"),  # noqa: S108
        ("..\\vllm\\x.py", "..\\vllm\\x.py"),
        ("./vllm/../x.py", "x.py"),
    ],
)
def test_a_file_is_the_one_whose_path_ends_so_and_that_takes_the_hunks(old: str, new: str) -> None:
    changes, notes = changed(diff(old, new))
    assert changes == {"vllm/x.py": (OLD, NEW)}
    assert all(note.endswith(" in the diff was taken as vllm/x.py") for note in notes)


def test_what_a_part_means_is_noted_where_it_is_not_what_it_says() -> None:
    parts = (
        diff("lib/x.py", "lib/x.py", OTHER, OTHER.replace("= 8", "= 9")),
        ADDED % b"lib/new.py",
    )
    changes, notes = changed(*parts)
    assert list(changes) == ["vllm/sub/new.py", "vllm/sub/x.py"]
    assert changes["vllm/sub/new.py"] == (None, "N = 1\n")
    assert notes == (
        "lib/x.py in the diff was taken as vllm/sub/x.py",
        "lib/new.py in the diff was taken as vllm/sub/new.py",
    )


def test_a_file_that_is_removed_has_no_text_left() -> None:
    assert changed(diff("vllm/x.py", "/dev/null", OLD, ""))[0] == {"vllm/x.py": (OLD, None)}
    epoch = "vllm/x.py\t1970-01-01 00:00:00.000000000 +0000"
    assert changed(diff("vllm/x.py", epoch, OLD, ""))[0] == {"vllm/x.py": (OLD, None)}


EMPTIES = b"diff --git a/vllm/sub/new.py b/vllm/sub/new.py\nnew file mode 100644\nindex 0000000..e69de29\n"


@pytest.mark.parametrize(
    "end", [b"", b"diff --git a/vllm/x.py b/vllm/x.py\n" + diff("a/vllm/x.py", "b/vllm/x.py")]
)
def test_git_states_an_empty_file_without_names_and_lines(end: bytes) -> None:
    new = changed(EMPTIES + end)[0]
    assert new.pop("vllm/sub/new.py") == (None, "")
    gone = EMPTIES.replace(b"new file", b"deleted file").replace(
        b"vllm/sub/new.py", b"vllm/empty.py"
    )
    tree = MemoryTree({**FILES, "vllm/empty.py": b""})
    was, *others = from_diff.changes(gone + end, "x.diff", tree).changes
    assert (was.path, was.before, was.after) == ("vllm/empty.py", b"", None)
    assert [*new] == [one.path for one in others] == ["vllm/x.py"] * bool(end)
    with pytest.raises(Refused, match=r"the text that the diff changes is not in vllm/x\.py"):
        changed(gone.replace(b"vllm/empty.py", b"vllm/x.py"), end)


def test_of_a_series_each_commit_changes_what_the_ones_before_left() -> None:
    last = NEW.replace("A4 = 5", "A4 = 6").replace("A8", "C8")
    more = diff("a/vllm/sub/new.py", "b/vllm/sub/new.py", "N = 1\n", "N = 2\n")
    series = (
        diff("a/vllm/x.py", "b/vllm/x.py") + ADDED % b"b/vllm/sub/new.py",
        diff("a/vllm/x.py", "b/vllm/x.py", NEW, last) + more,
    )
    mails = (b"From 1\nSubject: x\n---\n%b-- \n2.40\n\n" % commit for commit in series)
    assert changed(*mails)[0] == {"vllm/x.py": (OLD, last), "vllm/sub/new.py": (None, "N = 2\n")}
    assert from_diff.is_of(b"".join(series), "x.diff", TREE)
    assert not from_diff.is_of(b"".join(series[::-1]), "x.diff", TREE)


@pytest.mark.parametrize(
    "line",
    ["copy from host to device", "rename from a", "Binary files are read", "Only in eager mode"],
)
def test_what_a_mail_says_in_front_of_a_diff_is_no_part_of_it(line: str) -> None:
    part = diff("a/vllm/x.py", "b/vllm/x.py")
    mail = f"From 1\nSubject: x\n\n{line}\n---\n x.py | 2 +-\n\n".encode()
    assert changed(mail, part) == ({"vllm/x.py": (OLD, NEW)}, ())


def test_a_hunk_may_have_lines_that_look_like_a_head() -> None:
    text = OLD.replace("A3 = 3", "new file mode 120000")
    old, new = (text.replace("A4 = 4", line) for line in ("-- a/x", "++ b/x"))
    tree = MemoryTree({**FILES, "vllm/x.txt": old.encode()})
    (change,) = from_diff.changes(
        diff("vllm/x.txt", "vllm/x.txt", old, new), "x.diff", tree
    ).changes
    assert change.after == new.encode()


def test_svn_says_behind_the_name_that_a_file_is_new() -> None:
    names = b"--- vllm/new/__init__.py\t(nonexistent)\n+++ vllm/new/__init__.py\t(working copy)\n"
    changes, _ = changed(names + b"@@ -0,0 +1 @@\n+N = 1\n")
    assert changes == {"vllm/new/__init__.py": (None, "N = 1\n")}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("old mode 100644\nnew mode 100755", "a mod made of a diff sets no file modes"),
        ("Only in new/vllm: y.py", "`diff -ruN` has the text of such files"),
        ("diff -ruN a/vllm/e.py b/vllm/e.py", "it has no lines, as for an empty file"),
    ],
)
def test_what_a_diff_states_and_no_mod_gets_is_said(line: str, why: str) -> None:
    part = diff("vllm/x.py", "vllm/x.py")
    _, notes = changed(f"{line}\ndiff -ruN a b\n".encode() + part, b"Only in a: __pycache__\n")
    assert notes == (f"left out `{line.splitlines()[-1]}`: {why}",)


def test_a_new_file_goes_where_its_path_says_if_nothing_is_beside_it() -> None:
    assert changed(ADDED % b"a/b/vllm/sub/new.py")[0] == {"vllm/sub/new.py": (None, "N = 1\n")}


def test_a_new_file_is_as_far_from_its_path_as_the_files_beside_it() -> None:
    beside = diff("/lib//./sub/x.py", "/lib//./sub/x.py", OTHER, OTHER.replace("= 8", "= 9"))
    changes, _ = changed(beside, ADDED % b"/lib/./sub//new.py")
    assert list(changes) == ["vllm/sub/new.py", "vllm/sub/x.py"]


@pytest.mark.parametrize(
    ("parts", "message", "hint"),
    [
        (
            [ADDED % b"vllm/x.py"],
            "x.diff:1: vllm/x.py is new, but memory already has vllm/x.py",
            "--tree TREE names a vLLM without that file",
        ),
        (
            [ADDED % b"new.py"],
            "x.diff:1: new.py is new, and the diff does not say where the file goes",
            "write its full path into the diff: vllm/…",
        ),
        (
            [
                diff("p/x.py", "p/x.py"),
                diff("p/y.py", "p/y.py", OTHER, OTHER.replace("= 8", "= 9")),
                ADDED % b"p/new.py",
            ],
            "x.diff:20: p/new.py is new, and could go to vllm/new.py, vllm/sub/new.py",
            "write its full path into the diff: vllm/…",
        ),
        (
            [diff("vllm/z.py", "vllm/z.py")],
            "x.diff:1: vllm/z.py: memory has no such file",
            "--tree auto looks for the release that the diff was made on",
        ),
        (
            [diff("x.py", "x.py", "C = 1\nD = 2\n", "C = 1\nD = 3\n")],
            "x.diff:1: x.py: the text that the diff changes is not in vllm/sub/x.py, vllm/x.py of memory",
            "--tree auto looks for the release that the diff was made on",
        ),
        (
            [diff("vllm/x.py", "vllm/x.py", NEW, OLD)],
            "x.diff:1: vllm/x.py: the text that the diff changes is not in vllm/x.py of memory (or the change is already applied)",
            "--tree auto looks for the release that the diff was made on",
        ),
        (
            [diff("sub/y.py", "z.py", OTHER.replace("B4 = 4", "B4 = 5"), OTHER)],
            "x.diff:1: sub/y.py: the text that the diff changes is not in vllm/sub/y.py of memory (or the change is already applied)",
            "--tree auto looks for the release that the diff was made on",
        ),
        (
            [b"--- vllm/x.py\n+++ vllm/x.py\n@@ -5,1 +5,1 @@\n-A4 = 4\n+A4 = 5\n"],
            "x.diff:1: vllm/x.py: the changes have no context lines, so the right place is uncertain",
            "--tree auto looks for the release that the diff was made on; or make the diff again with three lines of context: git diff -U3, or diff -u",
        ),
        (
            [diff("vllm/t.py", "vllm/t.py", "    a = 1\n", "    a = 2\n")],
            "x.diff:1: vllm/t.py: the changes have no context lines, so the right place is uncertain",
            "--tree pypi:VERSION names the release that the diff was made on; or make the diff again with three lines of context: git diff -U3, or diff -u",
        ),
    ],
)
def test_what_has_no_one_place_is_refused(parts: list[bytes], message: str, hint: str) -> None:
    with pytest.raises(Refused) as caught:
        changed(*parts)
    assert (caught.value.message, caught.value.hint) == (message, hint)


TWINS = "".join(
    f"def {name}():\n    first()\n    a = 1\n    last()\n    return {name}\n\n\n"
    for name in ("one", "two")
)


def test_of_twins_the_one_at_the_stated_line_is_meant_in_the_tree_that_is_named() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/t.py": TWINS.encode()})
    text = b"--- a/vllm/t.py\n+++ b/vllm/t.py\n@@ -%d,3 +%d,3 @@\n     first()\n-    a = 1\n+    a = 2\n     last()\n"
    for line, at in ((2, 0), (9, 1)):
        (change,) = from_diff.changes(text % (line, line), "x.diff", tree).changes
        parts = TWINS.split("a = 1")
        parts[at] += "a = 2"
        parts[1 - at] += "a = 1"
        assert change.after == "".join(parts).encode()
        assert not from_diff.is_of(text % (line, line), "x.diff", tree)  # nobody has named it
    with pytest.raises(
        Refused,
        match=r"the text that the diff changes is in vllm/t\.py of .*, but not at the stated lines",
    ):
        from_diff.changes(text % (4, 4), "x.diff", tree)


def test_git_names_the_file_that_its_diff_was_made_on() -> None:
    both = f"def f():\n{OLD.replace('A', '    a')}    return a1\n"
    now = both.replace("    return", f"{OLD.replace('A', '    a')}    return")
    tree = MemoryTree({"vllm/__init__.py": b"", "vllm/x.py": both.encode()})
    part = diff_of("vllm/x.py", both, now, context=1)
    (change,) = from_diff.changes(indexed(part, both, now), "x.diff", tree).changes
    assert change.after == now.encode()
    with pytest.raises(Refused, match="so the right place is uncertain"):
        from_diff.changes(part, "x.diff", tree)


@pytest.mark.parametrize("names", [("x.py", "x.py"), ("vllm/sub/x.py", "vllm/x.py")])
def test_what_may_mean_several_files_is_refused(names: tuple[str, str]) -> None:
    twin = MemoryTree({**FILES, "vllm/sub/x.py": OLD.encode()})
    with pytest.raises(
        Refused, match=r"x\.py could be any of 2 files: vllm/sub/x\.py, vllm/x\.py$"
    ):
        from_diff.changes(diff(*names), "x.diff", twin)


@pytest.mark.parametrize(
    ("data", "line", "why", "hint"),
    [
        (
            b"x\nrename from a\nrename to b\n",
            2,
            "the diff renames or copies a file",
            "git diff --no-renames",
        ),
        (b"copy from a\ncopy to b\n", 1, "the diff renames or copies a file", None),
        (b"x\nGIT binary patch\n", 2, "a binary change has no text", "--from-trees OLD NEW"),
        (
            b"Binary files a and b differ\n",
            1,
            "a binary change has no text",
            "--from-trees OLD NEW",
        ),
        (
            b"diff --git a/vllm/l b/vllm/l\nnew file mode 120000\n" + ADDED % b"b/vllm/l",
            2,
            "no mod can change a link or submodule",
            "remove it from the diff",
        ),
        (
            b"Index: vllm/y.py\n@@ -1 +1 @@\n-a\n+b\n" + diff("vllm/x.py", "vllm/x.py"),
            1,
            "a hunk belongs to no file: the '---' and '+++' lines before it are missing",
            "make the diff again with `git diff` or `diff -u`",
        ),
        (b"words\n\n" + diff("vllm/x.py", "vllm/x.py").replace(b"+A4 = 5\n", b""), 5, None, None),
    ],
)
def test_what_is_no_such_diff_says_where(
    data: bytes, line: int, why: str | None, hint: str | None
) -> None:
    with pytest.raises(DiffError) as caught:
        changed(data)
    assert (caught.value.where, caught.value.line) == ("x.diff", line)
    assert why in {None, caught.value.why}
    assert hint in {None, caught.value.hint}


def test_a_diff_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lower(monkeypatch, "PATCH", 20)
    with pytest.raises(DiffError, match="it has more than 20 bytes") as caught:
        changed(diff("vllm/x.py", "vllm/x.py"))
    assert caught.value.hint == "remove files outside vllm/, or make several mods"
