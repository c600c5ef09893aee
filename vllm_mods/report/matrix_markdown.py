"""A matrix as GitHub-flavoured Markdown: for a README, a pull request, a job summary.

Whatever comes from mods and trees stands in code spans or fenced blocks, where nothing is markup.
GFM, section 4.10: in a table a ``|`` has to be escaped in code spans too.
"""

import re

from vllm_mods import __version__
from vllm_mods.matrices.cell import Cell, MatrixResult
from vllm_mods.report import matrix_grid as view


def render(result: MatrixResult) -> str:
    """Return a summary, a table of runs, the problems and the findings."""
    of = view.grid(result)
    blocks = [f"**{view.summary(of)}** {_plain(view.headline(of))}.", _table(of)]
    problems = [f"* {_code(view.problem(of, one))}" for one in view.problems(result)]
    blocks += ["### Problems of ranges and locks", "\n".join(problems)] if problems else []
    wrong = view.wrong(of)
    blocks += ["### What does not apply"] if wrong else []
    for run in wrong:
        blocks.append(f"{_code(run.mod)} on {_plain(run.trees)}: {_word(run.first)}")
        body = "\n".join(view.clean(str(finding)) for finding in run.first.findings)
        fence = "`" * max(3, _longest(body) + 1)
        blocks.append(f"{fence}text\n{body}\n{fence}")
    blocks.append(
        f"<sub>vllm-mods {__version__}. In the mod's range: ✓ applies, or is applied · ✗ does not apply · ? not computed. (In brackets): outside the range.</sub>"
    )
    return "\n\n".join(blocks) + "\n"


def _table(of: view.Grid) -> str:
    """Return the verdicts of each mod, a row for neighbouring trees that say the same."""
    lines = [("mod", "vLLM", "verdict", ""), ("---",) * 4]
    for row in of.rows:
        name = f"{_code(row.mod)} {_code(row.version)}"
        for run in view.runs(of, row):
            details = _plain(view.details(run.cells))
            lines.append((name, _plain(run.trees), _word(run.first), details))
            name = ""
    rows = (" | ".join(text.replace("|", "\\|") for text in line) for line in lines)
    return "\n".join(f"| {row} |" for row in rows)


def _word(cell: Cell) -> str:
    if not cell.meant:
        return f"({cell.word})"
    sign = "✗" if cell.computed else "?"
    return f"{sign} **{cell.word}**" if view.is_wrong(cell) else f"✓ {cell.word}"


def _code(text: str) -> str:
    """Return a code span: as many backticks around it as it takes."""
    shown = " ".join(view.clean(text).split())
    fence = "`" * (_longest(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") or not shown else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _plain(text: str) -> str:
    """Return a text unchanged if it contains no markup, as names of releases do; as a code span otherwise."""
    return text if re.fullmatch(r"[A-Za-z0-9.,+ -]*", text) else _code(text)


def _longest(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
