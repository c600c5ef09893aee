"""Plans as the JSON that scripts depend on: ``schema`` 1, one object, stable keys.

What is a ``NamedTuple`` in an answer becomes an object of its fields where the answer is printed.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from vllm_mods.base.errors import EXIT_OK, EXIT_USAGE, ManifestError
from vllm_mods.base.model import ModPlan, Plan
from vllm_mods.formats.receipt import ReceiptMod, hashes
from vllm_mods.report.reply import Reply

SCHEMA = 1


def fields(record: NamedTuple, *names: str) -> dict[str, Any]:
    """Return some of what a record holds, by its own names for it."""
    return {name: getattr(record, name) for name in names}


def judged(planned: ModPlan) -> dict[str, Any]:
    """Return a verdict and the variant that it is about."""
    variant = planned.variant.id if planned.variant else None
    return {"variant": variant, **fields(planned, "verdict", "in_range")}


def with_faults(reply: Reply, faults: Sequence[ManifestError]) -> Reply:
    """Return an answer with what could not be read; that is an error, whatever else there is."""
    faulty = [{"where": one.where, "problems": list(one.problems)} for one in faults]
    return reply._replace(
        data={**reply.data, "faulty": faulty},
        stderr=tuple(f"error: {one.message}" for one in faults),
        exit_code=EXIT_USAGE if faults else EXIT_OK,
    )


def error(code: str, message: str, hint: str | None, exit_code: int) -> dict[str, Any]:
    """Return what went wrong in place of an answer."""
    problem = {"code": code, "message": message, "hint": hint, "exit_code": exit_code}
    return {"schema": SCHEMA, "error": problem}


def mod(planned: ModPlan) -> dict[str, Any]:
    """Return one mod with its verdict, the hashes of the files it changes, and the findings."""
    return {
        **fields(planned.mod, "name", "version"),
        **judged(planned),
        "files": hashes(planned.changes),
        **fields(planned, "findings", "proof"),
        "unexamined": [{"what": what, "why": why} for what, why in planned.unexamined],
        "optional": planned.optional,
    }


def plan(planned: Plan) -> dict[str, Any]:
    """Return the answer of ``check``."""
    return {
        "schema": SCHEMA,
        "tree": {"spec": planned.spec, "version": planned.version},
        "ok": planned.ok,
        "mods": [mod(one) for one in planned.mods],
    }


def applied(entry: ReceiptMod) -> dict[str, Any]:
    """Return one mod of a receipt."""
    return fields(entry, "name", "version", "variant", "digest", "files")
