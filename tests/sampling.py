"""Which of many points, examples and parameters a run tries: a sample drawn anew each time, or all.

``VLLM_MODS_TEST_SEED=7`` draws what seed 7 draws; a run that fails prints its own.
``VLLM_MODS_TEST_ALL=1`` tries all of them, as ``.ci/exhaustive`` does.
"""

from __future__ import annotations

import os
import random
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL = os.environ.get("VLLM_MODS_TEST_ALL", "") not in {"", "0"}
# Processes that are started from here, pytest-xdist's among them, draw the same.
SEED = os.environ.setdefault("VLLM_MODS_TEST_SEED", str(random.SystemRandom().randrange(10**6)))

T = TypeVar("T")


def few(points: Sequence[T], count: int, name: str) -> list[T]:
    """Return all of the points, or ``count`` of them: one of each of as many equal stretches, in order."""
    if ALL or count >= len(points):
        return list(points)
    draw = random.Random(f"{SEED} {name}")
    ends = [len(points) * n // count for n in range(count + 1)]
    return [points[draw.randrange(*pair)] for pair in pairwise(ends)]


def examples(count: int) -> int:
    """Return how many examples Hypothesis makes of a property that takes long: a fifth, or ``count``."""
    return count if ALL else max(count // 5, 1)


settings.register_profile("sampled", settings.default, max_examples=examples(100), deadline=None)
settings.load_profile("sampled")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the marker ``sampled`` says of what ``-m`` left, unless asked for by name."""
    if (
        ALL
        or config.getoption("lf", default=False)
        or any("::" in argument for argument in config.args)
    ):
        return
    functions: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            functions.setdefault(item.nodeid.partition("[")[0], []).append(item)
    out: set[pytest.Item] = set()
    for name, group in functions.items():
        marker = group[0].get_closest_marker("sampled")
        assert marker is not None
        group.sort(key=lambda item: item.nodeid)  # whatever order the tests run in
        out |= {*group} - {*few(group, marker.args[0], name)}
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not ALL and (terminalreporter.stats.get("failed") or terminalreporter.stats.get("error")):
        terminalreporter.section("sampled")
        terminalreporter.line(
            f"VLLM_MODS_TEST_SEED={SEED} draws the same; VLLM_MODS_TEST_ALL=1 all"
        )
