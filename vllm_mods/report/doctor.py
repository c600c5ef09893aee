"""The answer of ``doctor``."""

from vllm_mods.base.model import Level
from vllm_mods.diagnosis.diagnosis import Diagnosis, Examined
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply


def examined(diagnosis: Diagnosis) -> Reply:
    """Return what is wrong with an installation and a tree."""
    tool, target = diagnosis.tool, diagnosis.target
    listed = target and target.listed
    answer = {
        **data.fields(diagnosis, "ok", "tool"),
        "target": target
        and {
            "spec": target.tree.spec,
            **data.fields(target, "kind", "version"),
            "mods": [data.applied(one) for one in target.receipt.mods] if target.receipt else [],
            "listed": listed and {"by": listed.name, "files": len(listed.rows)},
        },
        **data.fields(diagnosis, "elsewhere", "troubles"),
    }
    lines = [f"vllm-mods {tool.version} ({tool.origin}: {tool.place})"]
    lines += [f"  {tool.python} ({tool.executable})"]
    if target is not None:
        lines += _target(target)
    for level, title in ((Level.ERROR, "what is wrong"), (Level.NOTE, "good to know")):
        some = [one for one in diagnosis.troubles if one.level is level]
        lines += ["", title] if some else []
        for trouble in some:
            lines.append(f"  {trouble.message} [{trouble.code}]")
            lines += [f"    hint: {trouble.hint}"] if trouble.hint else []
    if diagnosis.ok:
        whole = target is None or listed is not None
        unsure = "nothing wrong was found by the checks that could run"
        lines += ["", "nothing is wrong" if whole else unsure]
    return Reply(answer, "\n".join(lines), diagnosis.ok)


def _target(target: Examined) -> list[str]:
    lines = ["", text.tree_name(target.version, target.tree.spec)]
    if target.listed is not None:
        lines.append(f"  {len(target.listed.rows)} files, compared with {target.listed.name}")
    mods = target.receipt.mods if target.receipt else ()
    return lines + text.applied(mods, lambda _: " is applied")
