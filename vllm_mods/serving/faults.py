"""What is wrong with a serve command, piece by piece."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level


class ServeFault(NamedTuple):
    """One finding. ``subject`` is the flag, variable or mod; ``near`` what was probably meant.

    What looks at a value only leaves the subject to those who know whose value it is.
    """

    code: FindingCode
    subject: str
    message: str
    near: str = ""
    level: Level = Level.ERROR


def of(subject: str, faults: Iterable[ServeFault]) -> Iterator[ServeFault]:
    """Yield what is wrong with a value as faults of its flag or variable."""
    return (one._replace(subject=subject) for one in faults)


def note(code: FindingCode, subject: str, message: str) -> ServeFault:
    """Return what is only to be known."""
    return ServeFault(code, subject, message, level=Level.NOTE)
