"""Answers of ``status``, ``verify``, ``revert`` and ``sync``."""

import json
import shlex
from collections.abc import Mapping

from vllm_mods.api.sync import Synced
from vllm_mods.applying.outcomes import Reverted, Status, Verified
from vllm_mods.formats import receipt
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply, notes


def status(result: Status, target: str) -> Reply:
    """Return which mods are in a tree."""
    lines = [text.tree_name(result.version, target)]
    for entry in result.mods:
        standing = text.STANDING[result.standing(entry)]
        lines.append(f"  {entry.name} {entry.version} (variant {entry.variant}){standing}")
        lines += [f"    {file.path}" for file in entry.files]
    lines += [] if result.receipt and result.receipt.mods else ["  no mods are applied"]
    lines += [f"  {name}: is not applied" for name in result.absent]
    lines += [f"  {one.note.message}" for one in result.plugins]
    answer = {
        "tree": {"spec": target, "version": result.version},
        **data.fields(result, "ok", "unfinished"),
        "mods": [{**data.applied(one), "standing": result.standing(one)} for one in result.mods],
        **data.fields(result, "absent", "findings", "hint"),
        "plugins": [one._asdict() for one in result.plugins],
    }
    words = "\n".join((*lines, *text.located(result.findings)))
    return Reply(answer, words, result.ok, result.hint)


def verify(
    result: Verified, target: str, node: tuple[receipt.Receipt | None, Mapping[str, str]] | None
) -> Reply:
    """Return whether files are as they were left; with the receipt and the packages of a ``node``."""
    lines = [text.tree_name(result.version, target), *text.located(result.findings)]
    if result.ok:
        whole = f"  {text.counted(len(result.mods), 'mod')}, all files unchanged"
        lines.append(whole if result.mods else "  no mods are applied")
    answer = {
        "tree": {"spec": target, "version": result.version},
        "ok": result.ok,
        "mods": list(map(data.applied, result.mods)),
        "findings": result.findings,
    }
    if node is not None:
        written, packages = node
        raw = None if written is None else json.loads(receipt.dump(written))
        answer |= {"receipt": raw, "packages": packages}
    return Reply(answer, "\n".join(lines), result.ok, result.hint)


def revert(done: Reverted, target: str) -> Reply:
    """Return what was taken out of a tree."""
    lines = [text.tree_name(done.version, target)]
    lines += [f"  {name} was reverted" for name in done.reverted]
    answer = {
        "tree": {"spec": target, "version": done.version},
        "reverted": done.reverted,
        "mods": list(map(data.applied, done.mods)),
        "changed": done.changed,
    }
    return Reply(answer, "\n".join((*lines, text.done(done.changed))), stderr=notes(done.notes))


def sync(result: Synced, *, check: bool, again: tuple[str, ...]) -> Reply:
    """Return what was done to a target, or with ``check`` would be; ``again`` are the arguments that have it done."""
    done = result.done
    lines = [text.tree_name(done.plan.version, done.target)]
    moved = {"out": done.out, "into": done.into, "renewed": done.renewed}
    for name, did in (("out", "reverted"), ("into", "applied"), ("renewed", "updated")):
        what = f"to be {did}" if check else did
        lines += [f"  {mod.name} {mod.version} {what}" for mod in moved[name]]
    if done.settled:
        names = ", ".join(one.mod.title for one in done.plan.mods)
        lines.append(f"exactly the wanted mods are applied: {names or 'none'}")
    else:
        if not any((done.changed, *moved.values())):
            lines.append("  the receipt lists the mods in a different order")
        lines.append(text.done(done.changed, dry_run=check) if done.changed else "no file changes")
    ok = done.settled or not check
    answer = {
        **data.plan(done.plan),
        "ok": ok,
        "project": result.project,
        "target": result.target.name,
        "settled": done.settled,
        **{name: list(map(data.applied, mods)) for name, mods in moved.items()},
        "changed": done.changed,
        "check": check,
    }
    words = "\n".join((*lines, *text.serve_arguments(done.plan, done.templates)))
    next_step = None if ok else shlex.join(("vllm-mods", "sync", *again))
    return Reply(answer, words, ok, next_step, notes(done.notes))
