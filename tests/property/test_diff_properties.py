"""Generated files, real ``git diff``, and back."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from making import mod, patched, variant
from memory_tree import MemoryTree

from vllm_mods import diff, locate
from vllm_mods.model import Verdict
from vllm_mods.plan import plan

if TYPE_CHECKING:
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
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
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
    assert locate.splice(locate.split(before.encode()), there) == after.encode()
    back = [(h.old_start + (not h.old), h) for h in file.reversed().hunks]
    assert locate.splice(locate.split(after.encode()), back) == before.encode()


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
