"""A limit, made small enough to be met in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm_mods.base import limits

if TYPE_CHECKING:
    import pytest


def lower(monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    """Have the limit of this name be ``value`` while a test runs."""
    known = limits.table()[name]
    monkeypatch.setattr(limits, name, limits.Limit(value, known.unit, known.what))
