"""The static proof is what these tests are about, whether or not a type checker is installed."""

from __future__ import annotations

import pytest

from vllm_mods.fit import judge


@pytest.fixture(autouse=True)
def untyped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "find_spec", lambda _: None)
