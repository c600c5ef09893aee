"""A checkpoint that anybody may have made: read in bounds, inside its folder, or refused by name."""

from __future__ import annotations

import json
import os
import struct
import time
from typing import TYPE_CHECKING

import pytest
from hybrid_checkpoints import int4, write_checkpoint

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Mod, When
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.sources import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def header(folder: Path, data: bytes, length: int | None = None) -> None:
    count = len(data) if length is None else length
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", count) + data)


def index(folder: Path, name: object) -> None:
    text = json.dumps({"weight_map": {"a": name}})
    (folder / "model.safetensors.index.json").write_text(text)


def pipe(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)


ATTACKS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a header of 2^63 bytes": ("cut off", lambda at: header(at, b"{}", 1 << 63)),
    "a header that ends too soon": ("cut off", lambda at: header(at, b"{}", 99)),
    "a header that is no JSON": ("not JSON", lambda at: header(at, b"\xff{}")),
    "a header nested without end": ("nested too deeply", lambda at: header(at, b"[" * 99999)),
    "a tensor without a shape": ("no dtype and shape", lambda at: header(at, b'{"a": {}}')),
    "a shape of truths": (
        "no dtype and shape",
        lambda at: header(at, b'{"a": {"dtype": "I32", "shape": [true]}}'),
    ),
    "an empty file": ("cut off", lambda at: (at / "model.safetensors").write_bytes(b"")),
    "an index that leads out": ("names '../x.safe", lambda at: index(at, "../x.safetensors")),
    "an index of numbers": ("no weight_map", lambda at: index(at, 7)),
    "an index of what is not there": ("are missing", lambda at: index(at, "b.safetensors")),
    "a series without end": (
        "1999 of its 2000 weight files",
        lambda at: (at / "model.safetensors").rename(at / "model-00001-of-99999.safetensors"),
    ),
    "an offset past the end": (
        "cut off",
        lambda at: header(at, b'{"a": {"dtype": "I8", "shape": [9], "data_offsets": [0, 9]}}'),
    ),
    "a pipe for weights": ("not a regular file", lambda at: pipe(at, "model.safetensors")),
    "a pipe for the config": ("not a regular file", lambda at: pipe(at, "config.json")),
    "a config that is a list": ("not an object", lambda at: (at / "config.json").write_text("[]")),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_checkpoint_is_refused_by_name(name: str, tmp_path: Path) -> None:
    why, attack = ATTACKS[name]
    place = write_checkpoint(str(tmp_path / "model"), [int4("a")], config={})
    attack(tmp_path / "model")
    with pytest.raises(TreeError, match=why):
        open_checkpoint(place)


def test_a_pattern_takes_its_time_by_the_length_of_names_only(tmp_path: Path) -> None:
    tensors = {"a" * 200 + str(n): ("I32", [1]) for n in range(500)}
    place = write_checkpoint(str(tmp_path / "model"), [tensors], config={})
    when = When(tensors=(("*a" * 30 + "*b", ()),))
    mod = Mod("m", "1", "s", "MIT", "", "", when=(when,))
    started = time.monotonic()
    assert not fitting.of_mod(mod, open_checkpoint(place)).meant
    assert time.monotonic() - started < 5
