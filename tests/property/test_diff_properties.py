"""Generated files, real ``git diff``, and back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from memory_tree import MemoryTree
from mod_making import mod, patched, variant
from sampling import examples

from vllm_mods.base import line_diff
from vllm_mods.base.errors import DiffError
from vllm_mods.base.model import Verdict
from vllm_mods.formats import diff
from vllm_mods.placing.target import splice
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    import random
    from pathlib import Path

# few distinct lines, so that repeats, which are what goes wrong, are common
LINES = st.sampled_from(
    ["a", "b", "    c", "", "d\r", "\u2028e", "\x0cf", "--- x", "+++ y", "@@ -1 +1 @@", "\\ z"]
)
FILES = st.tuples(st.lists(LINES, max_size=12), st.booleans()).map(
    lambda made: "\n".join(made[0]) + ("\n" if made[0] and made[1] else "")
)
PYTHON = st.lists(
    st.tuples(
        st.sampled_from("abcdef"), st.lists(st.sampled_from("uvwxyz"), min_size=1, max_size=5)
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda made: made[0],
).map(
    lambda made: "".join(
        f"def {name}():\n" + "".join(f"    {word} = {i}\n" for i, word in enumerate(body)) + "\n\n"
        for name, body in made
    )
)
QUICK = settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def git_diff(folder: Path, before: str, after: str, name: str = "vllm/x.py") -> bytes:
    for side, text in (("a", before), ("b", after)):
        file = folder / side / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text.encode())
    return subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "--text", "a", "b"],
        cwd=folder,
        capture_output=True,
        check=False,
    ).stdout


@QUICK
@given(before=FILES, after=FILES)
def test_what_git_writes_is_read_and_turns_one_file_into_the_other(
    tmp_path: Path, before: str, after: str
) -> None:
    data = git_diff(tmp_path, before, after)
    if before == after:
        assert data == b""
        return
    (file,) = diff.parse(data, "p.patch")
    if not file.hunks:
        return
    there = [(h.old_start + (not h.old), h) for h in file.hunks]
    assert splice(line_diff.split(before.encode()), there) == after.encode()
    back = [(h.old_start + (not h.old), h) for h in file.reversed().hunks]
    assert splice(line_diff.split(after.encode()), back) == before.encode()


@QUICK
@given(before=PYTHON, after=PYTHON, above=PYTHON)
def test_a_plan_gives_the_written_result_or_refuses_and_never_does_it_twice(
    tmp_path: Path, before: str, after: str, above: str
) -> None:
    data = git_diff(tmp_path, before, after)
    if not data:
        return
    mod_ = mod(variant(data))
    files = {"vllm/x.py": before.encode()}
    planned = plan([mod_], MemoryTree(files))
    assert planned == plan([mod_], MemoryTree(files))
    (one,) = planned.mods
    if one.verdict.writes:
        assert planned.changes[0].after == after.encode()
        # whatever became of it, it is never put in a second time; a patch that renames the
        # function it is in, and adds one of the old name, needs a receipt to be told as in
        again = plan([mod_], MemoryTree(patched(files, one))).mods[0]
        assert again.verdict in {Verdict.APPLIED, Verdict.PARTIAL, Verdict.MISPLACED}
    # below other code it goes where it was written for, or nowhere
    there = {"vllm/x.py": (above + before).encode()}
    moved = plan([mod_], MemoryTree(there)).mods[0]
    if moved.verdict.writes:
        result = patched(there, moved)["vllm/x.py"].decode()
        assert result == above + after or functions(above) & functions(before)
        for name, body in bodies(above + before):
            if name not in functions(before):
                assert (name, body) in bodies(result)


def bodies(text: str) -> list[tuple[str, str]]:
    return [(part[0], part) for part in text.split("def ")[1:]]


def functions(text: str) -> set[str]:
    return {name for name, _ in bodies(text)}


# --- whatever git takes without a warning, and means ------------------------------------------


class File(NamedTuple):
    """A file's lines before and after, None where it is not there, and whether it may be run."""

    before: tuple[bytes, ...] | None
    after: tuple[bytes, ...] | None
    ran: bool = False
    runs: bool = False


Made = dict[str, File]
States = dict[str, tuple[bytes, bool]]
NAMES = ("vllm/x.py", "vllm/y.py", "vllm/with space.py", "vllm/\u00e9.py")
ENDS = st.sampled_from([b"", b"\n"])
EDITS = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("+-~")), max_size=5)


@st.composite
def lines_and_edits(
    draw: st.DrawFn, *, unique: bool
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    texts = draw(st.lists(LINES, max_size=40))
    named = [f"{i} {text}" for i, text in enumerate(texts)] if unique else texts
    before = [text.encode() + b"\n" for text in named]
    after = list(before)
    for number, (at, kind) in enumerate(draw(EDITS)):
        new = [] if kind == "-" else [f"new {number}\n".encode()]
        after[at : at + (kind != "+")] = new
    for side in (before, after):
        if side:
            side[-1] = side[-1][:-1] + draw(ENDS)
    return tuple(line for line in before if line), tuple(line for line in after if line)


@st.composite
def folders(draw: st.DrawFn, *, unique: bool = False) -> dict[str, File]:
    found: dict[str, File] = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)):
        before, after = draw(lines_and_edits(unique=unique))
        kind = draw(st.sampled_from(["changed", "changed", "created", "deleted"]))
        modes = draw(st.booleans()), draw(st.booleans())
        found[name] = File(
            None if kind == "created" else before, None if kind == "deleted" else after, *modes
        )
    return found


def write(folder: Path, files: dict[str, File], *, after: bool) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "vllm").mkdir(parents=True)
    for name, file in files.items():
        lines = file.after if after else file.before
        if lines is not None:
            (folder / name).write_bytes(b"".join(lines))
            (folder / name).chmod(0o755 if (file.runs if after else file.ran) else 0o644)


def run(folder: Path, *words: str, data: bytes = b"", zone: str = "UTC0") -> bytes | None:
    """Return what a program writes, None if it says anything else than that all is well."""
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent), "TZ": zone, "LC_ALL": "C"}
    done = subprocess.run(words, cwd=folder, input=data, capture_output=True, env=env, check=False)
    fine = done.returncode == 0 or (done.returncode == 1 and words[0] == "diff")
    return done.stdout if fine and not done.stderr else None


def by_git(folder: Path, files: dict[str, File], *options: str) -> bytes:
    """Return ``git diff`` between the two states, as in a repository."""
    git = ("git", "--git-dir", str(folder / "repository"), "--work-tree", ".")
    run(folder, "git", "init", "-q", "--bare", "repository")
    trees = []
    for after in (False, True):
        write(folder / "state", files, after=after)
        run(folder / "state", *git, "add", "-A", ".")
        trees.append((run(folder / "state", *git, "write-tree") or b"").decode().strip())
    return run(folder / "state", *git, "diff", "--text", *options, *trees) or b""


def by_diff(folder: Path, files: dict[str, File], zone: str, *options: str) -> bytes:
    """Return what GNU diff says of the two states as folders ``a`` and ``b``."""
    for name in "ab":
        write(folder / name, files, after=name == "b")
    return run(folder, "diff", "--text", *options, "a", "b", zone=zone) or b""


def parts_of(data: bytes) -> tuple[bytes, ...]:
    return tuple(re.split(rb"^(?=diff )", data, flags=re.MULTILINE)[1:])


def git_makes(folder: Path, made: Made, data: bytes, *options: str) -> States | None:
    """Return the files, and whether they may be run, that git makes; None if it does not in silence."""
    write(folder, made, after=False)
    if run(folder, "git", "apply", "--whitespace=nowarn", *options, "-", data=data) is None:
        return None
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), os.access(path, os.X_OK))
        for path in folder.rglob("*")
        if path.is_file()
    }


def read(made: Made, data: bytes) -> States | None:
    """Return the same by our reading, with every hunk at its stated line; None if one is not there."""
    out = {
        name: (b"".join(file.before), file.ran)
        for name, file in made.items()
        if file.before is not None
    }
    for file in diff.parse(data, "p.patch"):
        new = file.old_path is None or (file.may_create and file.old_path not in out)
        before, runs = (b"", False) if new else out.pop(file.old_path or "")
        there = [(hunk.old_start + (not hunk.old), hunk) for hunk in file.hunks]
        lines = line_diff.split(before)
        if any(lines[at - 1 : at - 1 + len(hunk.old)] != hunk.old for at, hunk in there):
            return None
        after = splice(lines, there)
        assert after is not None
        if file.new_path is not None:
            out[file.new_path] = (after, runs if file.mode is None else bool(file.mode & 0o100))
        else:
            assert after == b""
    return out


ZONES = st.sampled_from(["UTC0", "EAST-1", "WEST8", "HALF-5:30", "FAR-13"])
BETWEEN = st.lists(
    st.sampled_from(
        [
            b"\n",
            b"some words\n",
            b"Only in b/vllm: z.py\n",
            b"-- \n2.39.5\n\n",
            b"commit 0123456\n\n    words of it\n\n",
            b"Index: vllm/x.py\n" + b"=" * 67 + b"\n",
            b"--- old\n+++ new\nwords\n",
            b" words after a blank\n",
            b"+ a list\n",
            b"@@ -1 +1 @@\n",
            b"@@ words\n",
        ]
    ),
    max_size=2,
).map(b"".join)
NAMED = (
    "the hunk has more lines than its header states",
    "belongs to no file",
    "header has no line numbers",
    "this file contains no diff",
    "the path 'old' does not start with",  # behind a head without lines git takes it for no name
)
"""Why a patch may be refused that git takes: it would drop lines in silence."""


def same_meaning(folder: Path, made: Made, data: bytes, *options: str) -> None:
    """Hold our reading against git's: both read it and mean the same, or ours says why not."""
    expected = git_makes(folder / "tree", made, data, *options)
    found, why = None, ""
    try:
        found = read(made, data)
    except DiffError as error:
        why = error.why
    if why:
        assert expected is None or any(named in why for named in NAMED), why
    else:
        assert found == expected


@pytest.mark.slow
@QUICK
@given(
    made=folders(),
    context=st.sampled_from([0, 1, 3]),
    renames=st.sampled_from(["-M", "--no-renames"]),
    between=st.lists(BETWEEN, min_size=5, max_size=5),
)
@example(
    made={"vllm/x.py": File((), (), ran=False, runs=True)},
    context=0,
    renames="-M",
    between=[b"", b"--- old\n+++ new\nwords\n"],
)
def test_git_s_own_diffs_with_prose_between_mean_what_git_makes_of_them(
    tmp_path: Path, made: Made, context: int, renames: str, between: list[bytes]
) -> None:
    parts = parts_of(by_git(tmp_path, made, f"-U{context}", renames))
    data = b"".join(map(b"".join, zip((b"", *parts), between, strict=False)))
    same_meaning(tmp_path, made, data, *["--unidiff-zero"][context:])


@QUICK
@given(
    made=folders(),
    options=st.sampled_from(["-urN", "-ur", "-rNU1", "-urNp"]),
    zone=ZONES,
    between=st.lists(BETWEEN, min_size=5, max_size=5),
)
def test_gnu_diffs_with_prose_between_mean_what_git_makes_of_them(
    tmp_path: Path, made: Made, options: str, zone: str, between: list[bytes]
) -> None:
    # what diff says of modes is nothing
    made = {name: file._replace(ran=False, runs=False) for name, file in made.items()}
    parts = parts_of(by_diff(tmp_path, made, zone, options))
    data = b"".join(map(b"".join, zip((b"", *parts), between, strict=False)))
    same_meaning(tmp_path, made, data)


@pytest.mark.slow
@QUICK
@given(
    made=folders(unique=True),
    context=st.sampled_from([1, 3]),
    order=st.randoms(use_true_random=False),
    keep=st.floats(0.3, 1),
)
def test_diffs_cut_and_put_in_another_order_by_hand_mean_what_git_makes_of_them(
    tmp_path: Path, made: Made, context: int, order: random.Random, keep: float
) -> None:
    made = {name: file for name, file in made.items() if None not in (file.before, file.after)}
    cut = []
    for part in parts_of(by_git(tmp_path, made, f"-U{context}", "--no-renames")):
        head, *hunks = re.split(rb"^(?=@@ -)", part, flags=re.MULTILINE)
        kept = [hunk for hunk in hunks if order.random() < keep]
        order.shuffle(kept)
        if kept:
            cut.append(head + b"".join(kept))
    same_meaning(tmp_path, made, b"".join(cut))


@QUICK
@given(made=folders())
def test_paths_without_folders_in_front_are_refused_by_name(tmp_path: Path, made: Made) -> None:
    data = by_git(tmp_path, made, "--no-prefix", "--no-renames")
    if b"\n+++ " in data:
        with pytest.raises(DiffError, match="does not start with"):
            diff.parse(data, "p.patch")
