"""The answers of ``check`` and ``matrix`` as GitHub's workflow commands, which it shows beside the code."""

import os

from vllm_mods.api.plan import CheckResult
from vllm_mods.base.model import Level, Mod
from vllm_mods.library.mod_folder import MANIFEST
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import matrix_grid as view
from vllm_mods.report.text import MEANING


def workflow_commands(result: CheckResult) -> str:
    """Return a line for each remark on the mods; what was found in the tree is shown at the manifest, which the repository has."""
    lines = ""
    fits = result.model.mods if result.model else ()
    wrong = {fit.name: fit.why for fit in fits if not fit.meant}
    for planned in result.plan.mods:
        mod, verdict = planned.mod, planned.verdict
        remarks = []
        if not verdict.ok:
            remarks.append((Level.ERROR, verdict.value, f"{verdict.value}: {MEANING[verdict]}"))
        for finding in planned.findings:
            place = ":".join(str(part) for part in (finding.path, finding.line) if part is not None)
            message = f"{place}: {finding.message}" if place else finding.message
            # An error decides a verdict; where that is well, none is left to be wrong.
            level = Level.NOTE if verdict.ok else finding.level
            remarks.append((level, finding.code, message))
        if mod.name in wrong:
            remarks.append(
                (Level.ERROR, "model", f"the mod is not meant for this model: {wrong[mod.name]}")
            )
        for level, code, message in remarks:
            title = f"{mod.name} {mod.version}: {code}"
            lines += workflow_command(level, _file(mod), title, message)
    return lines


def matrix_commands(result: MatrixResult) -> str:
    """Return a line for each thing that is wrong with a mod on neighbouring releases, for each problem of its manifest or lock, and for all."""
    manifests = {mod.name: _file(mod) for mod in result.mods}
    of = view.grid(result)
    remarks = []
    for run in view.wrong(of):
        word = run.first.word
        details = "\n".join(map(str, run.first.findings))
        message = f"{word} on {run.trees}: {view.MEANINGS[word]}\n{details}".rstrip()
        remarks.append((Level.ERROR, run.mod, word, message))
    notes = {
        problem.code
        for problem in result.problems
        if problem.level is Level.NOTE or not result.strict
    }
    for grievance in view.problems(result):
        level = Level.NOTE if grievance.code in notes else Level.ERROR
        message = view.problem(of, grievance)
        remarks.append((level, grievance.mod, grievance.code, message))
    lines = [
        workflow_command(level, manifests.get(mod, MANIFEST), f"{mod}: {code}", message)
        for level, mod, code, message in remarks
    ]
    return "".join((*lines, f"::notice title=vllm-mods::{_escaped(view.summary(of))}\n"))


def _file(mod: Mod) -> str:
    """Return the file of the repository that a mod is: its manifest, or of a patch alone that."""
    if mod.directory:
        return os.path.join(mod.directory, MANIFEST)
    return mod.variants[0].patches[0].source


def workflow_command(level: Level, path: str, title: str, message: str) -> str:
    """Return a remark on a file; paths below the current folder, which is the repository's, are from there."""
    below = os.path.relpath(path)
    place = os.path.abspath(path) if below.startswith("..") else below
    kind = "error" if level is Level.ERROR else "notice"
    properties = f"file={_escaped(place, ':,')},title={_escaped(title, ':,')}"
    return f"::{kind} {properties}::{_escaped(message)}\n"


def _escaped(text: str, more: str = "") -> str:
    """Escape what would end a workflow command, or one of its properties."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return view.clean(text)
