"""A mod comes back out of its one file as it went in."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from git_host import mod, write

from vllm_mods.base.errors import Refused
from vllm_mods.library import packed_mod
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import load_mod

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod


@pytest.mark.parametrize("name", Library().names())
def test_a_bundled_mod_comes_back_the_same(name: str) -> None:
    bundled = Library().load(name)
    again = packed_mod.unpack(packed_mod.pack(bundled), "there.json", name)
    there = bundled._replace(directory=again.directory)
    assert _anywhere(again) == _anywhere(there)


def _anywhere(whole: Mod) -> Mod:
    """Return a mod whose templates lie nowhere."""
    variants = (
        each._replace(templates=tuple(file._replace(root="") for file in each.templates))
        for each in whole.variants
    )
    return whole._replace(variants=tuple(variants))


def test_bytes_that_are_no_text_come_back_too(tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "mod.toml").write_text(
        'schema = 1\nname = "odd"\nversion = "1.0"\nsummary = "s"\nlicense = "MIT"\n'
        '[[variant]]\nid = "a"\nvllm = ">=0.1"\n'
        'overlay = [{ source = "x.bin", path = "vllm/x.bin" }]\n'
    )
    (folder / "x.bin").write_bytes(bytes(range(256)))
    again = packed_mod.unpack(packed_mod.pack(load_mod(str(folder))), "odd.json", "odd")
    assert again.variants[0].overlay[0].data == bytes(range(256))


def test_a_mod_is_packed_as_sorted_lines(tmp_path: Path) -> None:
    folder = write(tmp_path, mod("fast") | {"patches/fast/mod.lock": "{}"}) / "patches/fast"
    packed = packed_mod.pack(load_mod(str(folder)))
    files = {name: (folder / name).read_text() for name in ("mod.lock", "mod.toml", "x.py")}
    assert json.loads(packed) == {"schema": 1, "files": files}
    keys = [line.partition(b":")[0] for line in packed.splitlines()]
    assert keys == [
        b"{",
        b'"files"',
        b'"mod.lock"',
        b'"mod.toml"',
        b'"x.py"',
        b"},",
        b'"schema"',
        b"}",
    ]


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema": 9, "files": {}}'])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match=r"there\.json: not a stored mod") as caught:
        packed_mod.unpack(data, "there.json", "one")
    assert caught.value.hint == "`vllm-mods revert` without a mod name does not need this file"
