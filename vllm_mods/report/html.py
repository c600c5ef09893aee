"""A matrix as one HTML page: a grid to look at, whose cells open.

The page is complete in itself: it loads nothing, its policy allows nothing but its own style and
script, and the grid is there without JavaScript. ``page/`` is what it is made of.
"""

import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from importlib.resources import files
from urllib.parse import quote

from vllm_mods import __version__
from vllm_mods.base import versions
from vllm_mods.matrices.against import Earlier, since
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import matrix_grid as view
from vllm_mods.report.against import WORDS
from vllm_mods.report.page_data import page_data


def render(result: MatrixResult, earlier: Earlier | None = None) -> str:
    """Return the page. Cells that are not explained open too, and show their findings; what changed has a part of its own."""
    from jinja2 import Environment, StrictUndefined  # noqa: PLC0415  (for this form alone)
    from markupsafe import Markup  # noqa: PLC0415

    def shown(value: object) -> object:
        return view.clean(value) if type(value) is str else value  # not Markup

    def prose(text: str) -> Markup:
        """Escape a text; what stands between backticks is code."""
        return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", escape(view.clean(text))))  # noqa: S704

    of = view.grid(result)
    places = {row.mod: at for at, row in enumerate(of.rows)}
    folder = files(__package__) / "page"
    texts = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("css", "js", "html"))
    style, script, page = texts
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "address": lambda text: quote(view.clean(text), safe="/:"),
        "place": places.get,
        "prose": prose,
    }
    environment.tests["wrong"] = view.is_wrong
    return environment.from_string(page).render(
        version=__version__,
        policy=_policy(style, script),
        style=Markup(style),  # noqa: S704  (our own, as what follows)
        script=Markup(script),  # noqa: S704
        data=Markup(page_data(of, result)),  # noqa: S704
        view=view,
        of=of,
        result=result,
        released={cell.tree for cell in result.cells if versions.is_final(cell.version)},
        earlier=earlier,
        changed=tuple(since(earlier, result)) if earlier else (),
        effects=WORDS,
    )


def _policy(style: str, script: str) -> str:
    """Return a Content-Security-Policy under which only this style and script run (CSP 3)."""
    styles, scripts = (
        f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in (style, script)
    )
    return (
        f"default-src 'none'; style-src {styles}; script-src {scripts}; img-src data:; "
        "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
    )
