"""The fixture of tests that run commands in bubblewrap: they are skipped where it is not installed or not allowed."""

from __future__ import annotations

import os

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.making import sandbox
from vllm_mods.making.sandbox import SandboxJob


@pytest.fixture(scope="session")
def sandboxed() -> None:
    try:
        sandbox.run(SandboxJob(["true"], "/tmp", {}, {}, ["/tmp"], "/tmp/bin", 20))  # noqa: S108
    except Refused as error:
        if "CI" in os.environ:
            raise
        pytest.skip(f"no command can be run apart from this machine: {error}")
