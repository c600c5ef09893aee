"""What a command answers, in the forms that people and scripts read."""

from collections.abc import Iterable
from typing import Any, NamedTuple


class Reply(NamedTuple):
    """``data`` as JSON, or ``words`` and the ``next_step`` behind them; either way the lines for ``stderr`` before.

    The exit code is 0 if it is ``ok``, else 1, or another ``exit_code``. Words that are what a file holds are printed
    as they are.
    """

    data: dict[str, Any]
    words: str | None = None
    ok: bool = True
    next_step: str | None = None
    stderr: tuple[str, ...] = ()
    is_file: bool = False
    exit_code: int | None = None


def notes(texts: Iterable[str]) -> tuple[str, ...]:
    """Return what happened on the way as lines for stderr."""
    return tuple(f"note: {text}" for text in texts)
