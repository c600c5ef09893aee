"""The answer of ``check``: a plan, and how the mods fit a checkpoint."""

from __future__ import annotations

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
