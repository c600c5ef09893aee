"""Whether a file is Python: for the one that runs here, and for the oldest that the release supports, which the type checker tells."""

import sys
import warnings
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.problems import Doubt, Problem

_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def syntax_problems(
    path: str, data: bytes, lowest: tuple[int, int] | None
) -> Iterator[Problem | Doubt]:
    """Compile a file, never run it."""
    wrong = _error(path, data)
    older = lowest is not None and sys.version_info[:2] < lowest
    if isinstance(wrong, RecursionError | MemoryError):
        yield invalid(path, 1, "it is nested too deeply", lowest)
    elif wrong is not None and older:
        yield Doubt(path, "syntax", f"it is not Python {_HERE}, which runs here, and need not be")
    elif wrong is not None:
        why = str(getattr(wrong, "msg", None) or wrong)
        yield invalid(path, getattr(wrong, "lineno", None) or 1, why, lowest)
    elif lowest is None:
        yield Doubt(path, "syntax", "this tree has no metadata that says which Python it needs")


def _error(path: str, data: bytes) -> Exception | None:
    """Return what this interpreter says against a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, path, "exec", dont_inherit=True)
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            return error
    return None


def invalid(path: str, line: int, why: str, lowest: tuple[int, int] | None) -> Problem:
    """Return what is wrong with the syntax of a line; ``lowest`` is the oldest Python that has to take it."""
    which = f" {lowest[0]}.{lowest[1]}" if lowest else ""
    return Problem(
        FindingCode.FIT_SYNTAX, path, line, "", f"this is not valid Python{which}: {why}", (why,)
    )
