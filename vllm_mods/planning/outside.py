"""What a mod changes outside of ``vllm/``: only what its manifest names, file by file. Pure."""

import re
from collections.abc import Iterable, Sequence

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, ModPlan, Verdict
from vllm_mods.planning.patching import add_notes, note, refuse

# https://docs.python.org/3/library/site.html, and what installed distributions offer others to load
_STARTS = (
    r"[^/]*\.pth|(site|user)customize([./].*)?|__editable__.*|[^/]*\.egg-link"
    r"|[^/]*\.(dist|egg)-info/entry_points\.txt"
)


def of(paths: Iterable[str], workspace: str) -> tuple[str, ...]:
    """Return the paths that are neither in ``vllm/`` nor in the chat templates' folder, sorted."""
    inside = ("vllm/", f"{workspace}/")
    return tuple(sorted({path for path in paths if not path.startswith(inside)}))


def judge(plan: ModPlan, workspace: str) -> ModPlan:
    """Name what a plan changes outside of ``vllm/``, and refuse it for what its mod does not declare."""
    paths = of((change.path for change in plan.changes), workspace)
    secret = [path for path in paths if path not in plan.mod.outside]
    if secret:
        from vllm_mods.formats.toml_writer import value  # noqa: PLC0415  (for what is refused)

        message = f"{_describe(secret)} outside vllm/, but mod.toml does not declare that; if the change is intended, add to mod.toml: outside = {value((*plan.mod.outside, *secret))}"
        finding = Finding(FindingCode.UNDECLARED, message, path=secret[0])
        return refuse(plan, Verdict.CONFLICT, finding)
    if not paths:
        return plan
    message = f"{_describe(paths)} outside vllm/, as mod.toml declares"
    return add_notes(plan, note(FindingCode.OUTSIDE, message, path=paths[0]))


def _describe(paths: Sequence[str]) -> str:
    starts = [path for path in paths if re.fullmatch(_STARTS, path)]
    run = f" (Python loads {', '.join(starts)} at every start)" if starts else ""
    return f"it changes {', '.join(paths)}{run}"
