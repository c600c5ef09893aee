"""What a tree carries of a mod, hunk by hunk."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.base.model import OverlayFile, PatchFile, Verdict
from vllm_mods.planning.planner import hunk_states, plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Mod

PATH = "vllm/x.py"
BASE = "".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(9))
FINAL = BASE.replace("return 1\n", "return 11\n").replace("return 7\n", "return 77\n")
NEW = OverlayFile(source="overlay/new.py", path="vllm/new.py", data=b"NEW = 1\n")
MOD = mod(variant(diff_of(PATH, BASE, FINAL), overlay=(NEW,)))


def states(mod_: Mod, files: Mapping[str, str]) -> tuple[Verdict, list[str]]:
    tree = MemoryTree({path: text.encode() for path, text in files.items()}, pristine=True)
    planned = plan([mod_], tree).mods[0]
    return planned.verdict, [one.state for one in hunk_states(mod_, mod_.variants[0], tree)]


@pytest.mark.parametrize(
    ("text", "new", "verdict", "expected"),
    [
        (BASE, None, "applies", ["placed", "placed", "placed"]),
        (FINAL, "NEW = 1\n", "upstream", ["carried", "carried", "carried"]),
        (FINAL, None, "conflict", ["carried", "carried", "placed"]),
        (BASE, "NEW = 1\n", "conflict", ["placed", "placed", "carried"]),
        (BASE, "NEW = 2\n", "conflict", ["placed", "placed", "absent"]),
        (FINAL.replace("77", "7"), None, "conflict", ["carried", "placed", "placed"]),
        (FINAL.replace("77", "78"), "NEW = 1\n", "conflict", ["carried", "absent", "carried"]),
        (BASE.replace("f1", "g1"), None, "missing", ["absent", "placed", "placed"]),
    ],
)
def test_each_hunk_has_its_state(
    text: str, new: str | None, verdict: str, expected: list[str]
) -> None:
    files = {PATH: text} | ({} if new is None else {"vllm/new.py": new})
    assert states(MOD, files) == (verdict, expected)


def test_what_is_not_fit_is_placed_all_the_same() -> None:
    patch = diff_of(PATH, BASE, BASE.replace("return 1\n", "return nowhere()\n"))
    assert states(mod(variant(patch)), {PATH: BASE}) == (Verdict.UNFIT, ["placed"])


def test_a_patch_on_top_of_another_is_looked_at_on_top_of_it() -> None:
    stages = [BASE.replace("return 2\n", f"return {n}\n") for n in (2, 20, 200, 2000)]
    stack = mod(variant(*(diff_of(PATH, old, new) for old, new in pairwise(stages))))
    for carried, text in enumerate(stages):
        other = text.replace("return 8\n", "return 88\n")
        assert states(stack, {PATH: other})[1] == ["carried"] * carried + ["placed"] * (3 - carried)


OTHER = "vllm/y.py"
OPTION = PatchFile(
    "opt.patch", diff_of("vllm/y.py", "Y = 1\nZ = 2\n", "Y = 2\nZ = 2\n"), optional=True
)


def with_optional(patch: PatchFile) -> Mod:
    needed = variant(diff_of(PATH, BASE, FINAL))
    return mod(needed._replace(patches=(*needed.patches, patch)))


@pytest.mark.parametrize(
    ("text", "other", "verdict", "expected"),
    [
        (BASE, "Y = 1\nZ = 2\n", "applies", ["placed", "placed", "placed"]),
        (BASE, "Y = 3\nZ = 2\n", "applies", ["placed", "placed", "absent"]),
        (BASE, "Y = 2\nZ = 2\n", "applies", ["placed", "placed", "carried"]),
        (FINAL, "Y = 1\nZ = 2\n", "conflict", ["carried", "carried", "placed"]),
        (FINAL, "Y = 3\nZ = 2\n", "upstream", ["carried", "carried", "absent"]),
        (FINAL, "Y = 2\nZ = 2\n", "upstream", ["carried", "carried", "carried"]),
    ],
)
def test_an_optional_patch_is_counted_as_what_becomes_of_it(
    text: str, other: str, verdict: str, expected: list[str]
) -> None:
    assert states(with_optional(OPTION), {PATH: text, OTHER: other}) == (verdict, expected)


def test_a_renamed_file_is_one_piece() -> None:
    patch = (
        b"diff --git a/vllm/x.py b/vllm/y.py\nsimilarity index 90%\n"
        b"rename from vllm/x.py\nrename to vllm/y.py\n"
    ) + diff_of(PATH, BASE, FINAL).replace(b"+++ b/vllm/x.py", b"+++ b/vllm/y.py")
    renamed = mod(variant(patch))
    assert states(renamed, {PATH: BASE}) == (Verdict.APPLIES, ["placed"])
    assert states(renamed, {"vllm/y.py": FINAL}) == (Verdict.UPSTREAM, ["carried"])
    assert states(renamed, {"vllm/y.py": BASE})[1] == ["absent"]
