"""Processes that die: their task is tried again, and nobody else's answer is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from matrix_making import cell
from mod_making import mod, variant

from vllm_mods.base.model import Verdict
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.spread import outcomes
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


def task(spec: str, *names: str) -> Task:
    return Task(spec, names)


def verdicts(tmp_path: Path, *tasks: Task) -> dict[tuple[str, str], Cell]:
    return {
        (one.tree, one.mod): one
        for cells in outcomes(tasks, Dying(Setting(MODS, str(tmp_path))), 2)
        for one in cells
    }


@pytest.mark.slow
def test_a_killed_process_loses_nothing_but_its_cell(tmp_path: Path) -> None:
    found = verdicts(
        tmp_path,
        task("a", "good", "once", "other"),
        task("b", "good"),
        task("c", "good", "ever", "other"),
        task("d", "good"),
    )
    bad = found.pop(("c", "ever"))
    assert (bad.verdict, bad.computed) == (Verdict.UNREADABLE, False)
    assert "was killed twice," in bad.findings[0].message
    assert len(found) == 7
    assert {answer.verdict for answer in found.values()} == {Verdict.APPLIES}


@pytest.mark.slow
def test_a_task_is_done_once_by_whoever_is_free(tmp_path: Path) -> None:
    found = verdicts(tmp_path, *(task(str(number), "good") for number in range(7)))
    assert sorted(spec for spec, _ in found) == [str(number) for number in range(7)]


class Here(Workshop):
    """Answers with the process that it is in."""

    def run(self, task: Task) -> tuple[Cell, ...]:
        return (cell(version=str(os.getpid()), tree=task.spec),)


def test_a_few_tasks_or_one_job_take_no_process(tmp_path: Path) -> None:
    setting = Setting((), str(tmp_path))
    for jobs, tasks in ((1, "abcd"), (4, "ab"), (4, "")):
        done = [*outcomes([task(one) for one in tasks], Here(setting), jobs)]
        assert [(one.tree, one.version) for (one,) in done] == [
            (one, str(os.getpid())) for one in tasks
        ]


def test_more_tasks_are_spread_over_processes(tmp_path: Path) -> None:
    setting = Setting((), str(tmp_path))
    tasks = [task(f"wheel:/nonexistent/{n}.whl", "mod") for n in range(3)]
    done = [*outcomes(tasks, Here(setting), 2)]
    assert {one.tree for (one,) in done} == {one.spec for one in tasks}
    assert str(os.getpid()) not in {one.version for (one,) in done}
