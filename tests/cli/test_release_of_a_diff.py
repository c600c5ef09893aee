"""``new --tree auto``: the release that a diff was made on is found by its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES, LOADER
from mod_making import diff_of
from package_server import make_sdist

from vllm_mods.library.catalog import Library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

FAST = LOADER.replace('"weights"', '"fast"', 1)
LATER = "# one line more\n" + LOADER


@pytest.fixture(autouse=True)
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have three releases of which the newest has the code of the others a line lower."""
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    for version, loader in (("0.19.0", LOADER), ("0.19.1", LOADER), ("0.20.0", LATER)):
        files = FILES | {"vllm/loader.py": loader.encode()}
        sdist = make_sdist(files, version=version)
        (tmp_path / f"vllm-{version}.tar.gz").write_bytes(sdist)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(call: Call, shelf: Path, diff: bytes) -> Answer:
    (shelf / "fix.diff").write_bytes(diff)
    return call("new", "fix", "--from-diff", "fix.diff", "--tree", "auto", "--license", "MIT")


def test_the_newest_release_with_each_hunk_at_its_line_is_taken(call: Call, shelf: Path) -> None:
    answer = made(call, shelf, diff_of("vllm/loader.py", LOADER, FAST))
    assert answer.code == 0, answer.err
    assert (
        "pypi:0.19.1 is the newest release where each hunk of fix.diff matches at its line"
        in answer.err
    )
    assert Library(".").load("fix").variants[0].vllm == "==0.19.1"


def test_a_diff_of_no_release_makes_no_mod(call: Call, shelf: Path) -> None:
    text = LOADER.replace("path", "place", 1)
    changed = text.replace('"weights"', '"fast"', 1)
    answer = made(call, shelf, diff_of("vllm/loader.py", text, changed))
    assert answer.code == 3
    assert "no release from pypi:0.19.0 to pypi:0.20.0 has the text of each hunk" in answer.err
    assert not (shelf / "patches").exists()


def test_a_diff_of_new_files_alone_tells_no_release(call: Call, shelf: Path) -> None:
    answer = made(call, shelf, b"--- /dev/null\n+++ b/vllm/new.py\n@@ -0,0 +1 @@\n+A = 1\n")
    assert answer.code == 2
    assert "the diff adds only new files," in answer.err


def test_without_a_tree_the_word_is_named(call: Call, shelf: Path) -> None:
    (shelf / "fix.diff").write_bytes(diff_of("vllm/loader.py", LOADER, FAST))
    answer = call("new", "fix", "--from-diff", "fix.diff")
    assert answer.code == 2
    assert "vllm-mods new fix --from-diff fix.diff --tree auto" in answer.err


def test_releases_with_a_twin_of_the_hunk_are_named(call: Call, shelf: Path) -> None:
    twins = "def f():\n    x = 1\n\n\ndef g():\n    x = 1\n"
    files = FILES | {"vllm/loader.py": twins.encode()}
    (shelf / "vllm-0.18.0.tar.gz").write_bytes(make_sdist(files, version="0.18.0"))
    patch = b"--- a/vllm/loader.py\n+++ b/vllm/loader.py\n@@ -6 +6 @@\n-    x = 1\n+    x = 2\n"
    answer = made(call, shelf, patch)
    assert answer.code == 3
    assert (
        "in pypi:0.18.0, each hunk matches at its stated line, but also at other lines"
        in answer.err
    )
    assert "hint: --tree pypi:0.18.0, if the diff was made on that release" in answer.err
