"""A matrix as a badge for a README: the vLLM on which every mod that is meant for it goes in. Pure."""

from __future__ import annotations

from html import escape

from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import matrix_grid as view

_GOOD, _PARTLY, _NOWHERE = "#17804a", "#a15c00", "#b3202a"
_LETTER, _MARGIN = 6.8, 7  # of 11 pixels of Verdana, on average


def render(result: MatrixResult) -> str:
    """Return an SVG: green where no cell is wrong, amber where some are, red where nothing goes in."""
    of = view.grid(result)
    bad = {cell.tree for cell in result.cells if view.is_wrong(cell)}
    good = {cell.tree for cell in result.cells if cell.meant} - bad
    colour = (_PARTLY if bad else _GOOD) if good else _NOWHERE
    label = view.spans(of, good) if good else "none"
    left, right = (2 * _MARGIN + round(_LETTER * len(text)) for text in ("vLLM", label))
    texts = "".join(
        f'<text x="{x}" y="14" textLength="{width - 2 * _MARGIN}">{escape(text)}</text>'
        for x, width, text in ((_MARGIN, left, "vLLM"), (left + _MARGIN, right, label))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" '
        f'aria-label="vLLM: {escape(label)}"><title>vLLM: {escape(label)}</title>'
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#333c46"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{colour}"/></g>'
        f'<g fill="#fff" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">{texts}</g></svg>\n'
    )
