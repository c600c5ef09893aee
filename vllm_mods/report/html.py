"""A matrix as one HTML page: a grid to look at, whose cells open.

The page is complete in itself: it loads nothing, its policy allows nothing but its own style and
script, and the grid is there without JavaScript. ``page/`` holds what does not depend on a matrix.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from string import Template
from urllib.parse import quote

from vllm_mods import __version__
from vllm_mods.base import versions
from vllm_mods.matrices.cell import Cell, Explanation, MatrixResult
from vllm_mods.report import matrix_grid as view
from vllm_mods.report.page_data import page_data
from vllm_mods.report.page_legend import ICONS, MEANINGS


def render(result: MatrixResult, explained: Mapping[tuple[str, str], Explanation]) -> str:
    """Return the page. Cells that are not in ``explained`` open too, and show their findings."""
    of = view.grid(result)
    page = {
        name: (files(__package__) / "page" / f"page.{name}").read_text("utf-8") for name in _PARTS
    }
    return Template(page["html"]).substitute(
        csp=_policy(page["css"], page["js"]),
        style=page["css"],
        script=page["js"],
        title=escape(f"vLLM compatibility: {view.headline(of)}"),
        headline=escape(view.headline(of)),
        summary=escape(view.summary(of)),
        state="bad" if result.problems or view.wrong(of) else "good",
        version=escape(__version__),
        icons="".join(_symbol(name, shape) for name, shape in ICONS.items()),
        changes="<p>Nothing has changed since the earlier matrix.</p>"
        if result.changes == ()
        else _list(of, "Since the earlier matrix", _changes(of, result)),
        problems=_list(of, "Problems", _problems(of, result)),
        wrong=_list(of, "What does not fit", _wrong(of), "list long"),
        legend="\n".join(_legend(of)),
        options="".join(f"<option>{escape(label)}</option>" for label in of.labels.values()),
        head="".join(_heads(of, result)),
        rows="\n".join(map(_row, of.rows)),
        together=_together(of, result),
        data=page_data(of, result.mods, explained),
    )


_PARTS = ("html", "css", "js")
_Entry = tuple[Sequence[str], str]
"""The mods that something is said of, and that."""


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy under which only this style and script run (CSP 3)."""
    styles, scripts = (
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )


def _symbol(name: str, shape: str) -> str:
    return f'<symbol id="v-{name}" viewBox="0 0 16 16">{shape}</symbol>'


def _icon(word: str) -> str:
    return f'<svg aria-hidden="true"><use href="#v-{word}"/></svg>'


def _heads(of: view.Grid, result: MatrixResult) -> Iterable[str]:
    released = {cell.tree for cell in result.cells if versions.is_final(cell.version)}
    series = ""
    for tree, label in of.labels.items():
        # A line in front of the first of each 0.X.
        before, series = series, ".".join(label.split(".")[:2])
        marks = ["first"] * (series != before) + ["nightly"] * (tree not in released)
        mark = f' class="{" ".join(marks)}"' if marks else ""
        name = escape(view.clean(tree))
        yield f'<th scope="col"{mark} title="{name}"><span>{escape(label)}</span></th>'


def _row(row: view.GridRow) -> str:
    good = sum(cell.meant and not view.is_wrong(cell) for cell in row.known)
    meant = sum(cell.meant for cell in row.known)
    share = f" · {good} of {meant}" if meant else ""
    name = view.clean(row.mod)
    head = (
        f'<th scope="row"><b><a href="#?mod={quote(name)}" tabindex="-1">{escape(name)}</a></b> '
        f"<small>{escape(view.clean(row.version))}{share}</small></th>"
    )
    variants = ["" if cell is None else view.variant(cell) for cell in row.cells]
    cells = (
        _cell(cell, variant if variant != before else "")
        for cell, variant, before in zip(row.cells, variants, ["", *variants], strict=False)
    )
    return f"<tr>{head}{''.join(cells)}</tr>"


def _cell(cell: Cell | None, begins: str) -> str:
    if cell is None:
        return "<td></td>"
    word = cell.word
    aside, outside = ("", "") if cell.meant else (" aside", ", out of range")
    variant = f' data-variant="{escape(begins)}"' if begins else ""
    return f'<td class="{word}{aside}"{variant}>{_icon(word)}<span>{word}{outside}</span></td>'


def _legend(of: view.Grid) -> Iterable[str]:
    words = [cell.word for row in of.rows for cell in row.known]
    for word in MEANINGS:
        if word in words:
            yield (
                f'<label class="{word}" title="{escape(MEANINGS[word])}">'
                f'<input type="checkbox" name="verdict" value="{word}">{_icon(word)}{word} '
                f"<small>{words.count(word)}</small></label>"
            )


def _changes(of: view.Grid, result: MatrixResult) -> Iterator[_Entry]:
    for change in result.changes or ():
        links = ", ".join(_link(of, mod, [change.tree]) for mod in change.mods)
        yield change.mods, f"<b>{escape(view.change(of, change))}</b>: {links}"


def _problems(of: view.Grid, result: MatrixResult) -> Iterator[_Entry]:
    for problem in view.problems(result):
        where, code = _link(of, problem.mod, problem.trees), _prose(problem.code)
        yield [problem.mod], f"{where}: {_prose(problem.message)} <small>{code}</small>"


def _wrong(of: view.Grid) -> Iterator[_Entry]:
    for run in view.wrong(of):
        mod = run.first.mod
        where = _link(of, mod, [cell.tree for cell in run.cells])
        yield [mod], f"{where} is {_why(run.first)}"


def _why(cell: Cell) -> str:
    first = "".join(f": {_prose(one.message)}" for one in cell.findings[:1])
    return f"<b>{cell.word}</b>{first}"


def _list(of: view.Grid, title: str, entries: Iterable[_Entry], kind: str = "list") -> str:
    """Return a list of what is said of mods, each entry with the mods that it is about."""
    places = _places(of)
    items = [f"<li{_about(places, mods)}>{item}</li>" for mods, item in entries]
    if not items:
        return ""
    return (
        f'<details class="{kind}" open><summary><h2>{title} <small>{len(items)}</small></h2>'
        f"</summary><ul>{''.join(items)}</ul></details>"
    )


def _places(of: view.Grid) -> dict[str, int]:
    return {row.mod: at for at, row in enumerate(of.rows)}


def _about(places: Mapping[str, int], mods: Iterable[str]) -> str:
    """Return the attribute that says which rows of the grid an entry is about: it is shown with them."""
    rows = " ".join(str(places[mod]) for mod in mods if mod in places)
    return f' data-rows="{rows}"' if rows else ""


def _together(of: view.Grid, result: MatrixResult) -> str:
    if not result.together:
        return ""
    meeting = view.meeting(result.together)
    count = f" <small>{len(meeting)}</small>" if meeting else ""
    title = f'<section aria-labelledby="together"><h2 id="together">Mods together{count}</h2>'
    places = _places(of)
    rows = "".join(
        f'<tr{_about(places, pair.mods)}><th scope="row">{" and ".join(_prose(mod) for mod in pair.mods)}</th>'
        f"<td>{escape(view.spans(of, pair.trees))}</td><td><b>{_prose(pair.kind)}</b></td>"
        f"<td>{_prose(pair.message)}{''.join(f'<br><code>{escape(view.clean(one))}</code>' for one in pair.scopes)}</td></tr>"
        for pair in meeting
    )
    if not rows:
        return f"{title}<p>No two of them touch the same class or function.</p></section>"
    heads = "".join(f'<th scope="col">{head}</th>' for head in ("mods", "vLLM", "verdict", "what"))
    return (
        f'{title}<div class="scroll"><table class="plain"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _link(of: view.Grid, mod: str, trees: Sequence[str]) -> str:
    """Return a link to a mod's cell on the first of some trees."""
    name = escape(view.clean(mod))
    if not trees:
        return f"<b>{name}</b>"
    target = quote(view.clean(f"{mod}/{trees[0]}"), safe="/:")
    return f'<a href="#{target}">{name} on {escape(view.spans(of, trees))}</a>'


def _prose(text: str) -> str:
    """Escape a text; what stands between backticks is code."""
    parts = escape(view.clean(text)).split("`")
    if len(parts) % 2 == 0:  # one that has no partner
        return escape(view.clean(text))
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
