"""``list`` reads everything, and a pre-commit hook calls it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    Call = Callable[..., Answer]

HOOKS = Path(__file__).parents[2] / ".pre-commit-hooks.yaml"


def test_of_a_good_library_nothing_is_wrong(call: Call) -> None:
    answer = call("list")
    assert (answer.code, answer.err) == (0, "")


def test_a_patch_that_cannot_be_read_is_a_fault(call: Call, library: Path) -> None:
    patch = library / "patches/fast/x.patch"
    patch.write_bytes(patch.read_bytes().replace(b",7 @@", b",9 @@"))
    answer = call("list")
    assert answer.code == 2
    assert f"error: {library}/patches/fast: 1 problem\n  x.patch:" in answer.err
    (fault,) = call("list", "--json").json["faulty"]
    assert fault["where"] == f"{library}/patches/fast"


def test_a_faulty_manifest_does_not_hide_a_faulty_patch(call: Call, library: Path) -> None:
    (library / "patches/limit/mod.toml").write_text("schema = 1\n")
    (library / "patches/fast/x.patch").write_bytes(b"")
    answer = call("list")
    assert answer.code == 2
    assert "patches/limit/mod.toml: " in answer.err
    assert "patches/fast: 1 problem" in answer.err


@pytest.mark.skipif(not HOOKS.exists(), reason="only a checkout has the hook")
def test_the_hook_reads_the_library_that_it_is_given(
    call: Call, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_MODS_LIBRARY")
    monkeypatch.chdir(library)
    (hook,) = yaml.safe_load(HOOKS.read_text())
    tool, *words = shlex.split(hook["entry"])
    assert tool == "vllm-mods"
    assert hook["pass_filenames"] is False
    assert call(*words, *hook["args"]).code == 0
    (library / "patches/fast/x.patch").write_bytes(b"")
    assert call(*words, *hook["args"]).code == 2
