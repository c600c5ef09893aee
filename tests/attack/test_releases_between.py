"""What only a release between has is not in the target: every state that two parts of a change can be in, over two steps."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, write_mod

from vllm_mods.library.mod_folder import load_mod
from vllm_mods.porting.job import Job, PortOutcome, run

PATH = "vllm/x.py"
STATES = {"old": (1, 1), "took": (2, 2), "other": (7, 7)}
PAIRS = list(itertools.product(STATES, repeat=2))


def text(first: str, second: str) -> str:
    """Return a file with two parts far apart, each as the base has it, as the mod has it, or otherwise."""
    body = "".join(f"    step_{n}(path)\n" for n in range(8))
    (limit, _), (_, depth) = STATES[first], STATES[second]
    return f"LIMIT = {limit}\n\n\ndef load(path):\n{body}\n\nDEPTH = {depth}\n"


def ported(folder: Path, *releases: str) -> PortOutcome:
    """Port the change of both parts over releases, the last of which is the target."""
    base, changed = text("old", "old"), text("took", "took")
    fast = load_mod(str(write_mod(folder, "fast", diff_of(PATH, base, changed))))
    first, *between, target = (
        MemoryTree({PATH: state.encode()}, version=f"0.2{n}.0")
        for n, state in enumerate((base, *releases))
    )
    job = Job(fast, fast.variants[0], first, "0.20.0", target, "new", ">=0.21", [str(folder)])
    return run(job, lambda: between)


@pytest.mark.parametrize("between", PAIRS)
@pytest.mark.parametrize("target", PAIRS)
def test_what_a_step_carries_is_asked_of_the_target_again(
    tmp_path: Path, between: tuple[str, str], target: tuple[str, str]
) -> None:
    outcome = ported(tmp_path, text(*between), text(*target))
    assert outcome.carried == (target == ("took", "took"))
    if not outcome.carried and outcome.clean:
        assert [change.after for change in outcome.cuts] == [text("took", "took").encode()]
    if "other" in target:  # upstream's own value is not the mod's to overwrite
        assert outcome.left
