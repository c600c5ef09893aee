"""What config classes refuse, followed in their own code: found where it is sure, and only there."""

from __future__ import annotations

import shlex

import pytest
from memory_tree import MemoryTree
from serve_tree import ARGS, ENGINE, FILES

from vllm_mods.serving.check import Serving, check
from vllm_mods.serving.known import KnownFlags

HOLDER = """
@config
class SpreadConfig:
    tp: int = 1
    nodes: int = 1
    rank: int = 0
    mode: str = "a"

    def __post_init__(self):
        self.world = self.tp * 2
        BODY


"""
AFTER = """

@dataclass
class AsyncEngineArgs(EngineArgs):
    tensor_parallel_size: int = 1
    batch: int = 1
    timeout: int = 0
    share: float = 0.5

    @staticmethod
    def add_cli_args(parser, async_args_only=False):
        return EngineArgs.add_cli_args(parser)

    def create_engine_config(self, usage_context=None):
        return SpreadConfig(tp=self.tensor_parallel_size, nodes=self.batch, rank=self.timeout)
"""


def told(body: str, line: str) -> list[tuple[str, str, str]]:
    """Return what is found with a config class whose ``__post_init__`` is this."""
    engine = ENGINE.replace(
        "@config\nclass CacheConfig", HOLDER.replace("BODY", body) + "@config\nclass CacheConfig"
    )
    start = ARGS.index("\n\nclass AsyncEngineArgs")
    args = (
        ARGS[:start].replace(
            "PASSTHROUGH =", "from vllm.config.engine import SpreadConfig\nPASSTHROUGH ="
        )
        + AFTER
    )
    files = {
        **FILES,
        "vllm/config/engine.py": engine.encode(),
        "vllm/engine/arg_utils.py": args.encode(),
    }
    answer = check(KnownFlags(MemoryTree(files)), Serving(("m", *shlex.split(line))))
    return [(fault.code, fault.subject, fault.message) for fault in answer.faults]


RAISE = "raise ValueError(f'{self.world} over {self.nodes}')"


@pytest.mark.parametrize(
    "body",
    [
        f"if self.world % self.nodes: {RAISE}",
        "assert self.world % self.nodes == 0, f'{self.world} over {self.nodes}'",
        f"if who_knows(): pass\n        if self.nodes == 3: {RAISE}",
        f"if who_knows(): self.mode = 'b'\n        if self.mode == 'a' or self.nodes > 2: {RAISE}",
        f"if who_knows(): raise KeyError\n        self.mode = 'b'\n        if self.nodes == 3: {RAISE}",
        f"if self.mode not in ('b', 'c'): {RAISE}",
        f"if (n := self.nodes) > 2: {RAISE}",
        f"try:\n            self.mode = who_knows()\n        except KeyError: {RAISE}\n        if self.nodes > 2: {RAISE}",
    ],
)
def test_what_is_raised_on_every_way_is_a_fault_of_the_flags_it_looks_at(body: str) -> None:
    (found,) = told(body, "--batch 3 -tp 2")
    assert found[0] == "refused"
    assert found[2] == "4 over 3"


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        f"if who_knows(): {RAISE}",
        f"if self.nodes > 3: {RAISE}",
        f"if who_knows(): return\n        {RAISE}",
        f"if who_knows(): self.nodes = 1\n        if self.nodes == 3: {RAISE}",
        f"who_knows(self)\n        if self.nodes == 3: {RAISE}",
        f"try: {RAISE}\n        except ValueError: pass",
        f"while who_knows():\n            {RAISE}",
        f"for one in who_knows():\n            self.nodes = 1\n        if self.nodes == 3: {RAISE}",
        f"for one in who_knows():\n            if one: return\n        {RAISE}",
        f"if self.nodes == 3 and who_knows(): {RAISE}",
        "assert who_knows()",
        f"with suppress(ValueError): {RAISE}",
        f"if isinstance(self.nodes, Strange): {RAISE}",
        f"if envs.VLLM_PORT == 0: {RAISE}",
        f"self.nodes = who_knows\n        if self.nodes == 3: {RAISE}",
        f"if 'x %d' % self.nodes == 'y': {RAISE}",
        f"yield\n        {RAISE}",
        f"if self.mode.any(): {RAISE}",
        "if 5 < self.nodes < 8 // (self.nodes - 3): pass",
        f"if self.cast(int): {RAISE}",
    ],
)
def test_what_may_not_be_raised_is_no_fault(body: str) -> None:
    assert told(body, "--batch 3 -tp 2") == []


def test_a_command_with_another_fault_is_not_followed() -> None:
    (found,) = told(RAISE, "--dtyp2 auto")
    assert found[0] == "flag-unknown"
