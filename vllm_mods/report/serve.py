"""Answers of ``serve-check``, ``ps`` and ``evidence``."""

from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from vllm_mods.api.run import ListedContainers
from vllm_mods.api.serve_check import ServeCell, ServeChecked
from vllm_mods.base.model import Level
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply
from vllm_mods.running.evidence import OTHER, RAN, SILENT, UNTOLD, ServerEvidence
from vllm_mods.running.recording import Recorded
from vllm_mods.running.service import MODS_LABEL, MOUNTED_LABEL, PAIRING_LABEL
from vllm_mods.serving.check import ServeAnswer
from vllm_mods.serving.faults import ServeFault

_MEANING = {
    RAN: "its code ran: {}",
    OTHER: "other code ran instead: {}",
    SILENT: "the log does not mention the mod",
    UNTOLD: "a log cannot show whether its code ran; {}",
}
_SHORT = {RAN: "ran", OTHER: "other code ran", SILENT: "not in the log", UNTOLD: "no evidence"}


def checked(result: ServeChecked) -> Reply:
    """Return a line per finding, what is wrong first; over releases, which of them have it."""
    head = {"pairing": result.pairing, "command": result.argv}
    if result.over_releases:
        cells = [
            {**data.fields(one, "version", "tree"), **_answer(one.answer)} for one in result.cells
        ]
        return Reply({**head, "cells": cells}, _cells_text(result.cells), result.ok)
    (cell,) = result.cells
    wrong = [fault for fault in cell.answer.faults if fault.level is Level.ERROR]
    notes = [fault for fault in cell.answer.faults if fault.level is Level.NOTE]
    what = f"pairing {result.pairing}" if result.pairing else "vllm serve"
    verdict = text.counted(len(wrong), "problem") if wrong else "nothing is wrong"
    lines = [
        f"{what} on {text.tree_name(cell.version, cell.tree)}",
        f"  {text.counted(cell.answer.used, 'flag')}: {verdict}",
        *(f"    {_line(fault)}" for fault in wrong),
        *(f"    note: {_line(fault)}" for fault in notes),
    ]
    tree = {"spec": cell.tree, "version": cell.version or None}
    return Reply({**head, "tree": tree, **_answer(cell.answer)}, "\n".join(lines), result.ok)


def _answer(answer: ServeAnswer) -> dict[str, Any]:
    findings = [
        {**data.fields(one, "code", "level", "subject", "message"), "suggestion": one.near or None}
        for one in answer.faults
    ]
    return {"ok": answer.ok, "findings": findings}


def _cells_text(cells: Sequence[ServeCell]) -> str:
    """Return a row per tree with what is wrong there, then each finding once with its releases."""
    labels = {cell.tree: text.label(cell.tree, cell.version) for cell in cells}
    rows = [("vLLM", "problems")]
    places: dict[tuple[str, str], list[tuple[str, ServeFault]]] = {}
    for cell in cells:
        wrong = [fault for fault in cell.answer.faults if fault.level is Level.ERROR]
        subjects = ", ".join(dict.fromkeys(fault.subject for fault in wrong)) or "none"
        rows.append((labels[cell.tree], subjects))
        for fault in wrong:
            places.setdefault((fault.code, fault.subject), []).append((labels[cell.tree], fault))
    lines = text.columns(rows)
    for faults in places.values():
        first, last = faults[0][0], faults[-1][0]
        trees = first if first == last else f"{first} to {last}, {len(faults)} of {len(cells)}"
        lines += ["", f"{_line(faults[-1][1])}", f"  on {trees}"]
    return "\n".join(lines)


def _line(fault: ServeFault) -> str:
    return f"{fault.subject}: {fault.message} [{fault.code}]"


def evidence(server: ServerEvidence) -> Reply:
    """Return whether a server serves, and whether the code of mods ran since its last start."""
    lines = []
    if server.restarts:
        times = "once" if server.restarts == 1 else f"{server.restarts} times"
        lines.append(f"the server was restarted {times}; this answer is about the last start")
    if not server.ready:
        lines.append("the server did not become ready: vLLM logged no `Starting vLLM server on …`")
    for seen in server.mods:
        words = " ".join((seen.text or "its mod.toml names no evidence").split())
        shortened = words[:299] + "…" * bool(words[299:])
        lines.append(f"{seen.name}: {_MEANING[seen.state].format(shortened)}")
    return Reply({"ok": server.ok, **server._asdict()}, "\n".join(lines), server.ok)


def recorded(seen: Recorded) -> Reply:
    """Return of each mod whether its code ran, and which processes imported its files and entered its functions."""
    lines = []
    for mod in seen.mods:
        said = "its code ran" if mod.ran else "its code did not run"
        lines.append(f"{mod.title}: {said if mod.files else 'it changes no Python here'}")
        for file in mod.files:
            lines.append(f"  {file.path}: {_processes('imported', file.imported)}")
            lines += [
                f"    {each.name}: {_processes('entered', each.entered)}"
                for each in (file.functions if file.imported else ())
            ]
    lines.append("note: a function that torch.compile inlines is never recorded as entered")
    ok = any(mod.files for mod in seen.mods) and all(mod.ran for mod in seen.mods if mod.files)
    objects = [{"ran": mod.ran, **mod._asdict()} for mod in seen.mods]
    return Reply({"ok": ok, "root": seen.root, "mods": objects}, "\n".join(lines), ok)


def _processes(what: str, names: tuple[str, ...]) -> str:
    return f"{what} in {', '.join(names)}" if names else f"never {what}"


def containers(found: ListedContainers) -> Reply:
    """Return a row per container, then why those failed that did; the hint of the first of these is the next step."""
    rows = [("name", "engine", "state", "port", "pairing", "mods", "their code")]
    objects = []
    for each in found.containers:
        at, seen = each.container, each.evidence
        state = at.state if at.running else f"{at.state} ({at.exit_code})"
        state += f", {text.counted(at.restarts, 'restart')}" if at.restarts else ""
        pairing, mods = at.labels[PAIRING_LABEL], at.labels.get(MODS_LABEL, "")
        mounted = MOUNTED_LABEL in at.labels
        ran = ", ".join(_SHORT[mod.state] for mod in seen.mods) if seen else ""
        ran = "not serving yet" if seen and not seen.ready else ran or "-"
        what = (pairing, mods + " (mounted)" * mounted, ran)
        rows.append((at.name, at.program, state, ", ".join(at.ports), *what))
        objects.append(
            {
                **data.fields(at, "name", "program", "state", "exit_code", "restarts", "ports"),
                "pairing": pairing,
                "mods": mods.split(),
                "mounted": mounted,
                "evidence": seen and {"ok": seen.ok, **seen._asdict()},
                "failure": each.failure,
            }
        )
    failed = [(one.container.name, one.failure) for one in found.containers if one.failure]
    lines = [*text.columns(rows), *(f"{name}: {why.cause}" for name, why in failed)]
    unasked = f"; {' and '.join(found.silent)} did not answer" * bool(found.silent)
    if not objects:
        lines = [f"no container of `vllm-mods run` was found{unasked}"]
    for copy in found.copies:
        by = f"process {copy.pid}: {shorten(copy.command, 80)}"
        by = by if copy.command else f"what process {copy.pid} has started"
        lines.append(f"a copy with {' '.join(copy.mods)} is used by {by}")
    return Reply(
        {"containers": objects, "silent": found.silent, "copies": found.copies},
        "\n".join(lines),
        ok=bool(objects or found.copies) or not found.silent,
        next_step=failed[0][1].hint if failed else None,
    )
