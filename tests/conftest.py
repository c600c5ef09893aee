"""Loads what all tests share, and says how many processes run them."""

from __future__ import annotations

import os

import pytest

# No test asks the Hub: what is one of its own has a server here.
os.environ["HF_HUB_OFFLINE"] = "1"
pytest_plugins = ["alone", "sampling", "forked_sandboxes", "sandboxed"]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Say how many: half again as many as there are cores, as a third of the time is spent waiting.

    One for files asked for by name, which is quicker, and for what talks to engines and servers.
    """
    named = any(argument.partition("::")[0].endswith(".py") for argument in config.args)
    offline = all(f"not {name}" in config.option.markexpr for name in ("network", "engines"))
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2 if offline and not named else 0
