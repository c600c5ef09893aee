"""The answers of ``check`` and ``diff``: a plan, how the mods fit a checkpoint, what would change."""

from __future__ import annotations

import os
from typing import Any

from vllm_mods.api.check import CheckResult
from vllm_mods.report import data as plans
from vllm_mods.report import text as words
from vllm_mods.report.text import Paint


def data(result: CheckResult) -> dict[str, Any]:
    """Return it for scripts."""
    answer = plans.plan(result.plan)
    if result.tree.releases is not None:
        answer["tree"]["verified"] = result.tree.verified
    if result.model is not None:
        from vllm_mods.report import checkpoint  # noqa: PLC0415  (where one is named)

        answer |= {"model": checkpoint.fit_data(result.model), "ok": result.ok}
    return answer


def text(result: CheckResult, paint: Paint, *, explain: bool) -> str:
    """Return it for a person; with ``explain``, what was not examined too."""
    lines = [words.plan(result.plan, paint, explain=explain)]
    if result.tree.verified == "parts":
        lines.append("read in parts; `--verify` downloads the wheel and checks its hash")
    if result.model is not None:
        from vllm_mods.report import checkpoint  # noqa: PLC0415  (where one is named)

        lines.append(checkpoint.fit_text(result.model))
    return "\n".join(lines)


def diff(result: CheckResult, paint: Paint) -> tuple[dict[str, Any], str]:
    """Return what mods would change, for scripts and as a diff; the plan where any of them does not fit."""
    from vllm_mods.formats import diff_writer  # noqa: PLC0415  (`check` has no use for it)

    diffs = {
        # A template may go to a folder anywhere, of any name.
        one.path: diff_writer.file_diff(
            os.path.basename(one.path) if one.path.startswith("/") else one.path,
            one.before,
            one.after,
        )
        for one in (result.plan.changes if result.ok else ())
    }
    files = [_counted(path, diff) for path, diff in diffs.items()]
    whole = b"".join(diffs.values()).decode("utf-8", "surrogateescape")
    data = {**plans.plan(result.plan), "files": files}
    return data, whole if result.ok else words.plan(result.plan, paint)


def _counted(path: str, diff: bytes) -> dict[str, Any]:
    _head, _, body = diff.partition(b"\n@@")
    lines = body.split(b"\n")
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in (b"+", b"-"))
    return {"path": path, "added": added, "removed": removed}
