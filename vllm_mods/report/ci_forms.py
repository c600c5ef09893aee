"""Answers of ``check`` and ``lint`` in the forms that a CI shows beside the code.

Formats: GitHub's workflow commands, SARIF 2.1.0 (OASIS), and JUnit XML as ``report.junit`` has it.
None has a time in it, so that the same answer is the same text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

from vllm_mods import __version__
from vllm_mods.api.check import CheckResult
from vllm_mods.base.model import Level
from vllm_mods.library.mod_folder import MANIFEST
from vllm_mods.linting.places import Linted
from vllm_mods.report import junit
from vllm_mods.report.matrix_grid import clean
from vllm_mods.report.text import MEANING


class Remark(NamedTuple):
    """Something to be shown; ``line`` is one of the subject's file."""

    code: str
    message: str
    level: Level = Level.ERROR
    line: int | None = None


class Reported(NamedTuple):
    """What was judged, and the file in which its author would look. It is wrong if a remark is an error."""

    name: str
    path: str
    remarks: tuple[Remark, ...]

    def of(self, level: Level) -> list[Remark]:
        """Return the remarks of one level."""
        return [one for one in self.remarks if one.level is level]


def subjects(result: CheckResult | Sequence[Linted]) -> list[Reported]:
    """Return the mods of ``check``, or the files that ``lint`` looked at."""
    return _of_check(result) if isinstance(result, CheckResult) else _of_lint(result)


def _of_check(result: CheckResult) -> list[Reported]:
    """Return the mods of a plan. What was found in the tree is shown at the manifest, which the repository has."""
    fits = result.model.mods if result.model else ()
    wrong = {fit.name: fit.why for fit in fits if not fit.meant}
    judged = []
    for planned in result.plan.mods:
        remarks = []
        if not planned.verdict.ok:
            remarks.append(
                Remark(
                    planned.verdict.value, f"{planned.verdict.value}: {MEANING[planned.verdict]}"
                )
            )
        for finding in planned.findings:
            place = ":".join(str(part) for part in (finding.path, finding.line) if part is not None)
            message = f"{place}: {finding.message}" if place else finding.message
            # An error decides a verdict; where that is well, none is left to be wrong.
            level = Level.NOTE if planned.verdict.ok else finding.level
            remarks.append(Remark(finding.code, message, level))
        if planned.mod.name in wrong:
            remarks.append(Remark("model", f"it is not for this model: {wrong[planned.mod.name]}"))
        name, path = (
            f"{planned.mod.name} {planned.mod.version}",
            os.path.join(planned.mod.directory, MANIFEST),
        )
        judged.append(Reported(name, path, tuple(remarks)))
    return judged


def _of_lint(results: Iterable[Linted]) -> list[Reported]:
    return [
        Reported(
            one.path,
            one.path,
            tuple(Remark(flaw.code, flaw.message, line=flaw.line) for flaw in one.flaws),
        )
        for one in results
    ]


def _github(_command: str, subjects: Sequence[Reported]) -> str:
    """Return a workflow command per remark."""
    lines = []
    for subject in subjects:
        for remark in subject.remarks:
            properties = {
                "file": _place(subject.path),
                "line": remark.line,
                "title": f"{_title(subject)}{remark.code}",
            }
            given = ",".join(
                f"{key}={_escaped(str(value), ':,')}"
                for key, value in properties.items()
                if value is not None
            )
            kind = "error" if remark.level is Level.ERROR else "notice"
            lines.append(f"::{kind} {given}::{_escaped(remark.message)}\n")
    return "".join(lines)


def _title(subject: Reported) -> str:
    return "" if subject.name == subject.path else f"{subject.name}: "


def _escaped(text: str, more: str = "") -> str:
    """Escape what would end a workflow command, or one of its properties."""
    for sign in f"%\r\n{more}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return clean(text)


def _sarif(_command: str, subjects: Sequence[Reported]) -> str:
    """Return a SARIF log of one run."""
    codes = sorted({one.code for subject in subjects for one in subject.remarks})
    driver = {
        "name": "vllm-mods",
        "version": __version__,
        "rules": [{"id": code} for code in codes],
    }
    results = [
        {
            "ruleId": one.code,
            "ruleIndex": codes.index(one.code),
            "level": one.level.value,
            "message": {"text": clean(f"{_title(subject)}{one.message}")},
            "locations": [{"physicalLocation": _location(subject.path, one.line)}],
        }
        for subject in subjects
        for one in subject.remarks
    ]
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2) + "\n"


def _location(path: str, line: int | None) -> dict[str, Any]:
    place = _place(path)
    uri = ("file://" if os.path.isabs(place) else "") + quote(os.fsencode(place))
    where: dict[str, Any] = {"artifactLocation": {"uri": uri}}
    return where if line is None else {**where, "region": {"startLine": line}}


def _place(path: str) -> str:
    """Name a file as a CI does: from the current folder, which is the repository's, if it is below."""
    below = os.path.relpath(path)
    return os.path.abspath(path) if below.startswith("..") else below


def _junit(command: str, subjects: Sequence[Reported]) -> str:
    """Return a test case per subject: a failure if a remark is an error, else what was said."""
    root = ET.Element("testsuites", name=f"vllm-mods {command}")
    suite = ET.SubElement(root, "testsuite", name=command)
    for subject in subjects:
        case = ET.SubElement(
            suite, "testcase", classname=f"vllm-mods.{command}", name=clean(subject.name)
        )
        wrong = subject.of(Level.ERROR)
        if wrong:
            first = wrong[0]
            failure = ET.SubElement(case, "failure", type=first.code, message=clean(first.message))
            failure.text = _lines(wrong)
        if notes := subject.of(Level.NOTE):
            ET.SubElement(case, "system-out").text = _lines(notes)
    return junit.document(root)


def _lines(remarks: Iterable[Remark]) -> str:
    return "\n".join(
        clean(f"{'' if one.line is None else f'line {one.line}: '}{one.message} [{one.code}]")
        for one in remarks
    )


_FORMS = {"github": _github, "sarif": _sarif, "junit": _junit}


def render(form: str, command: str, subjects: Sequence[Reported]) -> str:
    """Return what a command judged, in a form."""
    return _FORMS[form](command, subjects)
