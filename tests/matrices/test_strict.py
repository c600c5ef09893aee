"""`matrix --strict` has a second reader look at every file that a mod changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory_tree import MemoryTree
from mod_making import diff_of, mod, variant

from vllm_mods.base.model import Verdict
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.work import Setting, Task, Workshop, second_reading
from vllm_mods.placing import scopes
from vllm_mods.planning.planner import plan

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OLD = "class C:\n    def f(self):\n        return 1\n"
ONE = mod(variant(diff_of("vllm/a.py", OLD, OLD.replace("return 1", "return 2"))))


def answer(tmp_path: Path, *, strict: bool) -> Cell:
    setting = Setting((ONE,), str(tmp_path / "cache"), offline=True, store=False, strict=strict)
    task = Task(str(tmp_path), (ONE.name,))
    (cell,) = Workshop(setting).run(task)
    return cell


def test_readers_that_differ_make_a_cell_unreadable_where_strict_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/__init__.py").write_text("")
    (tmp_path / "vllm/a.py").write_text(OLD)
    assert answer(tmp_path, strict=True).verdict is Verdict.APPLIES
    monkeypatch.setattr(scopes, "read_strictly", lambda _data: scopes.Scopes(()))
    assert answer(tmp_path, strict=False).verdict is Verdict.APPLIES
    said = answer(tmp_path, strict=True)
    assert said.verdict is Verdict.UNREADABLE
    words = "vllm/a.py: two Python parsers find different classes and functions in the file that"
    assert [(found.code, found.path, found.message) for found in said.findings[:2]] == [
        ("scopes-differ", "vllm/a.py", f"{words} the tree has"),
        ("scopes-differ", "vllm/a.py", f"{words} the mod produces"),
    ]
    assert (said.locked, said.offsets) == (None, ())


def test_the_second_reader_need_not_know_what_a_name_is_bound_to_in_the_end() -> None:
    twice = OLD + "\n\n" + OLD
    assert not scopes.read_scopes(twice.encode()).scopes[0].live
    other = mod(variant(diff_of("vllm/a.py", OLD, OLD.replace("1", "2"))))
    (planned,) = plan([other], MemoryTree({"vllm/a.py": OLD.encode()})).mods
    planned = planned._replace(
        changes=tuple(one._replace(after=twice.encode()) for one in planned.changes)
    )
    assert planned.changes
    assert second_reading(planned) is planned
