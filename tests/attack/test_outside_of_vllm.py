"""A mod that brings what starts with the interpreter, or changes what is not vLLM, without a word."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of

import vllm_mods as vm
from vllm_mods.base.model import FileChange
from vllm_mods.cli import run
from vllm_mods.formats import receipt
from vllm_mods.library import packed_mod
from vllm_mods.making import compose

if TYPE_CHECKING:
    from pathlib import Path

STARTS = (
    "evil.pth",
    "sitecustomize.py",
    "usercustomize.py",
    "sitecustomize/__init__.py",
    "vllm-0.19.1.dist-info/entry_points.txt",
    "evil-1.dist-info/entry_points.txt",
    "evil.egg-link",
    "__editable___evil_finder.py",
)
OTHERS = ("numpy/__init__.py", "vllm.py", "vllmx/a.py", "VLLM/a.py", "a.py", "bin/python")


def mod(library: Path, path: str, *, more: str = "", name: str = "evil") -> None:
    folder = library / "patches" / name
    folder.mkdir(parents=True)
    (folder / "x").write_text("import os\n")
    (folder / "mod.toml").write_text(
        f'schema = 1\nname = "{name}"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n{more}\n'
        f'[[variant]]\nid = "a"\nvllm = ">=0.1"\noverlay = [{{ source = "x", path = "{path}" }}]\n'
    )


def build(root: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return build(tmp_path / "site", {"vllm/__init__.py": b"", "vllm/a.py": b"A = 1\n"})


@pytest.mark.parametrize("path", [*STARTS, *OTHERS])
def test_nothing_outside_of_vllm_goes_in_that_the_manifest_does_not_name(
    tmp_path: Path, site: Path, path: str
) -> None:
    mod(tmp_path / "library", path)
    mods = vm.Library(tmp_path / "library").mods("evil")
    (planned,) = vm.plan(mods, vm.open_tree(site)).mods
    assert planned.verdict is vm.Verdict.CONFLICT
    assert not planned.changes
    (found,) = [one for one in planned.findings if one.code == "undeclared"]
    assert f'outside = ["{path}"]' in found.message
    assert ("at every start)" in found.message) is (path in STARTS)
    with pytest.raises(vm.Refused, match=r"mod\.toml does not declare"):
        vm.apply(mods, site)
    assert not (site / path).exists()


@pytest.mark.parametrize("path", [STARTS[0], OTHERS[0]])
def test_what_it_names_goes_in_and_is_told_before_anything_is_written(
    tmp_path: Path, site: Path, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mod(tmp_path / "library", path, more=f'outside = ["{path}"]')
    mods = vm.Library(tmp_path / "library").mods("evil")
    seen: list[bool] = []

    def told(planned: vm.Plan) -> None:
        seen.append((site / path).exists())
        assert any(
            one.code == "outside" and path in one.message for one in planned.mods[0].findings
        )

    vm.apply(mods, site, planned=told)
    assert seen == [False]
    vm.revert(site)
    arguments = ["apply", "evil", "--library", f"{tmp_path}/library", "--target", f"{site}"]
    assert run(arguments) == 0
    assert f"note: evil: it changes {path}" in capsys.readouterr().err
    assert (site / path).exists()


def test_a_path_is_meant_exactly(tmp_path: Path, site: Path) -> None:
    mod(tmp_path / "library", "numpy/other.py", more='outside = ["numpy", "numpy/", "numpy/*"]')
    mods = vm.Library(tmp_path / "library").mods("evil")
    assert not vm.plan(mods, vm.open_tree(site)).ok


def test_a_patch_is_held_to_it_as_well_and_so_is_a_lock(tmp_path: Path) -> None:
    site = build(tmp_path / "site", {"vllm/__init__.py": b"", "numpy/__init__.py": b"N = 1\n"})
    mod(tmp_path / "library", "vllm/x.py")
    folder = tmp_path / "library/patches/evil"
    (folder / "n.patch").write_bytes(diff_of("numpy/__init__.py", "N = 1\n", "N = 2\n"))
    text = (folder / "mod.toml").read_text()
    (folder / "mod.toml").write_text(f'{text}patches = ["n.patch"]\n')
    mods = vm.Library(tmp_path / "library").mods("evil")
    assert [one.verdict.value for one in vm.plan(mods, vm.open_tree(site)).mods] == ["conflict"]


@pytest.mark.slow
def test_a_mod_that_went_in_before_this_was_asked_can_stay_while_another_goes(
    tmp_path: Path, site: Path
) -> None:
    mod(tmp_path / "library", "numpy/x.py", more='outside = ["numpy/x.py"]', name="old")
    mod(tmp_path / "library", "vllm/y.py", name="other")
    mods = vm.Library(tmp_path / "library").mods("old", "other")
    vm.apply(mods, site)
    kept = site / receipt.kept("old")
    raw = json.loads(kept.read_text())
    raw["files"]["mod.toml"] = raw["files"]["mod.toml"].replace('outside = ["numpy/x.py"]', "")
    kept.write_text(json.dumps(raw))
    without = packed_mod.unpack(kept.read_bytes(), "kept", "old")
    assert without.outside == ()
    said = site / receipt.RECEIPT
    said.write_text(said.read_text().replace(mods[0].digest, without.digest))
    assert vm.revert(site, "other").reverted == ("other",)
    assert (site / "numpy/x.py").exists()
    assert vm.revert(site).mods == ()
    assert not (site / "numpy").exists()


def test_what_is_made_of_changes_says_what_of_them_is_outside() -> None:
    tree = MemoryTree({"vllm/__init__.py": b"", "numpy/core.py": b"N = 1\n"}, version="0.19.1")
    change = FileChange("numpy/core.py", b"N = 1\n", b"N = 2\n")
    made = compose.compose(compose.Wanted("made"), compose.ModEffect((change,)), tree)
    assert made.mod.outside == ("numpy/core.py",)
    assert made.planned.verdict.writes
