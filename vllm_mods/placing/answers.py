"""The answers of placing: a proven place, or why there is none. Pure."""

from enum import Enum
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode


class BaseKnown(Enum):
    """What is known of a file beside a patch: ``VERSION`` is of a tree of the version that the patch was written for, ``RELEASED`` that tree's file as it was shipped."""

    NONE = 0
    VERSION = 1
    RELEASED = 2


class Located(NamedTuple):
    """A proven place: 1-based ``line`` of the hunk's first old line, and what proves it."""

    line: int
    scope: str
    proof: str


class Lost(NamedTuple):
    """No proven place. ``code`` is one of these.

    ``absent``      its text is not there,
    ``edge``        its text is there, but not at the edge of the file that it belongs to,
    ``elsewhere``   its text is there, but not in what it was written for,
    ``ambiguous``   nothing tells several places apart,
    ``order``       its places contradict the order of the hunks,
    ``both-ways``   what it looks for is there, and what it leaves too,
    ``unprovable``  it has no context, or its text stands once and the patch does not name what it was written in.

    ``scope`` is where the hunk was written, as far as that is known, ``lines`` the places where its text stands.
    """

    code: FindingCode
    message: str
    scope: str | None
    lines: tuple[int, ...] = ()
