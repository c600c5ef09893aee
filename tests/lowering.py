"""A limit, made small enough to be met in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods.base import limits

if TYPE_CHECKING:
    import pytest


class Part(float):
    """A part of a second in place of a limit, which has whole ones."""

    def __str__(self) -> str:
        return f"{float(self)} seconds"


def lower(monkeypatch: pytest.MonkeyPatch, name: str, value: float) -> None:
    """Have the limit of this name be ``value`` while a test runs: of seconds, it may be a part of one."""
    known = limits.table()[name]
    made = limits.Limit(value, known.unit, known.what) if isinstance(value, int) else Part(value)
    monkeypatch.setattr(limits, name, made)
