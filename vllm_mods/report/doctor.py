"""The answer of ``doctor``."""

from __future__ import annotations

from typing import Any

from vllm_mods.base.model import Level
from vllm_mods.diagnosis.diagnosis import Diagnosis, Examined
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply


def examined(diagnosis: Diagnosis) -> Reply:
    """Return what is wrong with an installation and a tree."""
    answer = {
        "ok": diagnosis.ok,
        "tool": diagnosis.tool,
        "target": None if diagnosis.target is None else _target_data(diagnosis.target),
        "elsewhere": diagnosis.elsewhere,
        "troubles": diagnosis.troubles,
    }
    tool = diagnosis.tool
    lines = [
        f"vllm-mods {tool.version} ({tool.origin}: {tool.place})",
        f"  {tool.python} ({tool.executable})",
    ]
    if diagnosis.target is not None:
        lines += _target(diagnosis.target)
    for level, title in ((Level.ERROR, "what is wrong"), (Level.NOTE, "good to know")):
        some = [one for one in diagnosis.troubles if one.level is level]
        lines += ["", title] if some else []
        for trouble in some:
            lines.append(f"  {trouble.message} [{trouble.code}]")
            lines += [f"    hint: {trouble.hint}"] if trouble.hint else []
    if diagnosis.ok:
        target = diagnosis.target
        whole = target is None or target.listed is not None
        lines += [
            "",
            "nothing is wrong" if whole else "nothing wrong was found, as far as it can be told",
        ]
    return Reply(answer, "\n".join(lines), diagnosis.ok)


def _target(target: Examined) -> list[str]:
    lines = ["", text.tree_name(target.version, target.tree.spec)]
    if target.listed is not None:
        lines.append(f"  {len(target.listed.rows)} files, held against {target.listed.name}")
    entries = target.receipt.mods if target.receipt else ()
    lines += [f"  {one.name} {one.version} (variant {one.variant}) is in" for one in entries]
    return lines if entries else [*lines, "  no mods are in"]


def _target_data(target: Examined) -> dict[str, Any]:
    listed, receipt = target.listed, target.receipt
    return {
        "spec": target.tree.spec,
        "kind": target.kind,
        "version": target.version,
        "mods": [data.applied(entry) for entry in receipt.mods] if receipt else [],
        "listed": None if listed is None else {"by": listed.name, "files": len(listed.rows)},
    }
