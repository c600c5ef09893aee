"""What ``check`` and ``matrix`` have to remark on files of a repository, and GitHub's workflow commands for it."""

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.api.plan import CheckResult
from vllm_mods.base.model import Level, Mod
from vllm_mods.library.mod_folder import MANIFEST
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import matrix_grid as view
from vllm_mods.report.text import MEANING


class Remark(NamedTuple):
    """A remark about a mod on a file of the repository, at its 1-based ``line`` or as a whole."""

    level: Level
    path: str
    mod: str
    code: str
    message: str
    line: int | None = None

    @property
    def place(self) -> str:
        """The path as it is from the current folder, which is the repository's; absolute if it is not below that."""
        below = os.path.relpath(self.path)
        return os.path.abspath(self.path) if below.startswith("..") else below


def of_check(result: CheckResult) -> Iterator[Remark]:
    """Yield the remarks on mods at their manifests: what was found in the tree is in no file of the repository."""
    fits = result.model.mods if result.model else ()
    wrong = {fit.name: fit for fit in fits if not fit.meant}
    for planned in result.plan.mods:
        verdict, file, mod = planned.verdict, _file(planned.mod), planned.mod.title
        if not verdict.ok:
            message = f"{verdict.value}: {MEANING[verdict]}"
            yield Remark(Level.ERROR, file, mod, verdict.value, message)
        for finding in planned.findings:
            place = ":".join(str(part) for part in (finding.path, finding.line) if part is not None)
            says_it = finding.message.startswith(finding.path or "")
            message = finding.message if says_it else f"{place}: {finding.message}"
            # An error decides a verdict; where that is well, none is left to be wrong.
            level = Level.NOTE if verdict.ok else finding.level
            yield Remark(level, file, mod, finding.code, message)
        if fit := wrong.get(planned.mod.name):
            message = f"the mod {fit.verb} for this model: {fit.why}"
            yield Remark(Level.ERROR, file, mod, "model", message)


def of_matrix(result: MatrixResult) -> Iterator[Remark]:
    """Yield what is wrong with each mod on neighbouring releases, and the problems of its manifest or lock."""
    manifests = {mod.name: _file(mod) for mod in result.mods}
    of = view.grid(result)
    for run in view.wrong(of):
        mod, word = run.mod, run.first.word
        details = "\n".join(map(str, run.first.findings))
        message = f"{word} on {run.trees}: {view.MEANINGS[word]}\n{details}".rstrip()
        yield Remark(Level.ERROR, manifests.get(mod, MANIFEST), mod, word, message)
    notes = {one.code for one in result.problems if one.level is Level.NOTE or not result.strict}
    for grievance in view.problems(result):
        level = Level.NOTE if grievance.code in notes else Level.ERROR
        path, message = manifests.get(grievance.mod, MANIFEST), view.problem(of, grievance)
        yield Remark(level, path, grievance.mod, grievance.code, message)


def _file(mod: Mod) -> str:
    """Return the file of the repository that a mod is: its manifest, or of a patch alone that."""
    if mod.directory:
        return os.path.join(mod.directory, MANIFEST)
    return mod.variants[0].patches[0].source


def workflow_commands(remarks: Iterable[Remark], summary: str = "") -> str:
    """Return a workflow command for each remark, which GitHub shows beside the code, and one for the summary."""
    lines = ""
    for one in remarks:
        kind = "error" if one.level is Level.ERROR else "notice"
        line = f",line={one.line}" if one.line else ""
        title = _escaped(f"{one.mod}: {one.code}", ":,")
        place = _escaped(one.place, ":,")
        lines += f"::{kind} file={place}{line},title={title}::{_escaped(one.message)}\n"
    return lines + f"::notice title=vllm-mods::{_escaped(summary)}\n" * bool(summary)


def _escaped(text: str, more: str = "") -> str:
    """Escape what would end a workflow command, or one of its properties."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return view.clean(text)
