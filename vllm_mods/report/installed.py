"""Answers of ``status``, ``verify``, ``revert`` and ``sync``, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from vllm_mods.api.sync import Synced
from vllm_mods.api.verify import NodeComparison, NodeReceipt
from vllm_mods.applying.outcomes import Reverted, Status, Verified
from vllm_mods.formats import receipt
from vllm_mods.report import data, text
from vllm_mods.report.disagreements import disagreements


def status_data(result: Status, target: str) -> dict[str, Any]:
    """Return which mods are in a tree."""
    return {
        "tree": {"spec": target, "version": result.version},
        **data.fields(result, "ok", "unfinished"),
        "mods": [
            {**data.applied(entry), "standing": result.standing(entry)} for entry in result.mods
        ],
        **data.fields(result, "absent", "findings", "hint"),
    }


def status_text(result: Status, target: str) -> str:
    """Return the same for a person."""
    lines = [text.tree_name(result.version, target)]
    for entry in result.mods:
        standing = text.STANDING[result.standing(entry)]
        lines.append(f"  {entry.name} {entry.version} (variant {entry.variant}){standing}")
        lines += [f"    {file.path}" for file in entry.files]
    lines += [] if result.receipt and result.receipt.mods else ["  no mods are in"]
    lines += [f"  {name}: is not in" for name in result.absent]
    return "\n".join((*lines, *text.located(result.findings)))


def verify_data(result: Verified, target: str, node: NodeReceipt | None) -> dict[str, Any]:
    """Return whether files are as they were left; with the receipt and the packages of a ``node``."""
    answer = {
        "tree": {"spec": target, "version": result.version},
        "ok": result.ok,
        "mods": list(map(data.applied, result.mods)),
        "findings": result.findings,
    }
    if node is not None:
        raw = None if node.receipt is None else json.loads(receipt.dump(node.receipt))
        answer |= {"receipt": raw, "packages": node.packages}
    return answer


def verify_text(result: Verified, target: str) -> str:
    """Return the same for a person."""
    lines = [text.tree_name(result.version, target), *text.located(result.findings)]
    if result.ok:
        count = len(result.mods)
        whole = f"  {count} mod{'s' * (count != 1)}, every file as it was left"
        lines.append(whole if count else "  no mods are in")
    return "\n".join(lines)


def compared_data(result: NodeComparison) -> dict[str, Any]:
    """Return in what nodes differ."""
    return {**data.fields(result, "ok", "differences"), "receipts": result.names}


def compared_text(result: NodeComparison) -> str:
    """Return the same for a person."""
    lines = disagreements(result.differences, result.names)
    return "\n".join(lines) or f"{len(result.names)} receipts, all the same"


def revert_data(done: Reverted, target: str) -> dict[str, Any]:
    """Return what was taken out of a tree."""
    return {
        "tree": {"spec": target, "version": done.version},
        "reverted": done.reverted,
        "mods": list(map(data.applied, done.mods)),
        "changed": done.changed,
    }


def revert_text(done: Reverted, target: str) -> str:
    """Return the same for a person."""
    lines = [text.tree_name(done.version, target), *(f"  {name} is out" for name in done.reverted)]
    return "\n".join((*lines, text.done(done.changed)))


def sync_data(result: Synced, *, check: bool) -> dict[str, Any]:
    """Return what was done to a target, or with ``check`` would be."""
    done = result.done
    moved = {name: getattr(done, name) for name in ("out", "into", "renewed")}
    return {
        **data.plan(done.plan),
        "ok": done.settled or not check,
        "project": result.project,
        "target": result.target.name,
        "settled": done.settled,
        **{name: list(map(data.applied, mods)) for name, mods in moved.items()},
        "changed": done.changed,
        "check": check,
    }


def sync_text(result: Synced, *, check: bool) -> str:
    """Return the same for a person."""
    done = result.done
    lines = [text.tree_name(done.plan.version, done.target)]
    groups = {
        "goes out" if check else "is out": done.out,
        "goes in" if check else "is in": done.into,
        "is another version" if check else "is renewed": done.renewed,
    }
    lines += [f"  {mod.name} {mod.version} {what}" for what, mods in groups.items() for mod in mods]
    if done.settled:
        names = ", ".join(f"{one.mod.name} {one.mod.version}" for one in done.plan.mods)
        lines.append(f"it holds exactly what it should: {names or 'no mods'}")
    else:
        if not any((done.changed, *groups.values())):
            lines.append("  the receipt has its mods in another order")
        lines.append(text.done(done.changed, dry_run=check) if done.changed else "no file changes")
    return "\n".join((*lines, *text.serve_arguments(done.plan, done.templates)))
