"""Overrides that get the optional parameters which what they override has got since."""

from __future__ import annotations

import pytest
from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange
from vllm_mods.fit.judge import judge
from vllm_mods.fit.world import SummaryCache
from vllm_mods.porting import repair

MOD = "vllm/mod.py"
CALL = "\n    def run(self):\n        return self.step(1, c=2)\n"
HEAD = "from vllm.base import Base\n\n\n"


def repaired(old: str, new: str, ours: str) -> tuple[str, tuple[str, ...]]:
    """Return the mod's file where the base's method had one signature and the target's has another."""
    trees = [
        MemoryTree(
            {
                "vllm/__init__.py": b"",
                MOD: HEAD.encode(),
                "vllm/base.py": f"class Base:\n    {signature}\n        return a\n{CALL}".encode(),
            }
        )
        for signature in (old, new)
    ]
    cut = FileChange(MOD, HEAD.encode(), f"{HEAD}class Mine(Base):\n{ours}".encode())
    findings, _ = judge((cut,), trees[1], SummaryCache(), None)
    done = repair.overrides([cut], findings, *trees)
    (after,) = (one.after or b"" for one in done.cuts)
    return after.decode().partition("class Mine(Base):\n")[2], done.notes


OLD = "def step(self, a, b=1):"
OURS = "    def step(self, a, b=1):\n        return super().step(a, b=b)\n"


@pytest.mark.parametrize(
    ("new", "signature", "passed_on", "names"),
    [
        ("self, a, b=1, c=None", "self, a, b=1, c=None", "a, b=b, c=c", "c=None"),
        ("self, a, c=2, b=1", "self, a, c=2, b=1", "a, b=b, c=c", "c=2"),
        ("self, a, b=1, *, c='x'", "self, a, b=1, c='x'", "a, b=b, c=c", "c='x'"),
        ("self, a, b=1, c=2, d=-0", None, None, None),
        (
            *("self, a, b=1, c=2, d=True", "self, a, b=1, c=2, d=True"),
            *("a, b=b, c=c, d=d", "c=2, d=True"),
        ),
    ],
)
def test_an_override_gets_what_is_optional_and_passes_it_on(
    new: str, signature: str | None, passed_on: str | None, names: str | None
) -> None:
    after, notes = repaired(OLD, f"def step({new}):", OURS)
    if signature is None:
        assert (after, notes) == (OURS, ())
        return
    assert after == f"    def step({signature}):\n        return super().step({passed_on})\n"
    assert notes == (f"Mine.step now takes {names}, as in Base",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "ours"),
    [
        # required, or no plain default
        (OLD, "def step(self, a, c, b=1):", OURS),
        (OLD, "def step(self, a, b=1, c=[]):", OURS),
        (OLD, "def step(self, a, b=1, *, c):", OURS),
        # the override never had all of the base's
        (OLD, "def step(self, a, b=1, c=2):", "    def step(self, a):\n        return a\n"),
        # it takes what else comes, or nothing says where to put it
        (
            *(OLD, "def step(self, a, b=1, c=2):"),
            "    def step(self, a, b=1, *, d=3):\n        return a\n",
        ),
        (
            *(OLD, "def step(self, a, b=1, c=2):"),
            "    def step(self, a, b=1):\n        return super().step(*[a, b])\n",
        ),
        (
            *(OLD, "def step(self, a, b=1, c=2):"),
            "    def step(self, a, b=1):\n        return super().step()\n",
        ),
        # nothing is new
        (OLD, OLD, OURS),
    ],
)
def test_what_is_not_one_thing_alone_is_left_to_a_person(old: str, new: str, ours: str) -> None:
    assert repaired(old, new, ours) == (ours, ())


@pytest.mark.slow
def test_only_calls_of_what_is_overridden_are_changed() -> None:
    ours = "    def step(self, a, b=1):\n        self.step(a)\n        super().other(a)\n        return a\n"
    after, _ = repaired(OLD, "def step(self, a, b=1, c=2):", ours)
    assert after == ours.replace("a, b=1)", "a, b=1, c=2)")
