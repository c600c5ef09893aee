"""What only a release between has is not in the target: every state that two parts of a change can be in, over two steps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from small_ports import ported

STATES = {"old": 1, "took": 2, "other": 7}
PAIRS = list(itertools.product(STATES, repeat=2))


def text(first: str, second: str) -> str:
    """Return a file with two parts far apart, each as the base has it, as the mod has it, or otherwise."""
    body = "".join(f"    step_{n}(path)\n" for n in range(8))
    return f"LIMIT = {STATES[first]}\n\n\ndef load(path):\n{body}\n\nDEPTH = {STATES[second]}\n"


@pytest.mark.slow
@pytest.mark.parametrize("between", PAIRS)
@pytest.mark.parametrize("target", PAIRS)
def test_what_a_step_carries_is_asked_of_the_target_again(
    tmp_path: Path, between: tuple[str, str], target: tuple[str, str]
) -> None:
    base, changed = text("old", "old"), text("took", "took")
    outcome = ported(tmp_path, base, changed, text(*between), text(*target))
    assert outcome.carried == (target == ("took", "took"))
    if not outcome.carried and outcome.clean:
        assert [change.after for change in outcome.cuts] == [changed.encode()]
    if "other" in target:  # upstream's own value is not the mod's to overwrite
        assert outcome.left
