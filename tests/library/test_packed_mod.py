"""A mod comes back out of its one file as it went in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.library import packed_mod
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import load_mod

if TYPE_CHECKING:
    from pathlib import Path

    from vllm_mods.base.model import Mod


@pytest.mark.parametrize("name", Library().names())
def test_a_bundled_mod_comes_back_the_same(name: str) -> None:
    mod = Library().load(name)
    again = packed_mod.unpack(packed_mod.pack(mod), "there.json", name)
    there = mod._replace(directory=again.directory, lock=None)
    assert _anywhere(again) == _anywhere(there)


def _anywhere(mod: Mod) -> Mod:
    """Return a mod whose templates lie nowhere."""
    variants = (
        one._replace(templates=tuple(file._replace(root="") for file in one.templates))
        for one in mod.variants
    )
    return mod._replace(variants=tuple(variants))


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


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"schema": 9, "files": {}}'])
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(Refused, match=r"there\.json: not a mod"):
        packed_mod.unpack(data, "there.json", "one")
