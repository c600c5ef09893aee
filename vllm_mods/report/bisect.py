"""The answer of ``bisect``."""

from typing import Any

from vllm_mods.base.model import Finding, Level
from vllm_mods.matrices.bisect import BisectOutcome, Judged
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply
from vllm_mods.report.text import Paint


def bisect(outcome: BisectOutcome, good: str, bad: str, *, repository: str, paint: Paint) -> Reply:
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
    return Reply(answer, "\n".join(_lines(outcome, good, bad, paint)), outcome.ok)


def _point(judged: Judged) -> dict[str, Any]:
    commit = judged.point.commit
    return {
        "tree": judged.spec,
        "version": judged.version,
        "commit": commit and commit.sha,
        **{one: commit and getattr(commit, one) for one in ("date", "subject", "pull_request")},
        **data.judged(judged.planned),
        "findings": judged.planned.findings,
    }


def _lines(outcome: BisectOutcome, good: str, bad: str, paint: Paint) -> list[str]:
    mod = outcome.good.planned.mod
    touching = f"{outcome.touching:,} of them touch a file that the verdict depends on"
    lines = [
        mod.title,
        f"  {good}: {text.verdict(outcome.good.planned, paint)}",
        f"  {bad}: {text.verdict(outcome.bad.planned, paint)}",
        f"  {text.counted(outcome.points, 'commit')}, {touching}; {text.counted(outcome.planned, 'check')}",
    ]
    before, after = outcome.before, outcome.after
    commit = after and after.point.commit
    if before is None or after is None or commit is None:
        reasons = _reasons(outcome.good.planned.findings)
        return [*lines, "the verdict is the same at both revisions", *reasons]
    lines.append(f"the verdict changes at {commit.sha[:12]}, {commit.date[:10]}: {commit.subject}")
    if commit.pull_request is not None:
        lines.append(f"  pull request: #{commit.pull_request}")
    lines.append(f"  before: {text.verdict(before.planned, paint)}")
    lines += _reasons(before.planned.findings)
    lines.append(f"  after:  {text.verdict(after.planned, paint)}")
    lines += _reasons(outcome.findings, notes=after.planned.verdict.ok)
    if len(commit.parents) > 1:
        lines.append(
            f"  this is a merge; to find the commit inside it: --good {commit.sha[:12]}^1 --bad {commit.sha[:12]}^2"
        )
    if after.planned.verdict is not outcome.bad.planned.verdict:
        lines.append(f"  the verdict changes again later: `{outcome.bad.planned.verdict}` at {bad}")
    return lines


def _reasons(findings: tuple[Finding, ...], *, notes: bool = False) -> list[str]:
    return text.findings([one for one in findings if notes or one.level is Level.ERROR], "    ")
