"""The data that everything else passes around. Pure, frozen, no I/O.

Paths are POSIX paths relative to the *site root*, the folder that holds
``vllm/``. The one exception is a chat template written to a workspace outside
the site root: its path is absolute.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable


class Verdict(StrEnum):
    """What would become of one mod on one tree (DESIGN: verdicts)."""

    APPLIES = "applies"
    MOVED = "moved"
    APPLIED = "applied"
    UPSTREAM = "upstream"
    CONFLICT = "conflict"
    MISPLACED = "misplaced"
    UNFIT = "unfit"
    MISSING = "missing"
    PARTIAL = "partial"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"

    @property
    def writes(self) -> bool:
        """Whether ``apply`` would change files for this verdict."""
        return self in {Verdict.APPLIES, Verdict.MOVED}

    @property
    def ok(self) -> bool:
        """Whether the mod would end up in the tree."""
        return self.writes or self in {Verdict.APPLIED, Verdict.UPSTREAM}


class Level(StrEnum):
    """An ``ERROR`` decides a verdict; a ``NOTE`` is something the user should know."""

    ERROR = "error"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing found while planning.

    ``code`` is a stable identifier; ``path`` and ``line`` (1-based) are places in
    the target tree, ``hunk`` counts from 1 in the patch's part for that file, and
    ``scope`` is a dotted chain of classes and functions (``""`` is module level).
    """

    code: str
    message: str
    path: str | None = None
    line: int | None = None
    hunk: int | None = None
    scope: str | None = None
    level: Level = Level.ERROR


@dataclass(frozen=True, kw_only=True, slots=True)
class FileChange:
    """One file before and after; ``None`` stands for "no such file".

    ``mode`` is the permission bits of a new file or of one whose mode the patch
    changes, ``None`` where the mode stays as it is.
    """

    path: str
    before: bytes | None
    after: bytes | None
    mode: int | None = None


class Tree(Protocol):
    """A vLLM source tree to read.

    ``spec`` is the tree as the user named it, ``version`` what the tree says of
    itself (``None`` where it says nothing), ``remote`` whether each read may cost a
    round trip, ``pristine`` whether its files are known to be as released (an
    archive, a revision) rather than an installed folder that anybody may have edited.
    """

    @property
    def spec(self) -> str: ...
    @property
    def version(self) -> str | None: ...
    @property
    def remote(self) -> bool: ...
    @property
    def pristine(self) -> bool: ...

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if there is none.

        Raises ``TreeError`` if the path escapes the root or the file cannot be read.
        """
        ...

    def paths(self) -> Iterable[str]:
        """Return every file's path (site root included, in no particular order)."""
        ...

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Tell whether ``data`` is what the distribution shipped at ``path``.

        ``None`` where nothing in the tree can tell (no RECORD).
        """
        ...
