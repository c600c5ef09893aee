"""CONTRIBUTING.md names modules that are there, and a function for every finding."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from vllm_mods.base.finding_codes import FindingCode

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import finding_index  # noqa: E402

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def test_each_module_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:[a-z_]+/)+[\w.]*)(?::\w+)?`", TEXT))
    places = (ROOT, ROOT / "vllm_mods")
    lost = {name for name in named if not any((place / name).exists() for place in places)}
    # words in capitals stand for a name of one's own
    assert not {name for name in lost if not re.search(r"[A-Z]{4}", name)}


def test_each_function_that_it_names_is_there() -> None:
    code = "\n".join(
        path.read_text() for room in ("vllm_mods", "tests") for path in (ROOT / room).rglob("*.py")
    )
    named = re.findall(r"`(?:\w+\.)?(_?[a-z]\w*_\w+|_[a-z]\w+)`", TEXT)
    assert "_look" in named
    assert not {name for name in named if not re.search(rf"\b{name}\b", code)}


def test_every_room_is_in_the_table() -> None:
    table = TEXT[TEXT.index("| room |") : TEXT.index("Imports point down")]
    rooms = {path.parent.name for path in (ROOT / "vllm_mods").glob("*/__init__.py")}
    assert not {room for room in rooms if f"`{room}`" not in table}


@pytest.mark.slow
def test_every_finding_is_said_by_some_function() -> None:
    places = finding_index.index()
    assert not {code.name for code in FindingCode} - places.keys()
    assert "placing/locate.py:_Placing.look_alike" in places["LOOK_ALIKE"]


def test_the_index_knows_the_codes_of_a_verdict() -> None:
    assert {"LOOK_ALIKE", "AMBIGUOUS"} <= finding_index.made_by("misplaced")
    assert not finding_index.made_by("nonsense")
