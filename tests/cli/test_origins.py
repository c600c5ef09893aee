"""`check` and `apply` ask the merge from the vLLM that `--base` names, and nothing by chance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from command_line import FILES
from mod_making import diff_of, write_mod
from package_server import PackageServer, make_wheel, serving, settings_of_none
from small_site import build

import vllm_mods as vm

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from command_line import Answer

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


@pytest.mark.slow
def test_a_fix_that_a_later_release_has_among_other_lines_is_seen_from_its_base(
    call: Call, index: PackageServer, library: Path
) -> None:
    later = ("check", "mine", "--target", "pypi:0.20.0", "--json")
    assert verdict(call("check", "mine", "--target", "pypi:0.19.0", "--json")) == "applies"
    # what the cache has by now decides nothing
    assert verdict(call(*later)) == "conflict"
    assert verdict(call(*later, "--offline")) == "conflict"
    assert verdict(call(*later, "--base", "pypi:0.19.0")) == "upstream"
    asked = len(index.requests)
    assert verdict(call(*later, "--offline", "--base", "pypi:0.19.0")) == "upstream"
    mods = vm.Library(library).mods("mine")
    with vm.open_tree("pypi:0.20.0", offline=True) as tree:
        planned = vm.plan(mods, tree, base=vm.open_tree("pypi:0.19.0", offline=True))
    assert planned.mods[0].verdict is vm.Verdict.UPSTREAM
    assert len(index.requests) == asked


@pytest.mark.slow
def test_a_folder_is_planned_without_a_connection_and_from_the_base_that_is_named(
    call: Call, index: PackageServer, tmp_path: Path
) -> None:
    site = build(tmp_path / "later", {**FILES, "vllm/mine.py": LATER.encode()})
    base = build(tmp_path / "base", {**FILES, "vllm/mine.py": OLD.encode()})
    call("check", "mine", "--target", "pypi:0.19.0")
    asked = len(index.requests)
    assert verdict(call("check", "mine", "--target", site, "--json")) == "conflict"
    assert verdict(call("check", "mine", "--target", site, "--base", base, "--json")) == "applied"
    done = call("apply", "mine", "--target", site, "--base", base)
    assert (done.code, (site / "vllm/mine.py").read_text()) == (0, LATER)
    assert len(index.requests) == asked


def test_a_base_that_a_mod_was_not_made_for_is_named(
    call: Call, index: PackageServer, tmp_path: Path
) -> None:
    site = build(tmp_path / "old", {**FILES, "vllm/mine.py": OLD.encode()})
    other = build(tmp_path / "other", {**FILES, "vllm/mine.py": LATER.encode()})
    for command in ("check", "apply", "diff"):
        answer = call(command, "mine", "--target", site, "--base", other)
        assert answer.code == 2
        assert f"mine was not made for {other}" in answer.err
    assert index.requests == []
