"""Patches as this tool writes them: read back by the strict reader, and taken by git."""

from __future__ import annotations

import itertools
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from vllm_mods.base import line_diff
from vllm_mods.formats import diff, diff_writer
from vllm_mods.placing.target import splice

if TYPE_CHECKING:
    from pathlib import Path

LINES = st.sampled_from([b"a\n", b"b\n", b"    c\n", b"\n", b"def f():\n", b"class A:\n", b"x"])
TEXTS = st.lists(LINES, max_size=25).map(b"".join)
PATH = "vllm/a.py"


def put(data: bytes | None, patch: bytes) -> bytes | None:
    """Apply a patch at the lines it states."""
    (file,) = diff.parse(patch, "patch")
    if file.new_path is None:
        return None
    before = line_diff.split(data or b"")
    return splice(before, [(max(1, one.old_start + (not one.old)), one) for one in file.hunks])


@given(TEXTS, TEXTS, st.integers(0, 4))
def test_what_is_written_is_read_back_and_makes_the_change(
    before: bytes, after: bytes, context: int
) -> None:
    patch = diff_writer.file_diff(PATH, before, after, context=context)
    assert (patch == b"") == (before == after)
    if patch:
        assert put(before, patch) == after


@given(TEXTS, TEXTS)
def test_lines_that_stay_are_equal_and_in_order(before: bytes, after: bytes) -> None:
    old, new = line_diff.split(before), line_diff.split(after)
    pairs = line_diff.matching(old, new)
    assert all(old[i] == new[k] for i, k in pairs)
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(pairs))


def test_a_class_is_not_matched_with_its_neighbour() -> None:
    """Both end alike: the one in front is new, whole."""
    one = [b"class A:\n", b"    def f(self):\n", b"        return 1\n", b"\n"]
    two = [b"class B:\n", b"    def f(self):\n", b"        return 1\n", b"\n"]
    assert list(line_diff.changes(one, two + one)) == [(0, 0, 0, 4)]
    assert list(line_diff.changes(one, one + two)) == [(4, 4, 4, 8)]


def test_the_section_is_the_nearest_definition_above() -> None:
    body = "".join(f"        x{n} = {n}\n" for n in range(9))
    before = f"class A:\n    async def f(self):\n{body}\n\nTOP = 1\n".encode()
    patch = diff_writer.file_diff(PATH, before, before.replace(b"x8 = 8", b"x8 = 9"))
    assert b"@@ -8,7 +8,7 @@ async def f(self):\n" in patch


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"a\n"),
        (b"a\n", None),
        (None, b""),
        (b"a\nb\nc\n", b"a\nb\nd\n"),
        (b"a\nb", b"a\nb\n"),
        (b"a\nb\n", b"a\nb"),
        (b"a\r\nb\r\n", b"a\r\nc\r\n"),
    ],
)
def test_git_takes_it(before: bytes | None, after: bytes | None, tmp_path: Path) -> None:
    patch = diff_writer.file_diff(PATH, before, after)
    diff.parse(patch, "patch")
    (tmp_path / "vllm").mkdir()
    if before is not None:
        (tmp_path / PATH).write_bytes(before)
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    result = tmp_path / PATH
    assert (result.read_bytes() if result.exists() else None) == after


@pytest.mark.parametrize("path", ["vllm/a b.py", "vllm/é.txt", 'vllm/"q\\.txt', "vllm/a b\u2028é"])
@pytest.mark.parametrize("mode", [None, 0o755])
def test_git_reads_a_name_and_a_mode_as_we_do(path: str, mode: int | None, tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / path).write_bytes(b"a\n")
    for before, after in ((b"a\n", b"b\n"), (b"b\n", None), (None, b"c\n"), (b"c\n", b"c\n")):
        patch = diff_writer.file_diff(path, before, after, mode=mode)
        assert bool(patch) is (before != after or mode is not None)
        if patch:
            (file,) = diff.parse(patch, "patch")
            assert (file.path, file.old_mode is None) == (
                path,
                bool(after) and (not before or mode is None),
            )
            subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=patch, check=True)
    assert (tmp_path / path).stat().st_mode & 0o777 == (mode or 0o644)
