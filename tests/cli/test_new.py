"""``new``: from diffs with any paths, from two trees; what is refused leaves nothing."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER, write_tree
from mod_making import diff_of
from package_server import make_wheel

from vllm_mods.formats import manifest
from vllm_mods.library.catalog import Library
from vllm_mods.planning import lock_entries

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

FAST = LOADER.replace('"weights"', '"fast"', 1)
SUB = "def deep():\n    return 1\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write_tree(tmp_path / "base", "0.19.1", engine__loader=SUB)


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def named(old: str, new: str, before: str = LOADER, after: str = FAST) -> bytes:
    """Return a diff that gives its file these names."""
    patch = diff_of("x", before, after).decode()
    return patch.replace("--- a/x", f"--- {old}").replace("+++ b/x", f"+++ {new}").encode()


@pytest.mark.parametrize(
    "names",
    [
        ("a/vllm/loader.py", "b/vllm/loader.py"),
        ("vllm/loader.py", "vllm/loader.py"),
        ("loader.py", "loader.py"),
        ("loader.py.orig", "loader.py"),
        (r"C:\venv\Lib\site-packages\vllm\loader.py", r"D:\new\vllm\loader.py"),
        ('"a/pyth\\303\\266n/vllm/loader.py"', '"b/pyth\\303\\266n/vllm/loader.py"'),
        ("/usr/lib/python3.12/dist-packages/vllm/loader.py", "/home/me/new/vllm/loader.py"),
        (
            "vllm.old/loader.py\t2026-01-01 10:00:00.000000000 +0000",
            "vllm/loader.py\t2026-01-02 10:00",
        ),
    ],
)
def test_each_part_is_found_by_its_end_and_its_text(
    call: Call, base: Path, mine: Path, tmp_path: Path, names: tuple[str, str]
) -> None:
    """There are two files of that name; only one has the text."""
    patch = tmp_path / "x.diff"
    patch.write_bytes(b"Some words first.\n\ndiff -u x y\n" + named(*names))
    made = call("new", "swift", "--from-diff", patch, "--tree", base, "--library", mine)
    assert made.code == 0, made.err
    written = (mine / "patches/swift/0.19/swift.patch").read_text()
    assert written.startswith("diff --git a/vllm/loader.py b/vllm/loader.py\n")
    assert "@@ -3,7 +3,7 @@" in written
    assert call("check", "swift", "--library", mine, "--target", base).code == 0
    read = manifest.from_toml((mine / "patches/swift/mod.toml").read_bytes(), "mod.toml")
    assert (read.name, read.variants[0].vllm, read.license) == (
        "swift",
        "==0.19.1",
        "LicenseRef-unstated",
    )
    assert "to add in mod.toml: license" in made.out


@pytest.mark.parametrize(
    "no_file", [b"/dev/null", b"old/engine/fresh.py\t1970-01-01 01:00:00.000000000 +0100"]
)
def test_a_new_file_goes_where_its_neighbours_are(
    call: Call, base: Path, mine: Path, tmp_path: Path, no_file: bytes
) -> None:
    patch = tmp_path / "x.diff"
    fresh = b"--- %s\n+++ new/engine/fresh.py\n@@ -0,0 +1 @@\n+X = 1\n\n" % no_file
    patch.write_bytes(b"\xef\xbb\xbf" + fresh + named("old/loader.py", "new/loader.py"))
    made = call(
        "new", "swift", "--from-diff", patch, "--tree", base, "--library", mine, "--json",
        "--summary", "Faster", "--license", "Apache-2.0", "--vllm", ">=0.19,<0.21",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert (mine / "patches/swift/overlay/vllm/engine/fresh.py").read_bytes() == b"X = 1\n"
    assert made.json["unknown"] == ["evidence: a log line that shows that the mod's code ran"]
    assert call("apply", "swift", "--library", mine, "--target", base).code == 0
    assert (base / "vllm/engine/fresh.py").read_text() == "X = 1\n"
    assert (base / "vllm/loader.py").read_text() == FAST


@pytest.mark.slow
def test_what_cannot_be_placed_is_refused(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "x.diff"

    def refused(data: bytes, message: str, code: int = 3) -> None:
        patch.write_bytes(data)
        made = call("new", "swift", "--from-diff", patch, "--tree", base, "--library", mine)
        assert (made.code, message in made.err) == (code, True), made.err
        assert list(mine.iterdir()) == []

    refused(named("a/vllm/none.py", "b/vllm/none.py"), "has no such file")
    refused(named('"a/vllm/loader.py', "b/vllm/loader.py"), "has no closing quote", 2)
    refused(named("a/loader.py", "b/loader.py").decode().encode("utf-16"), "UTF-16", 2)
    refused(
        named("a/loader.py", "b/loader.py", FAST, LOADER),
        "the text that the diff changes is not in",
    )
    refused(
        named("loader.py", "loader.py", "A = 1\n", "A = 3\n"),
        "the text that the diff changes is not in",
    )
    refused(
        b"--- /dev/null\n+++ b/odd.py\n@@ -0,0 +1 @@\n+X = 1\n",
        "the diff does not say where the file goes",
    )
    refused(b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -1,2 +1,2 @@\n-A = 1\n+A = 2\n", "x.diff:3:", 2)
    refused(b"no diff\n", "this file contains no diff", 2)
    refused(
        diff_of("vllm/loader.py", LOADER, LOADER.replace("os.path", "oss.path", 1)),
        "the mod would have the verdict `unfit`",
    )
    (base / "vllm/engine/again.py").write_text(LOADER)
    (base / "vllm/again.py").write_text(LOADER)
    refused(named("again.py", "again.py"), "could be any of 2 files")


@pytest.mark.slow
def test_two_trees(call: Call, base: Path, mine: Path, tmp_path: Path) -> None:
    new = write_tree(tmp_path / "new", "0.19.1", engine__loader=SUB, loader=FAST, more="M = 1\n")
    (base / "vllm/k.so").write_bytes(b"\0old")
    (new / "vllm/k.so").write_bytes(b"\0new")
    (new / "vllm/b.py").unlink()
    (new / "vllm/__pycache__").mkdir()
    (new / "vllm/__pycache__/x.pyc").write_bytes(b"x")
    (new / "vllm-0.19.1.dist-info/RECORD").write_text("")
    made = call("new", "swift", "--from-trees", base, new, "--library", mine)
    assert made.code == 0, made.err
    assert "left out vllm-0.19.1.dist-info/RECORD" in made.out
    assert call("apply", "swift", "--library", mine, "--target", base).code == 0
    for path in ("vllm/loader.py", "vllm/more.py", "vllm/k.so"):
        assert (base / path).read_bytes() == (new / path).read_bytes()
    assert not (base / "vllm/b.py").exists()
    assert call("revert", "--target", base).code == 0
    assert (base / "vllm/b.py").read_bytes() == FILES["vllm/b.py"]
    assert (base / "vllm/k.so").read_bytes() == b"\0old"


def test_a_range_that_is_none_is_said_by_its_option(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    new = write_tree(tmp_path / "new", "0.19.1", engine__loader=SUB, loader=FAST)
    made = call("new", "swift", "--from-trees", base, new, "--library", mine, "--vllm", "abc")
    assert (made.code, "error: --vllm: 'abc' is not a version specifier" in made.err) == (2, True)
    assert not (mine / "patches/swift").exists()


def test_a_change_that_stands_twice_gets_more_context(
    call: Call, mine: Path, tmp_path: Path
) -> None:
    twin = "".join(f"def f{n}():\n" + "".join(f"    x = {i}\n" for i in range(9)) for n in range(3))
    old = write_tree(tmp_path / "old", "0.19.1", twin=twin)
    changed = twin.replace("    x = 8\ndef f2", "    x = 9\ndef f2")
    new = write_tree(tmp_path / "new", "0.19.1", twin=changed)
    assert call("new", "swift", "--from-trees", old, new, "--library", mine).code == 0
    assert call("apply", "swift", "--library", mine, "--target", old).code == 0
    assert (old / "vllm/twin.py").read_text() == changed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no --tree was named"),
        (("--tree", "{base}"), "a new mod needs a tree and one of these: a diff,"),
        (("--from-diff", "none.diff", "--tree", "{base}"), "none.diff cannot be read"),
        (("--from-trees", "{base}", "{base}"), "nothing differs from"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(
    call: Call, base: Path, mine: Path, words: tuple[str, ...], message: str
) -> None:
    done = call("new", "swift", "--library", mine, *(word.format(base=base) for word in words))
    assert done.code in {2, 3}
    assert message in done.err
    assert list(mine.iterdir()) == []


def test_a_name_that_is_taken_or_none_is_refused(
    call: Call, base: Path, library: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "x.diff"
    patch.write_bytes(named("loader.py", "loader.py"))
    words = ("--from-diff", patch, "--tree", base, "--library", library)
    taken = call("new", "fast", *words)
    assert taken.code == 3
    assert "already exists; nothing was written" in taken.err
    assert f"hint: rm -r {library}/patches/fast, or choose another name" in taken.err
    assert call("new", "Not A Name", *words).code == 2


@pytest.mark.slow
def test_what_git_writes_is_read(call: Call, base: Path, mine: Path, tmp_path: Path) -> None:
    def git(*words: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@x", *words]
        return subprocess.run(command, cwd=base, capture_output=True, text=True, check=True).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    (base / "vllm/loader.py").write_text(FAST)
    (base / "vllm/new.py").write_text("N = 1\n")
    git("add", "-N", ".")
    (tmp_path / "x.diff").write_text(git("diff"))
    git("checkout", "-q", "vllm/loader.py")
    (base / "vllm/new.py").unlink()
    made = call(
        "new", "swift", "--from-diff", tmp_path / "x.diff", "--tree", base, "--library", mine
    )
    assert made.code == 0, made.err
    assert (mine / "patches/swift/overlay/vllm/new.py").exists()


def test_what_the_build_writes_is_no_part_of_a_mod(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    other = write_tree(tmp_path / "other", "0.19.1", engine__loader=SUB)
    (other / "vllm/loader.py").write_text(FAST)
    for folder, text in ((base, "one"), (other, "two")):
        (folder / "vllm/_version.py").write_text(f"__version__ = {text!r}\n")
    made = call("new", "swift", "--from-trees", base, other, "--library", mine)
    assert made.code == 0, made.err
    assert "left out vllm/_version.py: the build of each release generates this file" in made.out
    assert "_version" not in (mine / "patches/swift/0.19/swift.patch").read_text()


def test_a_mod_made_on_a_release_knows_it(call: Call, mine: Path, tmp_path: Path) -> None:
    name = "vllm-0.19.1-cp38-abi3-manylinux_2_31_x86_64.whl"
    (tmp_path / name).write_bytes(make_wheel(FILES, version="0.19.1", bulk={}))
    patch = tmp_path / "x.diff"
    patch.write_bytes(named("a/vllm/loader.py", "b/vllm/loader.py"))
    target = f"wheel:{tmp_path / name}"
    made = call("new", "swift", "--from-diff", patch, "--tree", target, "--library", mine)
    assert made.code == 0, made.err
    mod = Library(mine).load("swift")
    locked = lock_entries.current(mod)
    assert locked is not None
    assert [one.vllm for one in locked.trees] == [("0.19.1",)]
    assert [one.path for one in locked.trees[0].files] == ["vllm/loader.py"]
    assert call("check", "swift", "--library", mine, "--target", target).code == 0


def test_the_lock_of_a_mod_made_on_a_folder_that_nothing_vouches_for_says_only_where_it_was_written(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    patch = tmp_path / "x.diff"
    patch.write_bytes(named("a/vllm/loader.py", "b/vllm/loader.py"))
    assert call("new", "swift", "--from-diff", patch, "--tree", base, "--library", mine).code == 0
    locked = lock_entries.current(Library(mine).load("swift"))
    assert locked is not None
    assert locked.trees == ()
    assert [(place.variant, place.base) for place in locked.written] == [("0.19", "0.19.1")]


def test_a_diff_without_context_is_refused_for_that(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    (tmp_path / "old.py").write_text(LOADER)
    (tmp_path / "new.py").write_text(FAST)
    words = ["diff", "-U0", "--label=a/vllm/loader.py", "--label=b/vllm/loader.py"]
    patch = subprocess.run(
        [*words, "old.py", "new.py"], cwd=tmp_path, capture_output=True, check=False
    )
    (tmp_path / "x.diff").write_bytes(patch.stdout)
    made = call("new", "x", "--from-diff", tmp_path / "x.diff", "--tree", base, "--library", mine)
    assert made.code == 3
    assert "no context" in made.err
    assert "git diff -U3" in made.err
    assert list(mine.iterdir()) == []


def test_two_site_packages_compared_with_diff_naur(
    call: Call, base: Path, mine: Path, tmp_path: Path
) -> None:
    other = write_tree(tmp_path / "other", "0.19.1", engine__loader=SUB)
    (other / "vllm/loader.py").write_text(FAST)
    (other / "vllm/fresh.py").write_text("NEW = 1\n")
    words = ["diff", "-Naur", str(base), str(other)]
    patch = subprocess.run(words, capture_output=True, check=False).stdout
    (tmp_path / "x.diff").write_bytes(patch)
    made = call("new", "x", "--from-diff", tmp_path / "x.diff", "--tree", base, "--library", mine)
    assert made.code == 0, made.err
    assert (mine / "patches/x/overlay/vllm/fresh.py").read_text() == "NEW = 1\n"
