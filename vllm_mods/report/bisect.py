"""The answer of ``bisect``."""

from __future__ import annotations

from typing import Any

from vllm_mods.base.model import Finding, Level
from vllm_mods.matrices.bisect import BisectOutcome, Judged
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply
from vllm_mods.report.text import Paint


def bisect(
    outcome: BisectOutcome, good: str, bad: str, *, repository: str | None, paint: Paint
) -> Reply:
    """Return what changed between two ends; ``before`` and ``after`` are null where they do not differ."""
    mod = outcome.good.planned.mod
    answer = {
        "mod": mod.name,
        "version": mod.version,
        "repository": repository,
        "found": outcome.ok,
        "good": _point(outcome.good),
        "bad": _point(outcome.bad),
        "before": outcome.before and _point(outcome.before),
        "after": outcome.after and {**_point(outcome.after), "findings": outcome.findings},
        **data.fields(outcome, "points", "touching", "planned"),
    }
    lines = _lines(outcome, good, bad, repository=repository, paint=paint)
    return Reply(answer, "\n".join(lines), outcome.ok)


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


def _lines(
    outcome: BisectOutcome, good: str, bad: str, *, repository: str | None, paint: Paint
) -> list[str]:
    """Return what changed between the ends, where, and what it broke."""
    mod = outcome.good.planned.mod
    ends = [
        f"{name}: {_verdict(end, paint)}"
        for name, end in ((good, outcome.good), (bad, outcome.bad))
    ]
    lines = [f"{mod.name} {mod.version}", *(f"  {end}" for end in ends)]
    what = "commits" if repository else "releases"
    looked = f"{outcome.points:,} {what}"
    if repository:
        looked += f", {outcome.touching:,} of them touch a file in question"
    lines.append(f"  {looked}; {outcome.planned} plans")
    if outcome.before is None or outcome.after is None:
        reasons = _reasons(outcome.good.planned.findings)
        return [*lines, "the verdict is the same at both ends", *reasons]
    commit = outcome.after.point.commit
    if commit is None:
        lines.append(f"it changes from {outcome.before.spec} to {outcome.after.spec}")
    else:
        lines.append(f"it changes at {commit.sha[:12]}, {commit.date[:10]}: {commit.subject}")
        if commit.pull_request is not None:
            lines.append(f"  pull request: #{commit.pull_request}")
    lines.append(f"  before: {_verdict(outcome.before, paint)}")
    lines += _reasons(outcome.before.planned.findings)
    lines.append(f"  after:  {_verdict(outcome.after, paint)}")
    lines += _reasons(outcome.findings, notes=outcome.after.planned.verdict.ok)
    if commit is not None and len(commit.parents) > 1:
        lines.append(
            "  it is a merge; for the commit in what it merged: "
            f"--good {commit.sha[:12]}^1 --bad {commit.sha[:12]}^2"
        )
    if outcome.after.planned.verdict is not outcome.bad.planned.verdict:
        lines.append(f"  later it changes again, to `{outcome.bad.planned.verdict}` at {bad}")
    return lines


def _verdict(judged: Judged, paint: Paint) -> str:
    planned = judged.planned
    variant = f" (variant {planned.variant.id})" if planned.variant and planned.verdict.ok else ""
    return f"{paint(planned.verdict)}{variant}"


def _reasons(findings: tuple[Finding, ...], *, notes: bool = False) -> list[str]:
    wanted = [one for one in findings if notes or one.level is Level.ERROR]
    return text.findings(wanted, "    ")
