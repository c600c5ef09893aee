"""Processes that die: their task is tried again, and nobody else's answer is lost."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from matrix_making import cell
from memory_tree import MemoryTree
from mod_making import mod, variant

from vllm_mods.base.model import Mod, Verdict
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.run import compute
from vllm_mods.matrices.work import Setting, Task, Workshop

MODS = tuple(mod(variant(), name=name) for name in ("good", "once", "ever", "other"))


class Dying(Workshop):
    """Answers at once, but for subjects called ``once`` (kills it the first time) and ``ever``."""

    def run(self, task: Task) -> tuple[Cell, ...]:
        folder = Path(self.setting.cache_dir)
        for name in task.mods:
            tried = folder / f"{task.spec}-{name}"
            if name == "ever" or (name == "once" and not tried.exists()):
                tried.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return tuple(cell(name, tree=task.spec) for name in task.mods)


def cells(tmp_path: Path, mods: tuple[Mod, ...], specs: str) -> dict[tuple[str, str], Cell]:
    done = compute(Dying(Setting(mods, str(tmp_path))), specs, 2)
    return {(one.tree, one.mod): one for one in done}


@pytest.mark.slow
def test_a_killed_process_loses_nothing_but_its_cell(tmp_path: Path) -> None:
    found = cells(tmp_path, MODS, "abc")
    for spec in "abc":
        bad = found.pop((spec, "ever"))
        assert (bad.verdict, bad.computed) == (Verdict.UNREADABLE, False)
        assert "was killed twice," in bad.findings[0].message
    assert len(found) == 9
    assert {one.verdict for one in found.values()} == {Verdict.APPLIES}


@pytest.mark.slow
def test_a_task_is_done_once_by_whoever_is_free(tmp_path: Path) -> None:
    assert [spec for spec, _ in cells(tmp_path, MODS[:1], "1234567")] == [*"1234567"]


class LaysOut(Workshop):
    """Has a folder for the type checker, and dies of a signal if it is told to."""

    def run(self, task: Task) -> tuple[Cell, ...]:
        self._fit.laid_out.show(MemoryTree({"vllm/a.py": b""}))
        assert [*Path(self.setting.cache_dir).glob("vllm-mods-*")]
        if task.spec.isupper() and not task.again:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
        return tuple(cell(name, tree=task.spec) for name in task.mods)


@pytest.mark.slow
@pytest.mark.parametrize("specs", ["ab", "aB"])
def test_no_process_leaves_a_folder_behind(
    tmp_path: Path, specs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    setting = Setting(MODS[:1], str(tmp_path))
    assert {one.tree for one in compute(LaysOut(setting), [*specs, "c", "d"], 2)} >= {*specs}
    assert [*tmp_path.glob("vllm-mods-*")] == []


class Here(Workshop):
    """Answers with the process that it is in."""

    def run(self, task: Task) -> tuple[Cell, ...]:
        return (cell(MODS[0].name, str(os.getpid()), tree=task.spec),)


@pytest.mark.parametrize(("jobs", "specs"), [(1, "abcd"), (4, "ab"), (4, "")])
def test_a_few_tasks_or_one_job_take_no_process(tmp_path: Path, jobs: int, specs: str) -> None:
    done = compute(Here(Setting(MODS[:1], str(tmp_path))), specs, jobs)
    assert [(one.tree, one.version) for one in done] == [(one, str(os.getpid())) for one in specs]


def test_more_tasks_are_spread_over_processes(tmp_path: Path) -> None:
    done = compute(Here(Setting(MODS[:1], str(tmp_path))), "abc", 2)
    assert [one.tree for one in done] == [*"abc"]
    assert str(os.getpid()) not in {one.version for one in done}
