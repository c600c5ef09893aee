"""A matrix, and one cell of it, as the JSON that scripts depend on."""

from __future__ import annotations

from typing import Any

from vllm_mods.matrices.cell import Cell, Explanation, MatrixResult
from vllm_mods.report.data import SCHEMA, fields


def matrix(result: MatrixResult) -> dict[str, Any]:
    """Return the answer of ``matrix``."""
    return {
        "schema": SCHEMA,
        "cells": [cell(one) for one in result.cells],
        **fields(result, "together", "problems"),
        **({} if result.changes is None else {"changes": result.changes}),
    }


def cell(one: Cell) -> dict[str, Any]:
    """Return one mod on one tree."""
    return {
        **fields(one, "mod", "version", "tree", "variant", "verdict", "in_range", "computed"),
        "packages": dict(one.packages),
        "findings": one.findings,
    }


def explanation(explained: Explanation) -> dict[str, Any]:
    """Return the answer of ``matrix --explain``."""
    return {"schema": SCHEMA, "cell": cell(explained.cell), **fields(explained, "hunks", "history")}
