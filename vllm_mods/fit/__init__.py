"""Proof, without importing vLLM, that patched code agrees with the tree around it.

Every check compares the tree before the patch with the tree after it, and reports only
what the patch causes. ``no`` is a finding of level ``ERROR``, "can't tell" a note.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Allowance, FileChange, Finding, Level
from vllm_mods.base.tree import Tree

if TYPE_CHECKING:
    from vllm_mods.fit.world import SummaryCache

# Faults that no check here is made for, and why.
UNEXAMINED = (
    ("variables that some paths leave unset", "only single `if`s and what follows are examined"),
    ("cycles of imports inside functions", "only the imports of modules are followed"),
    ("calls of compiled code", "torch.ops._C and the like are not in the tree as Python"),
    ("use of packages that are not installed beside vLLM", "their code is not there to be read"),
)


class AtOrigin(NamedTuple):
    """The tree that changes were written for, and the changes as they are there."""

    tree: Tree
    changes: tuple[FileChange, ...]


class Fit(NamedTuple):
    """What was found, worst first, and the files of vLLM beside the changed ones that it rests on.

    ``proof`` is ``types``, ``""`` where no Python changes; ``unexamined`` are classes of faults
    that nobody looked for, each with the reason.
    """

    findings: tuple[Finding, ...] = ()
    beside: tuple[str, ...] = ()
    proof: str = ""
    unexamined: tuple[tuple[str, str], ...] = ()


def fit(
    changes: tuple[FileChange, ...],
    tree: Tree,
    *,
    allow: Iterable[Allowance] = (),
    cache: "SummaryCache | None" = None,
    origin: AtOrigin | None = None,
) -> Fit:
    """Hold changes against the tree around them.

    ``changes`` are relative to ``tree``, which is the tree before them. ``allow`` turns findings into notes
    that carry the author's reason. ``cache`` keeps what is derived from single files: share one over many
    trees; ``origin`` is where the changes were written, if that can be had: what is wrong here and was not
    there counts without further proof. Raises ``TreeError`` where the tree cannot be read.
    """
    from vllm_mods.fit.judge import judge  # noqa: PLC0415  (ast and difflib: 20 ms)
    from vllm_mods.fit.world import SummaryCache as NewCache  # noqa: PLC0415

    python = tuple(one for one in changes if one.path.endswith(".py") and one.before != one.after)
    if not python:
        return Fit()
    try:
        findings, consulted = judge(python, tree, NewCache() if cache is None else cache, origin)
    except RecursionError as error:
        paths = ", ".join(change.path for change in python)
        why = f"{paths}, or code that it uses, is nested too deeply to be checked"
        hint = "is this file generated? no file of vLLM is nested this deeply"
        raise TreeError(why, hint=hint) from error
    except OSError as error:
        why = f"the type checker did not run: {error.strerror or error}: {error.filename or 'temporary files'}"
        raise TreeError(why, hint="set TMPDIR to a writable folder with free space") from error
    reasons = {(one.code, one.scope): one.reason for one in allow}
    allowed = (_allowed(finding, reasons) for finding in findings)
    ranked = sorted(allowed, key=lambda f: (f.path or "", f.line or 0))
    ranked.sort(key=lambda f: (f.level is Level.NOTE, f.code != FindingCode.FIT_DEAD))
    changed = {change.path for change in changes}
    # What is in no package that is changed is the environment: it differs from one installation to the next.
    roots = ("vllm/", *(f"{path.partition('/')[0]}/" for path in changed))
    beside = (path for path in consulted - changed if path.startswith(roots))
    return Fit(tuple(ranked), tuple(sorted(beside)), proof="types", unexamined=UNEXAMINED)


def _allowed(finding: Finding, reasons: Mapping[tuple[str, str], str]) -> Finding:
    reason = reasons.get((finding.code, finding.scope or ""))
    if reason is None or finding.level is not Level.ERROR:
        return finding
    message = f"{finding.message} (allowed by the mod: {reason})"
    return finding._replace(message=message, level=Level.NOTE)


__all__ = ["UNEXAMINED", "AtOrigin", "Fit", "fit"]
