"""The forms that a matrix can be reported in, by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from vllm_mods.formats.schema import encode
from vllm_mods.matrices.cell import Explanation, MatrixResult
from vllm_mods.report import badge, html, junit, matrix_data, matrix_markdown, matrix_text

Form = Callable[[MatrixResult, Mapping[tuple[str, str], Explanation]], str]
"""A matrix, and explanations of its cells by mod and tree, to what is written."""


def _json(result: MatrixResult) -> str:
    return json.dumps(encode(matrix_data.matrix(result)), indent=2) + "\n"


def _alone(render: Callable[[MatrixResult], str]) -> Form:
    """Return a form that shows no explanations."""
    return lambda result, _explained: render(result)


FORMS: dict[str, Form] = {
    "text": _alone(matrix_text.render),
    "json": _alone(_json),
    "markdown": _alone(matrix_markdown.render),
    "junit": _alone(junit.render),
    "html": html.render,
    "badge": _alone(badge.render),
}
EXPLAINING = frozenset({"html"})
"""The forms that show explanations; the others need none."""
