"""What a doctor found, as text and as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_mods.model import Level, Verdict
from vllm_mods.report import data, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm_mods.doctor.checks import Trouble
    from vllm_mods.doctor.facts import Facts, Fit, Folder, Target, Tool
    from vllm_mods.report.text import Paint


def render(facts: Facts, troubles: Sequence[Trouble], paint: Paint = str) -> str:
    """Return the whole answer for a person."""
    lines = _tool(facts.tool)
    if facts.target is not None:
        lines += ["", *_target(facts.target, paint)]
    for level, title in ((Level.ERROR, "what is wrong"), (Level.NOTE, "good to know")):
        found = [one for one in troubles if one.level is level]
        if found:
            lines += ["", title]
        for one in found:
            lines.append(f"  {one.message} [{one.code}]")
            lines += [f"    hint: {one.hint}"] if one.hint else []
    if not any(one.level is Level.ERROR for one in troubles):
        lines += ["", "nothing is wrong"]
    return "\n".join(lines)


def as_data(facts: Facts, troubles: Sequence[Trouble]) -> dict[str, Any]:
    """Return the whole answer for a script."""
    return {
        "schema": data.SCHEMA,
        "ok": not any(one.level is Level.ERROR for one in troubles),
        "tool": {
            **facts.tool._asdict(),
            "packages": [one._asdict() for one in facts.tool.packages],
        },
        "target": None if facts.target is None else _target_data(facts.target),
        "elsewhere": list(facts.elsewhere),
        "troubles": [one._asdict() for one in troubles],
    }


def _tool(tool: Tool) -> list[str]:
    packages = ", ".join(f"{one.name} {one.version or 'missing'}" for one in tool.packages)
    return [
        f"vllm-mods {tool.version} ({tool.origin}: {tool.place})",
        f"  {tool.python} ({tool.executable})",
        f"  {packages}",
        f"  git {tool.git or 'is not there'}; cache {tool.cache}",
    ]


def _target(target: Target, paint: Paint) -> list[str]:
    lines = [text.tree_name(target.version, target.spec)]
    folder = target.folder
    if folder is not None:
        lines += _folder(target, folder)
    like = _like(target)
    if like:
        lines.append(f"  what mods change is as in {like}")
    entries = target.receipt.mods if target.receipt else ()
    for entry in entries:
        lines.append(f"  {entry.name} {entry.version} (variant {entry.variant}) is in")
    if not entries:
        lines.append("  no mods are in")
    elif not any(one.level is Level.ERROR for one in target.findings):
        lines.append("  every file as they left it")
    width = max((len(one.mod) for one in target.fits), default=0)
    lines += ["", "mods"] if target.fits else []
    for one in target.fits:
        lines.append(f"  {one.mod.ljust(width)}  {_fit(one, paint)}")
    return lines


def _folder(target: Target, folder: Folder) -> list[str]:
    lines = [
        f"  {target.kind} in {folder.root}; its version is known from {folder.version_from}",
        f"  {folder.disk.kind}, {folder.disk.free / 1e9:.1f} GB free",
    ]
    recorded = folder.recorded
    if recorded is None:
        lines.append("  no one distribution lists its files: an edit cannot be told")
    elif not recorded.differs and not recorded.gone:
        lines.append(f"  {recorded.checked} files, all as {recorded.folder} lists them")
    else:
        wrong = len(recorded.differs) + len(recorded.gone)
        lines.append(
            f"  {recorded.checked} files, {wrong} of them not as {recorded.folder} lists them"
        )
    return [
        *lines,
        *(f"  process {one.pid} ({one.name}) runs it" for one in folder.processes),
    ]


def _like(target: Target) -> str:
    """Name the releases that have all files that mods change as the tree has them."""
    sets = [one.releases for one in target.known]
    if not sets:
        return ""
    common = [label for label in sets[0] if all(label in other for other in sets)]
    return ", ".join(common)


def _fit(one: Fit, paint: Paint) -> str:
    if one.planned is None:
        return f"cannot be planned: {one.refusal.message if one.refusal else ''}"
    verdict = one.planned.verdict
    variant = one.planned.variant
    named = f" (variant {variant.id})" if variant is not None and verdict.ok else ""
    said = text.MEANING[verdict]
    if verdict is Verdict.APPLIES and not one.planned.hunks:
        said = "every file it brings is new"
    return f"{paint(verdict)}: {said}{named}"


def _target_data(target: Target) -> dict[str, Any]:
    folder = target.folder
    receipt = target.receipt
    return {
        "spec": target.spec,
        "kind": target.kind,
        "version": target.version,
        "mods": [data.applied(entry) for entry in receipt.mods] if receipt else [],
        "findings": [data.finding(one) for one in target.findings],
        "known": [one._asdict() for one in target.known],
        "fits": [
            {
                "name": one.mod,
                "verdict": one.planned.verdict.value if one.planned else None,
                "variant": one.planned.variant.id if one.planned and one.planned.variant else None,
                "refusal": one.refusal._asdict() if one.refusal else None,
                "findings": [data.finding(found) for found in one.planned.findings]
                if one.planned
                else [],
            }
            for one in target.fits
        ],
        "folder": None
        if folder is None
        else {
            **folder._asdict(),
            "distributions": [one._asdict() for one in folder.distributions],
            "recorded": folder.recorded._asdict() if folder.recorded else None,
            "disk": folder.disk._asdict(),
            "processes": [one._asdict() for one in folder.processes],
            "others": [one._asdict() for one in folder.others],
        },
    }
