"""The fixture of tests that run commands in the sandbox: they are skipped where the kernel gives none."""

from __future__ import annotations

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.making import sandbox


@pytest.fixture(scope="session")
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("root")
    try:
        sandbox.run(["true"], {}, cwd="/", environ={}, root=str(root), network=False, seconds=20)
    except Refused as error:
        pytest.skip(f"no command can be run apart from this machine: {error}")
