"""Bytecode of a source: which files it is, and what goes of it where PYTHONPYCACHEPREFIX keeps it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from vllm_mods.site import bytecode
from vllm_mods.site.site import Look, Site

NAMES = {
    "a.cpython-311.pyc": True,
    "a.cpython-312.opt-2.pyc": True,
    "a.pypy310.pyc": True,
    "a.b.cpython-311.pyc": False,
    "a.cpython.pyc": False,
    "a.cpython-311.pyc.1": False,
    "a.txt": False,
    "ab.cpython-311.pyc": False,
}


@pytest.mark.parametrize(("source", "folder"), [("vllm/a.py", "vllm/"), ("a.py", "")])
def test_bytecode_is_of_the_source_that_it_is_named_after(
    tmp_path: Path, source: str, folder: str
) -> None:
    assert bytecode.cache(source) == f"{folder}__pycache__"
    look = Look(Site(str(tmp_path)), {})
    assert list(bytecode.of(look, source)) == []
    (tmp_path / bytecode.cache(source)).mkdir(parents=True)
    for name in NAMES:
        (tmp_path / bytecode.cache(source) / name).touch()
    own = [f"{folder}__pycache__/{name}" for name, is_own in sorted(NAMES.items()) if is_own]
    assert list(bytecode.of(Look(Site(str(tmp_path)), {}), source)) == own
    assert not bytecode.is_of(f"{folder}a.cpython-311.pyc", source)


@pytest.fixture
def prefixes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return two folders outside of the tree that bytecode is kept in, one by the environment."""
    made = [tmp_path / "one", tmp_path / "two"]
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(made[0]))
    monkeypatch.setattr(sys, "pycache_prefix", str(made[1]))
    for prefix in made:
        for folder in ("site", "site/vllm"):
            (prefix / folder).mkdir(parents=True)
            for name in NAMES:
                (prefix / folder / name).touch()
    return made


def test_bytecode_of_changed_sources_goes_from_wherever_it_is_kept(prefixes: list[Path]) -> None:
    assert bytecode.forget("/site", ["vllm/a.py", "vllm/none.py", "none/a.py", "a.py"]) == []
    for prefix in prefixes:
        for folder in ("site", "site/vllm"):
            stays = {name for name, is_own in NAMES.items() if not is_own}
            assert {one.name for one in (prefix / folder).iterdir() if one.is_file()} == stays


def test_without_such_a_place_nothing_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm/a.cpython-311.pyc").touch()
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    assert bytecode.forget(str(tmp_path), ["vllm/a.py"]) == []
    assert (tmp_path / "vllm/a.cpython-311.pyc").exists()


def test_what_cannot_be_removed_is_named_as_a_shell_reads_it(
    prefixes: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my cache").symlink_to(prefixes[0])
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "my cache"))
    places = [prefixes[0] / "site" / name for name, is_own in sorted(NAMES.items()) if is_own]
    for place in places[1:]:
        place.unlink()
    places[0].unlink()
    places[0].mkdir()
    (said,) = set(bytecode.forget("/site", ["a.py"]))
    assert said.endswith(f"instead of the new code: rm {places[0]} {places[0]}")
    (prefixes[0] / "site/vllm").rename(tmp_path / "away")
    (prefixes[0] / "site/vllm").symlink_to(tmp_path / "away")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    (said,) = bytecode.forget("/site", ["vllm/a.py"])
    assert said.count(f"{prefixes[0]}/site/vllm/a.") == 3
    assert len(os.listdir(tmp_path / "away")) == len(NAMES)
