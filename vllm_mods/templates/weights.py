"""What a finding of a chat template costs its user. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

from vllm_mods.base.model import Finding


class Weight(StrEnum):
    """From the heaviest to the lightest."""

    REFUSED = "refused"
    CONTENT = "content lost"
    CACHE = "cache lost"
    STYLE = "style"


_WEIGHTS = {
    "not-rendered": Weight.REFUSED,
    "template-unreadable": Weight.REFUSED,
    "content-lost": Weight.CONTENT,
    "text-missing": Weight.CONTENT,
    "roles-alike": Weight.CONTENT,
    "answer-not-begun": Weight.CONTENT,
    "written-twice": Weight.CONTENT,
    "cache-lost": Weight.CACHE,
}


def weight(finding: Finding) -> Weight:
    """Return what a finding weighs: what loses nothing is style."""
    return _WEIGHTS.get(finding.code, Weight.STYLE)


def count_weights(findings: Iterable[Finding]) -> dict[Weight, int]:
    """Count findings by weight."""
    counts = Counter(map(weight, findings))
    return {one: counts[one] for one in Weight}
