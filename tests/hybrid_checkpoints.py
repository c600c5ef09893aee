"""Small checkpoints for the hybrid mod: real safetensors headers, zeros for data.

Layers are named as on the Hub. INT4 layers are GPTQ-packed, FP8 layers have one scale
per block. Nothing here needs torch.
"""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BYTES = {"F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4}
Tensors = dict[str, tuple[str, list[int]]]


def int4(layer: str, rows: int = 256, columns: int = 256) -> Tensors:
    """A GPTQ layer of 4 bits, groups of 128."""
    return {
        f"{layer}.qweight": ("I32", [columns // 8, rows]),
        f"{layer}.scales": ("F16", [columns // 128, rows]),
        f"{layer}.qzeros": ("I32", [columns // 128, rows // 8]),
    }


def fp8(layer: str, rows: int = 256, columns: int = 256, block: int = 128) -> Tensors:
    """A block FP8 layer."""
    return {
        f"{layer}.weight": ("F8_E4M3", [rows, columns]),
        f"{layer}.weight_scale_inv": ("F32", [-(-rows // block), -(-columns // block)]),
    }


def bf16(layer: str, rows: int = 256, columns: int = 256) -> Tensors:
    """A layer nobody quantised."""
    return {f"{layer}.weight": ("BF16", [rows, columns])}


def headers(tensors: Tensors) -> dict[str, dict[str, object]]:
    """The entries that the header of a file with these tensors has."""
    return {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in tensors.items()}


def write_file(path: str, tensors: Tensors) -> None:
    """One safetensors file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for edge in shape:
            size *= edge
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + offset)


def write_checkpoint(
    folder: str, files: Sequence[Tensors], *, config: Mapping[str, object] | None = None
) -> str:
    """A checkpoint of one file or, with an index, of several; returns ``folder``."""
    os.makedirs(folder, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, tensors in enumerate(files, 1):
        name = f"model-{number:05}-of-{len(files):05}.safetensors"
        if len(files) == 1:
            name = "model.safetensors"
        write_file(os.path.join(folder, name), tensors)
        weight_map |= dict.fromkeys(tensors, name)
    if len(files) > 1:
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": weight_map}, file)
    if config is not None:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(config, file)
    return folder
