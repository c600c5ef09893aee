"""Plans as the JSON that scripts depend on: ``schema`` 1, one object, stable keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Finding, ModPlan, Plan
from vllm_mods.formats.receipt import ReceiptMod
from vllm_mods.formats.receipt_diff import Disagreement
from vllm_mods.grid.cell import Cell, Explanation, MatrixResult

SCHEMA = 1


def fields(record: NamedTuple, *names: str) -> dict[str, Any]:
    """Return some of what a record holds, by its own names for it."""
    return {name: getattr(record, name) for name in names}


def fault(found: ManifestError) -> dict[str, Any]:
    """Return what is wrong with a file of a library."""
    return {"where": found.where, "problems": list(found.problems)}


def error(code: str, message: str, hint: str | None, exit_code: int) -> dict[str, Any]:
    """Return what went wrong in place of an answer."""
    told = {"code": code, "message": message, "hint": hint, "exit_code": exit_code}
    return {"schema": SCHEMA, "error": told}


def finding(found: Finding) -> dict[str, Any]:
    """Return one finding."""
    return {**found._asdict(), "level": found.level.value}


def mod(planned: ModPlan) -> dict[str, Any]:
    """Return one mod with its verdict, the hashes of the files it changes, and the findings."""
    return {
        "name": planned.mod.name,
        "version": planned.mod.version,
        "variant": planned.variant.id if planned.variant else None,
        "verdict": planned.verdict.value,
        "in_range": planned.in_range,
        "files": [
            {"path": change.path, "before": sha256(change.before), "after": sha256(change.after)}
            for change in planned.changes
        ],
        "findings": [finding(found) for found in planned.findings],
        "proof": planned.proof,
        "unexamined": [{"what": what, "why": why} for what, why in planned.unexamined],
        "optional": [{**one._asdict(), "verdict": one.verdict.value} for one in planned.optional],
    }


def plan(planned: Plan) -> dict[str, Any]:
    """Return the answer of ``check``."""
    return {
        "schema": SCHEMA,
        "tree": {"spec": planned.spec, "version": planned.version},
        "ok": planned.ok,
        "mods": [mod(one) for one in planned.mods],
    }


def matrix(result: MatrixResult) -> dict[str, Any]:
    """Return the answer of ``matrix``."""
    return {
        "schema": SCHEMA,
        "cells": [cell(one) for one in result.cells],
        "together": [one._asdict() for one in result.together],
        "problems": [one._asdict() for one in result.problems],
        **(
            {} if result.changes is None else {"changes": [one._asdict() for one in result.changes]}
        ),
    }


def cell(one: Cell) -> dict[str, Any]:
    """Return one mod on one tree."""
    return {
        **fields(one, "mod", "version", "tree", "variant"),
        "verdict": one.verdict.value,
        **fields(one, "in_range", "computed"),
        "packages": dict(one.packages),
        "findings": [finding(found) for found in one.findings],
    }


def explanation(one: Explanation) -> dict[str, Any]:
    """Return the answer of ``matrix --explain``."""
    return {
        "schema": SCHEMA,
        "cell": cell(one.cell),
        "hunks": [hunk._asdict() for hunk in one.hunks],
        "history": [part._asdict() for part in one.history],
    }


def disagreement(one: Disagreement) -> dict[str, Any]:
    """Return one thing in which receipts differ, a value per receipt."""
    return one._asdict()


def applied(entry: ReceiptMod) -> dict[str, Any]:
    """Return one mod of a receipt."""
    return {
        **fields(entry, "name", "version", "variant", "digest"),
        "files": [file._asdict() for file in entry.files],
    }
