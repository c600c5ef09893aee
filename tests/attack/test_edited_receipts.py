"""A receipt is believed as far as the mods beside it go: ``revert`` deletes what a mod brought, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from mod_making import diff_of, write_mod
from small_site import FILES, RECORD, build, sha, snapshot

from vllm_mods.cli import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUMPY = b"NUMPY = 1\n"
A = FILES["vllm/a.py"].decode()
NEW = "--- /dev/null\n+++ b/vllm/new.py\n@@ -0,0 +1 @@\n+NEW = 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = build(tmp_path / "site")
    (root / "numpy").mkdir()
    (root / "numpy/__init__.py").write_bytes(NUMPY)
    library = tmp_path / "library"
    write_mod(library, "one", diff_of("vllm/a.py", A, "A = 2\n") + NEW.encode())
    write_mod(library, "two", diff_of("vllm/b.py", "B = 1\n", "B = 2\n"))
    assert run(["apply", "one", "two", "--library", str(library), "--target", str(root)]) == 0
    return root


def row(path: str, before: bytes | None, after: bytes | None, kind: str = "file") -> dict[str, Any]:
    return {
        "path": path,
        "before": None if before is None else sha(before),
        "after": None if after is None else sha(after),
        "kind": kind,
        "mode": "0644",
        "size": None if after is None else len(after),
    }


def edit(root: Path, change: Callable[[dict[str, Any]], object]) -> None:
    place = root / ".vllm-mods/receipt.json"
    raw = json.loads(place.read_text())
    change(raw)
    place.write_text(json.dumps(raw))


def a_file_more(raw: dict[str, Any], kind: str = "file") -> None:
    raw["files"].append(row("numpy/__init__.py", None, NUMPY, kind))


def a_file_more_of_a_mod(raw: dict[str, Any]) -> None:
    a_file_more(raw)
    file = {"path": "numpy/__init__.py", "before": None, "after": sha(NUMPY)}
    raw["mods"][0]["files"].append(file)


def a_file_that_was_there(raw: dict[str, Any]) -> None:
    (one,) = [file for file in raw["files"] if file["path"] == "vllm/a.py"]
    one["before"] = None


def mods_that_are_none(raw: dict[str, Any]) -> None:
    a_file_more(raw)
    raw["mods"] = raw["mods"][1:]


EDITS: dict[str, Callable[[dict[str, Any]], None]] = {
    "a file more": a_file_more,
    "a file more, of a mod": a_file_more_of_a_mod,
    "as a RECORD": lambda raw: a_file_more(raw, "record"),
    "as bytecode": lambda raw: a_file_more(raw, "bytecode"),
    "a file that was there": a_file_that_was_there,
    "fewer mods": mods_that_are_none,
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("how", [["revert"], ["revert", "--discard-edits"], ["revert", "two"]])
@pytest.mark.parametrize("kind", EDITS)
def test_a_file_that_no_mod_made_is_not_deleted(
    root: Path, kind: str, how: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    edit(root, EDITS[kind])
    before = snapshot(root)
    assert run([*how, "--target", str(root)]) == 3
    said = capsys.readouterr().err
    assert "no mod in .vllm-mods/mods creates them" in said
    assert snapshot(root) == before


@pytest.mark.parametrize("damage", ["gone", "edited", "no JSON"])
def test_a_mod_that_is_kept_otherwise_brings_nothing(
    root: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the way out is to look at the files that it is about."""
    kept = root / ".vllm-mods/mods/one.json"
    if damage == "gone":
        kept.unlink()
    elif damage == "edited":
        kept.write_text(kept.read_text().replace("NEW = 1", "NEW = 2"))
    else:
        kept.write_text("{")
    assert run(["revert", "--target", str(root)]) == 3
    assert f"{root}/vllm/new.py" in capsys.readouterr().err.replace("\n  ", " ")
    (root / "vllm/new.py").unlink()
    assert run(["revert", "--target", str(root)]) == 0
    assert (root / "vllm/a.py").read_text() == A
    assert not (root / ".vllm-mods").exists()


@pytest.mark.slow
def test_what_mods_brought_goes(root: Path) -> None:
    assert run(["revert", "two", "--target", str(root)]) == 0
    assert (root / "vllm/new.py").exists()
    assert run(["revert", "--target", str(root)]) == 0
    assert not (root / "vllm/new.py").exists()
    assert (root / "numpy/__init__.py").read_bytes() == NUMPY
    assert b"new.py" not in (root / RECORD).read_bytes()
