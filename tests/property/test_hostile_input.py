"""Whatever is read: a result or one of our errors, soon, and nothing outside of a folder.

The targets are those of the fuzzers (``tests/fuzz``), which look for longer and follow what the code does.
"""

from __future__ import annotations

import random
import sys
import tempfile
from typing import TYPE_CHECKING

import pytest
from fuzz import contract, mutations
from fuzz.targets import TARGETS
from hypothesis import HealthCheck, given, settings, strategies as st
from sampling import examples

if TYPE_CHECKING:
    from pathlib import Path

# A connection that broke in the middle of a header is closed when nobody has it any more.
pytestmark = [
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
    ),
    pytest.mark.started,
]
WATCH = contract.Watch()
FEW = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("input", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return str(tmp_path / "input")


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_read(folder: str, name: str) -> None:
    for seed in TARGETS[name].seeds():
        contract.hold(TARGETS[name], seed, folder, WATCH)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TARGETS)
@FEW
@given(data=st.data())
def test_what_is_changed_in_them_is_read_or_refused(
    folder: str, name: str, data: st.DataObject
) -> None:
    seeds = TARGETS[name].seeds()
    seed = seeds[data.draw(st.integers(0, len(seeds) - 1))]
    made = seed
    for number in data.draw(st.lists(st.integers(0, sys.maxsize), min_size=1, max_size=3)):
        made = mutations.mutated(made, random.Random(number))
    contract.hold(TARGETS[name], made[:200_000], folder, WATCH)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_at_all_is_read_or_refused(folder: str, name: str) -> None:
    for data in (b"", b"\0", b"\n", b"\xff" * 9, b"{" * 9000, b"[" * 9000, b"(" * 9000):
        contract.hold(TARGETS[name], data, folder, WATCH)


def test_the_contract_notices(folder: str) -> None:
    def outside(_data: bytes, _folder: str) -> None:
        with open(f"{folder}-other", "w") as file:
            file.write("x")

    def bug(_data: bytes, _folder: str) -> None:
        raise KeyError("x")

    def no_seeds() -> tuple[bytes, ...]:
        return ()

    with pytest.raises(contract.BrokenError, match="outside of the folder"):
        contract.hold(contract.Target("outside", outside, no_seeds), b"", folder, WATCH)
    with pytest.raises(KeyError):
        contract.hold(contract.Target("bug", bug, no_seeds), b"", folder, WATCH)
