"""Loads what all tests share, says how many processes run them, and keeps what collecting costs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

# No test asks the Hub: what is one of its own has a server here.
os.environ["HF_HUB_OFFLINE"] = "1"
pytest_plugins = ["sampling", "alone", "forked_sandboxes", "remembered_types", "sandboxed"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Say how many: half again as many as there are cores, as a third of the time is spent waiting.

    One for files asked for by name, which is quicker, and for what talks to engines and servers.
    """
    named = any(argument.partition("::")[0].endswith(".py") for argument in config.args)
    offline = all(f"not {name}" in config.option.markexpr for name in ("network", "engines"))
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2 if offline and not named else 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the bytecode of what is imported, whatever the surroundings say of it.

    Each process collects all tests, and three quarters of that is spent on rewriting the asserts of files that are the same.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", False)
        return (yield)
