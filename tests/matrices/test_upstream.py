"""What a tree carries of a mod, hunk by hunk, and from where on the mod can go."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.api.upstream import Carried
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import ModPlan, OverlayFile, PatchFile, Verdict
from vllm_mods.matrices import upstream
from vllm_mods.planning.planner import hunk_states, plan
from vllm_mods.report import upstream as report
from vllm_mods.trees.index import ReleaseFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Mod

PATH = "vllm/x.py"
BASE = "".join(f"def f{i}():\n    return {i}\n\n\n" for i in range(9))
FINAL = BASE.replace("return 1\n", "return 11\n").replace("return 7\n", "return 77\n")
NEW = OverlayFile(source="overlay/new.py", path="vllm/new.py", data=b"NEW = 1\n")
MOD = mod(variant(diff_of(PATH, BASE, FINAL), overlay=(NEW,)))


def shown_lines(rows: list[upstream.UpstreamRow]) -> list[str]:
    return (report.carried(Carried(tuple(rows))).words or "").splitlines()


def states(mod_: Mod, files: Mapping[str, str]) -> tuple[Verdict, list[str]]:
    tree = MemoryTree({path: text.encode() for path, text in files.items()}, pristine=True)
    planned = plan([mod_], tree).mods[0]
    return planned.verdict, [one.state for one in hunk_states(planned, tree)]


@pytest.mark.parametrize(
    ("text", "new", "verdict", "expected"),
    [
        (BASE, None, "applies", ["placed", "placed", "placed"]),
        (FINAL, "NEW = 1\n", "upstream", ["carried", "carried", "carried"]),
        (FINAL, None, "conflict", ["carried", "carried", "placed"]),
        (BASE, "NEW = 1\n", "conflict", ["placed", "placed", "carried"]),
        (BASE, "NEW = 2\n", "conflict", ["placed", "placed", "absent"]),
        (
            FINAL.replace("77", "7"),
            None,
            "conflict",
            ["carried", "placed", "placed"],
        ),
        (
            FINAL.replace("77", "78"),
            "NEW = 1\n",
            "conflict",
            ["carried", "absent", "carried"],
        ),
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


def test_a_release_with_every_hunk_and_not_the_whole_is_said_to_be_one() -> None:
    functions = FINAL.split("\n\n\n")[:-1]
    swapped = "\n\n\n".join((*functions[5:], *functions[:5])) + "\n"
    made = mod(variant(diff_of(PATH, BASE, FINAL)))
    texts = {"a": BASE, "b": FINAL, "c": swapped}
    trees = {key: MemoryTree({PATH: text.encode()}, pristine=True) for key, text in texts.items()}
    rows = list(upstream.rows([made], trees, trees.__getitem__, lambda _: None))
    assert [one.planned.verdict for one in rows] == [A, U, C]
    shown = shown_lines(rows)
    assert shown[3].split(maxsplit=2) == ["c", "conflict", "2 carried, and not the whole"]
    assert shown[-1] == (
        "mod is carried whole by b; c has each of its hunks, and not the whole as it was written: "
        "whether it can go is for a person to read"
    )
    assert shown_lines(rows[2:])[-1] == (
        "c has each hunk of mod, and not the whole as it was written: whether it can go is for a person to read"
    )
    assert upstream.is_needed(rows)


def test_a_renamed_file_is_one_piece() -> None:
    patch = (
        b"diff --git a/vllm/x.py b/vllm/y.py\nsimilarity index 90%\n"
        b"rename from vllm/x.py\nrename to vllm/y.py\n"
    ) + diff_of(PATH, BASE, FINAL).replace(b"+++ b/vllm/x.py", b"+++ b/vllm/y.py")
    renamed = mod(variant(patch))
    assert states(renamed, {PATH: BASE}) == (Verdict.APPLIES, ["placed"])
    assert states(renamed, {"vllm/y.py": FINAL}) == (Verdict.UPSTREAM, ["carried"])
    assert states(renamed, {"vllm/y.py": BASE})[1] == ["absent"]


def test_what_lies_on_a_required_mod_is_looked_at_on_top_of_it() -> None:
    middle = BASE.replace("return 1\n", "return 11\n")
    below = mod(variant(diff_of(PATH, BASE, middle)), name="below")
    above = mod(
        variant(
            diff_of(PATH, middle, middle.replace("11", "111")),
            diff_of("vllm/z.py", "Z = 1\n", "Z = 2\n"),
        ),
        name="above",
        requires=("below",),
    )
    tree = MemoryTree({PATH: BASE.encode(), "vllm/z.py": b"Z = 2\n"}, pristine=True)
    (row,) = upstream.rows([below, above], ["t"], lambda _: tree, lambda _: None)
    assert [one.state for one in row.hunks] == ["placed", "carried"]


@pytest.mark.parametrize(
    ("vllm", "spec", "expected"),
    [
        (">=0.20,<0.21", None, ["0.20.0", "0.21.0", "0.22.0", "0.23.0", "0.24.0"]),
        (">=0.20,<0.21", ">=0.22,<0.24", ["0.22.0", "0.23.0"]),
        (">=0.99", None, ["0.22.0", "0.23.0", "0.24.0"]),
    ],
)
def test_all_releases_from_the_first_one_meant_are_asked(
    vllm: str, spec: str | None, expected: list[str]
) -> None:
    files = [
        ReleaseFile(filename=f"v{i}", url="", version=f"0.{i}.0", kind="sdist")
        for i in range(18, 25)
    ]
    named = upstream.releases(mod(variant(b"", vllm=vllm)), files, spec)
    assert named == tuple(f"pypi:{version}" for version in expected)


def row(verdict: Verdict, *, meant: bool = True) -> upstream.UpstreamRow:
    return upstream.UpstreamRow("1", "t", ModPlan(MOD, None, verdict, in_range=meant), meant)


A, U, C = Verdict.APPLIES, Verdict.UPSTREAM, Verdict.CONFLICT


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [([A, U, U], 1), ([U, U], 0), ([U, A, U], 2), ([A, U, C], None), ([A, A], None)],
)
def test_it_can_go_where_all_that_follow_carry_it(
    verdicts: list[Verdict], expected: int | None
) -> None:
    rows = [row(verdict) for verdict in verdicts]
    assert upstream.can_go(rows) is (None if expected is None else rows[expected])


def test_needed_is_what_a_range_names_and_does_not_carry() -> None:
    assert upstream.is_needed([row(A), row(U, meant=False)])
    assert not upstream.is_needed([row(U), row(C, meant=False)])
    # for none of these trees: then all of them count
    assert upstream.is_needed([row(C, meant=False), row(U, meant=False)])
    assert not upstream.is_needed([row(U, meant=False)])


def test_an_unreadable_tree_is_a_row_of_its_own() -> None:
    good = MemoryTree({PATH: FINAL.encode(), NEW.path: NEW.data}, pristine=True)

    def opener(spec: str) -> MemoryTree:
        if spec == "pypi:9":
            raise TreeError("no network")
        return good

    rows = list(upstream.rows([MOD], ["a", "pypi:9", "b"], opener, lambda _: None))
    assert upstream.is_needed(rows)  # as far as anybody can tell
    assert [one.planned.verdict for one in rows] == [U, Verdict.UNREADABLE, U]
    assert upstream.can_go(rows) is rows[2]
    assert (rows[1].version, rows[1].hunks) == ("9", ())
    shown = shown_lines(rows)
    assert shown[2].split() == ["9", "unreadable", "-"]
    assert shown[3] == "    no network [unreadable]"
    assert shown[-1] == "mod can go from b on"
