"""A whole matrix: what is known is taken as it is, the rest is spread over workers."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.matrices.answer import Answer, cell_of
from vllm_mods.matrices.cell import Cell, HunkView
from vllm_mods.matrices.spread import outcomes
from vllm_mods.matrices.work import Setting, Subject, Task, Workshop, is_meant
from vllm_mods.trees.index import release_file

Progress = Callable[[int, int], None]


class Computed(NamedTuple):
    """A tree and the answers of all mods on it; ``version`` is vLLM's, if the tree says one."""

    spec: str
    version: str | None
    answers: dict[str, Answer]


class Matrix(NamedTuple):
    """One run. ``named`` are trees that the user typed: one that is none at all is a wrong call.

    ``jobs`` processes share what is not known. ``progress`` is told how many of how many subjects are answered.
    """

    workshop: Workshop
    setting: Setting
    jobs: int
    named: frozenset[str] = frozenset()
    progress: Progress | None = None

    def compute(self, specs: Sequence[str]) -> tuple[Computed, ...]:
        """Answer for every mod alone on every tree, in the order of ``specs``.

        Raises ``UsageError`` for a bad patch, and for a named tree that is none.
        """
        subjects = tuple(Subject(mod.name) for mod in self.setting.mods)
        answers = self._answers([(spec, subjects) for spec in specs])
        return tuple(
            Computed(
                spec=spec,
                version=next((v for one in subjects if (v := answers[spec, one][0])), None),
                answers={one.mod: answers[spec, one][1] for one in subjects},
            )
            for spec in specs
        )

    def explain(self, cells: Iterable[Cell]) -> dict[tuple[str, str], tuple[HunkView, ...]]:
        """Return the hunks of cells beside the source, by mod and tree."""
        wanted: dict[str, list[Subject]] = {}
        for cell in cells:
            wanted.setdefault(cell.tree, []).append(Subject(cell.mod, show=True))
        answers = self._answers([(spec, tuple(subjects)) for spec, subjects in wanted.items()])
        return {
            (subject.mod, spec): answer.hunks for (spec, subject), (_, answer) in answers.items()
        }

    def _answers(
        self, wanted: Sequence[tuple[str, tuple[Subject, ...]]]
    ) -> dict[tuple[str, Subject], tuple[str | None, Answer]]:
        answers: dict[tuple[str, Subject], tuple[str | None, Answer]] = {}
        tasks = []
        for spec, subjects in wanted:
            known = self.workshop.known(spec, subjects)
            answers.update(((spec, subject), answer) for subject, answer in known.items())
            unknown = tuple(one for one in subjects if (spec, one) not in answers)
            if unknown:
                tasks.append(Task(spec, unknown))
        total = sum(len(subjects) for _, subjects in wanted)
        if self.progress is not None and tasks:
            self.progress(len(answers), total)
        for outcome in outcomes(tasks, self.setting, self.jobs, self.workshop):
            fault = outcome.fault
            if fault is not None and (fault.of == "mod" or outcome.task.spec in self.named):
                raise UsageError(fault.message, hint=fault.hint)
            for subject, answer in zip(outcome.task.subjects, outcome.answers, strict=True):
                answers[outcome.task.spec, subject] = (outcome.version, answer)
            if self.progress is not None:
                self.progress(len(answers), total)
        return answers


def cells(mods: Sequence[Mod], computed: Iterable[Computed]) -> tuple[Cell, ...]:
    """Return the cells of what was computed, tree by tree."""
    return tuple(
        cell_of(
            mod,
            one.answers[mod.name],
            version=version,
            tree=one.spec,
            # If the tree is unreadable and its version unknown, keep the cell: reporting too much is safer.
            meant=is_meant(mod, version) or (one.version is None and version == "unknown"),
        )
        for one in computed
        for version in (one.version or named_version(one.spec),)
        for mod in mods
    )


def named_version(spec: str) -> str:
    """Return the version that the name of a release or of its file has in it, else ``unknown``."""
    kind, _, name = spec.partition(":")
    if kind not in {"pypi", "wheel", "sdist"}:
        return "unknown"
    file = release_file(os.path.basename(name), "")
    return file.version if file is not None else (name if kind == "pypi" else "unknown")
