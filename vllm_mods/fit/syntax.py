"""Whether a file is Python, for every Python that the release supports."""

import re
import sys
import warnings
from collections.abc import Iterator

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.fit.lines import touched_lines
from vllm_mods.fit.problems import Doubt, Problem
from vllm_mods.formats import concrete_syntax, syntax_tree

_HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


def syntax_problems(
    path: str, before: bytes | None, data: bytes, lowest: tuple[int, int] | None
) -> Iterator[Problem | Doubt]:
    """Parse and compile a file, never run it; what the patch touched is parsed by LibCST too."""
    wrong = _error(path, data, lowest)
    older = lowest is not None and sys.version_info[:2] < lowest
    if wrong is not None and not (older and isinstance(wrong, SyntaxError | ValueError)):
        yield _refused(path, wrong, lowest)
        return
    refusal = concrete_syntax.refusal(data, touched_lines(before, data))
    if refusal is not None and (wrong is not None or refusal == syntax_tree.TOO_DEEP):
        at = re.match(r"line (\d+)", refusal)
        yield invalid(path, int(at[1]) if at else 1, refusal, lowest)
    elif wrong is not None:
        yield Doubt(path, "syntax", f"it is not Python {_HERE}, which runs here, and need not be")
    else:
        if refusal is not None:
            why = f"Python {_HERE} accepts it, but LibCST, the second parser, does not: {refusal}"
            yield Doubt(path, "syntax", why)
        if lowest is None:
            yield Doubt(
                path,
                "syntax",
                "the tree has no Requires-Python, so it is not known for which Python to check",
            )


def _error(path: str, data: bytes, lowest: tuple[int, int] | None) -> Exception | None:
    """Return what this interpreter says against a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(data, path, "exec", dont_inherit=True)
            if lowest is not None:
                syntax_tree.parse(data, feature_version=lowest)
        except (RecursionError, MemoryError, SyntaxError, ValueError) as error:
            return error
    return None


def _refused(path: str, error: Exception, lowest: tuple[int, int] | None) -> Problem:
    if isinstance(error, RecursionError | MemoryError):
        return invalid(path, 1, "it is nested too deeply", lowest)
    line = getattr(error, "lineno", None) or 1
    return invalid(path, line, str(getattr(error, "msg", None) or error), lowest)


def invalid(path: str, line: int, why: str, lowest: tuple[int, int] | None) -> Problem:
    """Return what is wrong with the syntax of a line; ``lowest`` is the oldest Python that has to take it."""
    which = f" {lowest[0]}.{lowest[1]}" if lowest else ""
    return Problem(
        FindingCode.FIT_SYNTAX, path, line, "", f"this is not valid Python{which}: {why}", (why,)
    )
