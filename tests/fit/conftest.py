"""What the checks here say does not depend on whether a type checker is installed."""

import pytest

from vllm_mods.fit import judge


@pytest.fixture(autouse=True)
def _untyped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "find_spec", lambda _: None)
