"""What a tree is to become: by a plan, or by taking mods out; pure but for what it reads of the tree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mod_making import diff_of, mod, variant
from small_site import FILES, ONE, RECORD, sha, write

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import ModPlan, Plan, Verdict
from vllm_mods.formats import receipt
from vllm_mods.formats.receipt import FileHash, Receipt, ReceiptFile, ReceiptMod
from vllm_mods.library import packed_mod
from vllm_mods.site.transitions import Transition, forward, revert_transition

if TYPE_CHECKING:
    from pathlib import Path

A, B, C = "vllm/a.py", "vllm/b.py", "vllm/sub/c.py"


def test_a_plan_puts_in_what_it_writes_behind_what_is_in() -> None:
    this = variant(diff_of(A, "A = 1\n", "A = 2\n"))
    change = write(A, FILES[A], b"A = 2\n")
    plans = [
        ModPlan(mod(this, name=str(verdict)), this, verdict, in_range=True, changes=(change,))
        for verdict in Verdict
    ]
    made = forward(Plan("site", "0.19.1", tuple(plans), (change,)), Receipt("0.19.1", ONE.mods, ()))
    hashes = (FileHash(A, sha(FILES[A]), sha(b"A = 2\n")),)
    entries = [
        ReceiptMod(one.mod.name, one.mod.version, one.mod.digest, this.id, one.mod.name, hashes)
        for one in plans[:2]
    ]
    assert made == Transition(
        changes=(change,),
        before=ONE.mods,
        mods=(*ONE.mods, *entries),
        vllm="0.19.1",
        sources=tuple((one.mod.name, packed_mod.pack(one.mod)) for one in plans[:2]),
    )
    assert [one.name for one in entries] == ["applies", "moved"]
    assert forward(Plan("site", None, (), ()), None) == Transition((), (), (), None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for path, data in {A: b"A = 2\n", C: FILES[C], RECORD: b""}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    return tmp_path


def applied(*files: ReceiptFile, workspace: str | None = None) -> Receipt:
    return Receipt("0.19.1", ONE.mods, files, workspace)


CHANGED = ReceiptFile(A, sha(FILES[A]), sha(b"A = 2\n"), mode=0o755, size=6)
IS_AS_IT_WAS = ReceiptFile(C, sha(FILES[C]), None)
GONE = ReceiptFile(B, sha(FILES[B]), None)
FOLLOWING = (
    ReceiptFile(RECORD, sha(b"x"), sha(b"y"), receipt.RECORD),
    ReceiptFile("vllm/new", None, None, receipt.FOLDER),
    ReceiptFile("vllm/__pycache__/a.cpython-311.pyc", sha(b"x"), None, receipt.BYTECODE),
)


def test_without_a_mod_that_stays_every_file_is_to_be_as_it_was(root: Path) -> None:
    there = applied(CHANGED, *FOLLOWING, GONE, IS_AS_IT_WAS)
    assert revert_transition(str(root), there) == Transition(
        changes=(write(A, b"A = 2\n", None), write(B, None, None), write(C, FILES[C], None)),
        before=ONE.mods,
        mods=(),
        vllm="0.19.1",
        restored=frozenset({A, B, C}),
    )


@pytest.mark.parametrize(
    ("data", "mode", "is_to_be_written"),
    [
        (b"A = 2\n", None, False),
        (b"A = 2\n", 0o755, False),
        (b"A = 2\n", 0o644, True),
        (b"A = 3\n", None, True),
        (None, None, True),
    ],
)
def test_a_file_that_a_mod_that_stays_changes_too_is_written_if_it_is_otherwise_now(
    root: Path, data: bytes | None, mode: int | None, *, is_to_be_written: bool
) -> None:
    more = write("vllm/more.py", None, b"")
    stay = Transition((write(A, FILES[A], data, mode), more), (), ONE.mods, None)
    made = revert_transition(str(root), applied(CHANGED, GONE), stay)
    again = [write(A, b"A = 2\n", data, mode)] if is_to_be_written else []
    assert made.changes == (*again, write(B, None, None), more)
    assert (made.restored, made.mods) == (frozenset({B}), ONE.mods)


def test_edits_are_named_and_are_thrown_away_only_if_asked_for(root: Path) -> None:
    (root / A).write_bytes(b"mine\n")
    (root / B).write_bytes(b"mine\n")
    there = applied(CHANGED, GONE, IS_AS_IT_WAS)
    with pytest.raises(Refused) as caught:
        revert_transition(str(root), there)
    assert caught.value.message.startswith(
        f"{root}: these files were changed after the mods were applied: {A}, {B}. Nothing was done, because these edits would be lost"
    )
    made = revert_transition(str(root), there, discard_edits=True)
    assert made.discard_edits
    assert {one.before for one in made.changes} == {b"mine\n", FILES[C]}


@pytest.mark.parametrize(("vllm", "was"), [("0.19.1", "vLLM 0.19.1 was"), (None, "vLLM was")])
def test_originals_are_of_no_use_where_their_installation_is_gone(
    root: Path, vllm: str | None, was: str
) -> None:
    (root / RECORD).unlink()
    with pytest.raises(Refused, match=f"^{RECORD} is gone: {was} upgraded or removed") as caught:
        revert_transition(str(root), applied(*FOLLOWING)._replace(vllm=vllm))
    assert caught.value.hint == f"the receipt is out of date: rm -r {root}/.vllm-mods"


def test_what_went_to_a_workspace_is_looked_at_there(root: Path, tmp_path: Path) -> None:
    template = tmp_path / "space/t.jinja"
    template.parent.mkdir()
    template.write_bytes(b"T")
    file = ReceiptFile(str(template), None, sha(b"T"))
    there = applied(file, workspace=str(template.parent))
    (change,) = revert_transition(str(root), there).changes
    assert change == write(str(template), b"T", None)
