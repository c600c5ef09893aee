"""The forms that a matrix can be reported in, by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from vllm_mods.grid.cell import Explanation, MatrixResult
from vllm_mods.report import badge, data, html, junit, matrix_markdown, matrix_text

Form = Callable[[MatrixResult, Mapping[tuple[str, str], Explanation]], str]
"""A matrix, and explanations of its cells by mod and tree, to what is written."""


def _json(result: MatrixResult, _explained: Mapping[tuple[str, str], Explanation]) -> str:
    return json.dumps(data.matrix(result), indent=2) + "\n"


FORMS: dict[str, Form] = {
    "text": matrix_text.render,
    "json": _json,
    "markdown": matrix_markdown.render,
    "junit": junit.render,
    "html": html.render,
    "badge": badge.render,
}
EXPLAINING = frozenset({"html"})
"""The forms that show explanations; the others need none."""
