"""`check` and `apply` ask the merge from the release that a mod was written for, as far as it can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from conftest import FILES
from mod_making import diff_of, write_mod
from package_server import PackageServer, make_wheel, serving, settings_of_none
from small_site import build

import vllm_mods as vm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Answer

    Call = Callable[..., Answer]

OLD = "def f():\n" + "".join(f"    v{i} = {i}\n" for i in range(12)) + "    return v6\n"
FIXED = OLD.replace("v6 = 6", "v6 = 7")
LATER = FIXED.replace("v4 = 4", "v4 = 5")
"""The fix, among other lines: neither the hunk nor its reverse has a place here."""


def release(version: str, text: str) -> tuple[str, bytes]:
    files = {**FILES, "vllm/mine.py": text.encode()}
    name = f"vllm-{version}-cp38-abi3-manylinux_2_31_x86_64.whl"
    return name, make_wheel(files, version=version, bulk={})


@pytest.fixture
def index(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PackageServer]:
    settings_of_none(tmp_path, monkeypatch)
    write_mod(library, "mine", diff_of("vllm/mine.py", OLD, FIXED), vllm=">=0.19")
    server = PackageServer(dict([release("0.19.0", OLD), release("0.20.0", LATER)]))
    with serving(server):
        monkeypatch.setenv("PIP_INDEX_URL", server.index)
        yield server


def verdict(answer: Answer) -> str:
    return str(answer.json["mods"][0]["verdict"])


def test_a_fix_that_a_later_release_has_among_other_lines_is_upstream(
    call: Call, index: PackageServer, library: Path
) -> None:
    assert verdict(call("check", "mine", "--target", "pypi:0.19.0", "--json")) == "applies"
    assert verdict(call("check", "mine", "--target", "pypi:0.20.0", "--json")) == "upstream"
    asked = len(index.requests)
    offline = call("check", "mine", "--target", "pypi:0.20.0", "--offline", "--json")
    assert verdict(offline) == "upstream"
    planned = vm.plan(vm.Library(library).mods("mine"), vm.open_tree("pypi:0.20.0", offline=True))
    assert planned.mods[0].verdict is vm.Verdict.UPSTREAM
    assert len(index.requests) == asked


def test_on_a_folder_only_what_is_kept_is_asked_and_no_connection_is_opened(
    call: Call, index: PackageServer, tmp_path: Path
) -> None:
    site = build(tmp_path / "later", {**FILES, "vllm/mine.py": LATER.encode()})
    assert verdict(call("check", "mine", "--target", site, "--json")) == "conflict"
    assert index.requests == []
    call("check", "mine", "--target", "pypi:0.19.0")
    asked = len(index.requests)
    assert verdict(call("check", "mine", "--target", site, "--json")) == "applied"
    done = call("apply", "mine", "--target", site)
    assert (done.code, (site / "vllm/mine.py").read_text()) == (0, LATER)
    assert len(index.requests) == asked


def test_an_origin_that_cannot_be_had_decides_nothing(
    call: Call, index: PackageServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site = build(tmp_path / "old", {**FILES, "vllm/mine.py": OLD.encode()})
    monkeypatch.setenv("PIP_INDEX_URL", "no address")
    monkeypatch.setenv("PIP_CERT", str(tmp_path / "none"))
    assert verdict(call("check", "mine", "--target", site, "--json")) == "applies"
    assert index.requests == []
