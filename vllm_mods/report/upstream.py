"""The answer of ``upstream``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from vllm_mods.api.upstream import Carried
from vllm_mods.base.model import Verdict
from vllm_mods.matrices import upstream
from vllm_mods.matrices.upstream import UpstreamRow
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply
from vllm_mods.report.text import Paint

_STATES = ("placed", "carried", "absent")


def carried(result: Carried, paint: Paint = str) -> Reply:
    """Return a row per tree, which trees carry a hunk, and ``can_go``: the tree from which on all carry the mod whole, or null."""
    rows = result.rows
    mod = rows[0].planned.mod
    gone = upstream.can_go(rows)
    answer = {
        "mod": mod.name,
        "version": mod.version,
        "needed": result.needed,
        "can_go": gone and data.fields(gone, "version", "tree"),
        "trees": [
            {
                **data.fields(row, "version", "tree"),
                **data.judged(row.planned),
                "meant": row.meant,
                "hunks": [
                    {"patch": one.patch, "path": one.path, "hunk": one.number, "state": one.state}
                    for one in row.hunks
                ],
                "findings": row.planned.findings,
            }
            for row in rows
        ],
    }
    return Reply(answer, "\n".join(_lines(rows, paint)), result.needed)


def _lines(rows: Sequence[UpstreamRow], paint: Paint) -> list[str]:
    mod = rows[0].planned.mod
    labels = {row.tree: text.label(row.tree, row.version) for row in rows}
    width = max((len(label) for label in labels.values()), default=0)
    lines = [f"{mod.name} {mod.version}"]
    carriers: dict[str, list[str]] = {}
    for row in rows:
        counts = Counter(one.state for one in row.hunks)
        counted = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
        if row.in_pieces:
            counted += ", and not the whole"
        verdict = row.planned.verdict
        plain = verdict.value if row.meant else f"({verdict.value})"
        shown = plain.replace(verdict.value, paint(verdict)) + " " * (14 - len(plain))
        lines.append(f"  {labels[row.tree].ljust(width)}  {shown}  {counted or '-'}")
        if verdict is Verdict.UNREADABLE:
            lines += text.findings(row.planned.findings, "    ")
        for hunk_row in row.hunks:
            if hunk_row.state == "carried" and verdict is not Verdict.APPLIED:
                carriers.setdefault(f"{hunk_row.label} of {hunk_row.patch}", []).append(
                    labels[row.tree]
                )
    every = list(labels.values())
    lines += [
        f"{hunk} is carried by {text.spans(trees, every)}" for hunk, trees in carriers.items()
    ]
    return [*lines, _conclusion(rows, labels)]


def _conclusion(rows: Sequence[UpstreamRow], labels: dict[str, str]) -> str:
    name, every = rows[0].planned.mod.name, list(labels.values())
    gone = upstream.can_go(rows)
    if gone is not None:
        return f"{name} can go from {labels[gone.tree]} on"
    whole = [labels[row.tree] for row in rows if row.carried]
    pieces = [labels[row.tree] for row in rows if row.in_pieces]
    if pieces:
        read = "and not the whole as it was written: whether it can go is for a person to read"
        if not whole:
            return f"{text.spans(pieces, every)} has each hunk of {name}, {read}"
        carried = f"{name} is carried whole by {text.spans(whole, every)}"
        return f"{carried}; {text.spans(pieces, every)} has each of its hunks, {read}"
    if whole:
        return (
            f"{name} is carried whole by {text.spans(whole, every)}, and not as it stands by what came "
            "later: whether it is in other words is for a person to read"
        )
    inside = [labels[row.tree] for row in rows if row.planned.verdict is Verdict.APPLIED]
    if inside:
        return (
            f"{name} is in {text.spans(inside, every)}; whether the release has it itself, only the release tells: "
            "--tree pypi:VERSION"
        )
    return f"none of these trees carries {name} whole"
