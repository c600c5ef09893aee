"""Prebuilt code of a variant: one for the tree's platform, pinned, and nothing where there is none."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
import small_site
from memory_tree import MemoryTree
from mod_making import mod, variant
from small_plans import codes, one

import vllm_mods as vm
from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import BinaryFile, Verdict
from vllm_mods.formats import platforms
from vllm_mods.library import mod_folder

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod

PATH = "vllm/_fast.abi3.so"


def elf(machine: int, text: bytes = b"") -> bytes:
    return b"\x7fELF\x02\x01\x01".ljust(18, b"\0") + machine.to_bytes(2, "little") + text


AMD, ARM = elf(0x3E), elf(0xB7)


def brings(*builds: tuple[str, bytes], replaces: tuple[str, ...] = ()) -> Mod:
    files = tuple(
        BinaryFile(f"{i}.so", PATH, "", platform, data, replaces)
        for i, (platform, data) in enumerate(builds)
    )
    return mod(variant(binary=files))


class Built(MemoryTree):
    platform = "linux/arm64"


def test_the_one_for_the_trees_platform_goes_in() -> None:
    both = brings(("linux/amd64", AMD), ("linux/arm64", ARM))
    files = {"vllm/__init__.py": b""}
    assert one(both, Built(dict(files))).changes[0].after == ARM
    # a release is read for x86_64, whoever asks
    assert one(both, MemoryTree(dict(files), pristine=True)).changes[0].after == AMD


def test_where_there_is_none_for_it_the_mod_is_unfit() -> None:
    planned = one(brings(("linux/amd64", AMD)), Built({"vllm/__init__.py": b""}))
    assert (planned.verdict, planned.changes) == (Verdict.UNFIT, ())
    assert "built for linux/amd64, but this vLLM is for linux/arm64" in planned.findings[-1].message


def test_where_the_tree_does_not_say_one_build_is_noted_and_two_are_refused() -> None:
    tree = MemoryTree({"vllm/__init__.py": b""})
    single = one(brings(("linux/amd64", AMD)), tree)
    assert single.verdict is Verdict.APPLIES
    assert "platform" in codes(single)
    assert one(brings(("linux/amd64", AMD), ("linux/arm64", ARM)), tree).verdict is Verdict.UNFIT


def test_it_takes_the_place_of_what_it_names_only() -> None:
    tree = {"vllm/__init__.py": b"", PATH: elf(0xB7, b"old")}
    assert one(brings(("linux/arm64", ARM)), Built(dict(tree))).verdict is Verdict.CONFLICT
    old = hashlib.sha256(tree[PATH]).hexdigest()
    named = one(brings(("linux/arm64", ARM), replaces=(old,)), Built(dict(tree)))
    assert named.verdict is Verdict.APPLIES
    assert one(brings(("linux/arm64", ARM)), Built({**tree, PATH: ARM})).verdict is Verdict.APPLIED


@pytest.mark.parametrize(
    ("text", "platform"),
    [
        (b"Tag: cp38-abi3-manylinux_2_31_x86_64\n", "linux/amd64"),
        (b"Tag: cp38-abi3-linux_aarch64\r\n", "linux/arm64"),
        (b"Tag: cp312-cp312-manylinux2014_x86_64\nTag: cp312-cp312-linux_x86_64\n", "linux/amd64"),
        (b"Tag: cp312-cp312-manylinux2014_x86_64\nTag: cp312-cp312-linux_aarch64\n", None),
        (b"Tag: py3-none-any\n", None),
        (b"Tag: cp312-cp312-macosx_14_0_arm64\n", None),
        (None, None),
    ],
)
def test_a_wheel_says_what_it_is_for(text: bytes | None, platform: str | None) -> None:
    assert platforms.of_wheel(text) == platform


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", elf(3), elf(0x3E).replace(b"\x02", b"\x01", 1), b"#!"]
)
def test_what_is_no_code_for_a_known_platform(data: bytes) -> None:
    assert platforms.of_code(data) is None


def write(folder: Path, data: bytes = ARM, **other: str) -> Path:
    place = folder / "patches/fast"
    place.mkdir(parents=True)
    (place / "fast.so").write_bytes(data)
    stated = {"source": "fast.so", "path": PATH, "platform": "linux/arm64"} | other
    stated.setdefault("sha256", hashlib.sha256(data).hexdigest())
    rows = "".join(f'{key} = "{value}"\n' for key, value in stated.items() if value)
    (place / "mod.toml").write_text(
        'schema = 1\nname = "fast"\nversion = "1.0.0"\nsummary = "s"\nlicense = "MIT"\n'
        f'[[variant]]\nid = "a"\nvllm = ">=0"\n[[variant.binary]]\n{rows}'
    )
    return place


@pytest.mark.parametrize(
    ("other", "data", "said"),
    [
        ({"sha256": "0" * 64}, ARM, "variant[0].binary[0].source: the sha256 of fast.so is"),
        ({}, AMD, "machine code for linux/amd64, but should be for linux/arm64"),
        ({}, b"print()", "unknown machine code, but should be for linux/arm64"),
        ({"platform": ""}, ARM, "variant[0].binary[0].platform: is required"),
        ({"platform": "windows/amd64"}, ARM, "platform: expected one of"),
        ({"path": "vllm/a.py"}, ARM, "path: expected the path of a library, NAME.so"),
        ({"path": "../x.so"}, ARM, "path: expected the path of a library, NAME.so"),
        ({"path": "/lib/x.so"}, ARM, "path: expected the path of a library, NAME.so"),
    ],
)
def test_a_file_that_is_not_what_the_manifest_says_is_a_problem_of_it(
    tmp_path: Path, other: dict[str, str], data: bytes, said: str
) -> None:
    with pytest.raises(ManifestError) as caught:
        mod_folder.load_mod(str(write(tmp_path, data, **other)))
    assert said in str(caught.value)


@pytest.mark.parametrize(("tag", "goes"), [("aarch64", True), ("x86_64", False)])
def test_apply_holds_it_against_the_wheel_that_is_installed(
    tmp_path: Path, tag: str, *, goes: bool
) -> None:
    write(tmp_path / "library")
    site = small_site.build(tmp_path / "site")
    (site / "vllm-0.19.1.dist-info/WHEEL").write_text(f"Tag: cp38-abi3-manylinux_2_31_{tag}\n")
    before = small_site.snapshot(site)
    mods = vm.Library(tmp_path / "library").mods("fast")
    if not goes:
        with pytest.raises(vm.Refused) as caught:
            vm.apply(mods, site)
        assert caught.value.plan is not None
        assert caught.value.plan.mods[0].verdict is Verdict.UNFIT
        assert small_site.snapshot(site) == before
        return
    vm.apply(mods, site)
    assert (site / PATH).read_bytes() == ARM
    assert vm.verify(site).ok
    vm.revert(site)
    assert small_site.snapshot(site) == before
