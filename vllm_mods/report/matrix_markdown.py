"""A matrix as GitHub-flavoured Markdown: for a README, a pull request, a job summary.

Whatever comes from mods and trees stands in code spans or fenced blocks, where neither markup
nor ``@mentions`` nor issue numbers mean anything. GFM, section 4.10: in a table a ``|`` has to be
escaped in code spans too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from vllm_mods import __version__
from vllm_mods.matrices.cell import Cell, MatrixResult
from vllm_mods.report import matrix_grid as view


def render(result: MatrixResult) -> str:
    """Return a summary, a table of runs, the problems and findings, and the whole grid folded."""
    of = view.grid(result)
    blocks = [f"**{view.summary(of)}** {_plain(view.headline(of))}.", *_table(_RUNS, _runs(of))]
    changed = [
        f"* {_plain(view.change(of, one))}: {', '.join(map(_code, one.mods))}"
        for one in result.changes or ()
    ]
    blocks += ["### Since the earlier matrix", "\n".join(changed)] if changed else []
    problems = [f"* {_code(view.problem(of, one))}" for one in view.problems(result)]
    blocks += ["### Problems", "\n".join(problems)] if problems else []
    wrong = view.wrong(of)
    blocks += ["### What does not fit"] if wrong else []
    for run in wrong:
        blocks.append(f"{_code(run.first.mod)} on {_plain(run.trees)}: {_word(run.first)}")
        blocks.append(_fenced(view.message(finding) for finding in run.first.findings))
    meeting = view.meeting(result.together)
    if meeting:
        blocks.append("### Mods together")
        blocks += _table(
            ("mods", "vLLM", "what", "where both are"),
            (
                (
                    ", ".join(map(_code, pair.mods)),
                    _plain(view.spans(of, pair.trees)),
                    f"{_plain(pair.kind)}: {_code(pair.message)}",
                    ", ".join(map(_code, pair.scopes)),
                )
                for pair in meeting
            ),
        )
    blocks += ["<details><summary>Every tree</summary>", *_table(*_grid(of)), "</details>"]
    blocks.append(
        f"<sub>vllm-mods {__version__}. ✓ goes in · ✗ is meant to and does not · (in brackets) is not meant to</sub>"
    )
    return "\n\n".join(blocks) + "\n"


_RUNS = ("mod", "vLLM", "verdict", "")


def _runs(of: view.Grid) -> Iterable[tuple[str, ...]]:
    for row in of.rows:
        name = f"{_code(row.mod)} {_code(row.version)}"
        for run in view.runs(of, row):
            yield name, _plain(run.trees), _word(run.first), _plain(view.details(run.cells))
            name = ""


def _grid(of: view.Grid) -> tuple[tuple[str, ...], Iterable[tuple[str, ...]]]:
    rows = (
        (_plain(label), *("" if cell is None else _word(cell) for cell in column))
        for label, column in zip(
            of.labels.values(), zip(*(row.cells for row in of.rows), strict=True), strict=True
        )
    )
    return ("vLLM", *(_code(row.mod) for row in of.rows)), rows


def _word(cell: Cell) -> str:
    word = cell.word
    if cell.computed and cell.verdict.ok:
        return f"✓ {word}"
    return f"✗ **{word}**" if cell.meant else f"({word})"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    lines = [head, ("---",) * len(head), *rows]
    return ["\n".join(f"| {' | '.join(_one_line(cell) for cell in line)} |" for line in lines)]


def _one_line(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    """Return a code span: as many backticks around it as it takes."""
    shown = " ".join(view.clean(text).split())
    fence = "`" * (_longest(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _plain(text: str) -> str:
    """Return a text that has no markup in it as it is, such as that of releases."""
    return text if re.fullmatch(r"[A-Za-z0-9.,+ -]*", text) else _code(text)


def _fenced(texts: Iterable[str]) -> str:
    body = "\n".join(texts)
    fence = "`" * max(3, _longest(body) + 1)
    return f"{fence}text\n{body}\n{fence}"


def _longest(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
