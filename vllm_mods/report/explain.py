"""One cell of a matrix as text: hunks beside the target, findings, what upstream changed."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_mods.matrices.cell import Explanation, History, HunkView
from vllm_mods.report import text

_WIDTH = 80


def explanation(explained: Explanation, paint: text.Paint = str) -> str:
    """Return a cell as text at 80 columns: words are wrapped, lines of source are cut."""
    cell = explained.cell
    variant = f" (variant {cell.variant})" if cell.variant else ""
    where = text.tree_name(cell.version, cell.tree)
    lines = [f"{cell.mod} {cell.mod_version} on {where}: {paint(cell.verdict)}{variant}"]
    for finding in cell.findings:
        lines += text.folded(f"  {finding}", _WIDTH, hanging="    ")
    for hunk in explained.hunks:
        lines += ["", *_hunk(hunk)]
    for history in explained.history:
        lines += ["", *_history(history)]
    return "\n".join(line.rstrip() for line in lines)


def _hunk(hunk: HunkView) -> Iterator[str]:
    scope = f" in `{hunk.scope}`" if hunk.scope else ""
    head = f"hunk {hunk.number} of {hunk.patch}: {hunk.path}{scope}"
    yield from text.folded(head, _WIDTH, hanging="    ")
    if hunk.proof is not None:
        where = f"line {hunk.line}, placed by {hunk.proof}" if hunk.line else hunk.proof
        moved = f", {hunk.offset:+d} from where it was written" if hunk.offset else ""
        yield f"  goes in: {where}{moved}"
    elif hunk.line is not None:
        yield f"  has no place; nearest is line {hunk.line}"
    else:
        yield "  has no place, and nothing is like it"
    yield "  the patch:"
    yield from (_cut(f"    {line}") for line in hunk.lines)
    if hunk.target:
        yield "  the target:"
        width = len(str(hunk.target[-1][0]))
        for number, line in hunk.target:
            mark = ">" if number == hunk.line else " "
            yield _cut(f"  {mark} {number:>{width}}  {line}")


def _history(history: History) -> Iterator[str]:
    yield f"upstream since {history.since}, where it worked: {history.path}"
    yield from (_cut(f"    {line}") for line in history.diff)


def _cut(line: str) -> str:
    line = line.expandtabs(4)
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"
