"""Answers of ``bisect``, as text and as JSON."""

from __future__ import annotations

from typing import Any

from vllm_mods.base.model import Finding, Level
from vllm_mods.matrices.bisect import BisectOutcome, Judged
from vllm_mods.report import data, text
from vllm_mods.report.text import Paint


def outcome_data(found: BisectOutcome, *, repository: str | None) -> dict[str, Any]:
    """Return the answer; ``before`` and ``after`` are null where the ends do not differ."""
    mod = found.good.planned.mod
    return {
        "schema": data.SCHEMA,
        "mod": mod.name,
        "version": mod.version,
        "repository": repository,
        "found": found.after is not None,
        "good": _point(found.good),
        "bad": _point(found.bad),
        "before": found.before and _point(found.before),
        "after": found.after and {**_point(found.after), "findings": found.findings},
        **data.fields(found, "points", "touching", "planned"),
    }


def _point(judged: Judged) -> dict[str, Any]:
    commit = judged.point.commit
    return {
        "tree": judged.spec,
        "version": judged.version,
        "commit": commit and commit.sha,
        "date": commit and commit.date,
        "subject": commit and commit.subject,
        "pull_request": commit and commit.pull_request,
        **data.judged(judged.planned),
        "findings": judged.planned.findings,
    }


def outcome_text(
    found: BisectOutcome, good: str, bad: str, *, repository: str | None, paint: Paint = str
) -> str:
    """Return what changed between the ends, where, and what it broke."""
    mod = found.good.planned.mod
    ends = [
        f"{name}: {_verdict(end, paint)}" for name, end in ((good, found.good), (bad, found.bad))
    ]
    lines = [f"{mod.name} {mod.version}", *(f"  {end}" for end in ends)]
    what = "commits" if repository else "releases"
    looked = f"{found.points:,} {what}"
    if repository:
        looked += f", {found.touching:,} of them touch a file in question"
    lines.append(f"  {looked}; {found.planned} plans")
    if found.before is None or found.after is None:
        said = _said(found.good.planned.findings)
        return "\n".join([*lines, "the verdict is the same at both ends", *said])
    commit = found.after.point.commit
    if commit is None:
        lines.append(f"it changes from {found.before.spec} to {found.after.spec}")
    else:
        lines.append(f"it changes at {commit.sha[:12]}, {commit.date[:10]}: {commit.subject}")
        if commit.pull_request is not None:
            lines.append(f"  pull request: #{commit.pull_request}")
    lines.append(f"  before: {_verdict(found.before, paint)}")
    lines += _said(found.before.planned.findings)
    lines.append(f"  after:  {_verdict(found.after, paint)}")
    lines += _said(found.findings, notes=found.after.planned.verdict.ok)
    if commit is not None and len(commit.parents) > 1:
        lines.append(
            "  it is a merge; for the commit in what it merged: "
            f"--good {commit.sha[:12]}^1 --bad {commit.sha[:12]}^2"
        )
    if found.after.planned.verdict is not found.bad.planned.verdict:
        lines.append(f"  later it changes again, to `{found.bad.planned.verdict}` at {bad}")
    return "\n".join(lines)


def _verdict(judged: Judged, paint: Paint) -> str:
    planned = judged.planned
    variant = f" (variant {planned.variant.id})" if planned.variant and planned.verdict.ok else ""
    return f"{paint(planned.verdict)}{variant}"


def _said(findings: tuple[Finding, ...], *, notes: bool = False) -> list[str]:
    wanted = [one for one in findings if notes or one.level is Level.ERROR]
    return text.findings(wanted, "    ")
