"""The forms that a matrix can be reported in, by name."""

from __future__ import annotations

import json
from collections.abc import Callable

from vllm_mods.formats.schema import encode
from vllm_mods.matrices.cell import MatrixResult
from vllm_mods.report import html, junit, matrix_markdown, matrix_text
from vllm_mods.report.data import SCHEMA, fields


def _json(result: MatrixResult) -> str:
    answer = {
        "schema": SCHEMA,
        "cells": [
            {
                **fields(
                    one, "mod", "version", "tree", "variant", "verdict", "in_range", "computed"
                ),
                "packages": dict(one.packages),
                "findings": one.findings,
            }
            for one in result.cells
        ],
        "problems": result.problems,
    }
    return json.dumps(encode(answer), indent=2) + "\n"


FORMS: dict[str, Callable[[MatrixResult], str]] = {
    "text": matrix_text.render,
    "json": _json,
    "markdown": matrix_markdown.render,
    "junit": junit.render,
    "html": html.render,
}
EXPLAINING = frozenset({"html"})
"""The forms that show explanations; the others need none."""
