"""How much memory a checkpoint takes on each GPU, at least, by its headers and its serve command. Pure.

What is counted is there in every vLLM: the weights, and the KV cache of one request of the length that the command
names, without which no vLLM starts. Whatever may be smaller is taken as small as it can be.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.device import GIB, Device
from vllm_mods.checkpoints.facts import value
from vllm_mods.formats import pairing
from vllm_mods.scripts.command_line import flag_number, flag_value

# vLLM's own default from 0.20 on; it was 0.9.
_SHARE = 0.92
_PART = re.compile(r"(0?\.\d{1,9}|1(\.0*)?)\Z", re.ASCII)
# With one of these, less of the weights may lie on the GPU, or nothing is measured by the share.
_ELSEWHERE = (
    *("--config", "--cpu-offload-gb", "--cpu-offload-params", "--hf-overrides", "--load-format"),
    *("--kv-cache-memory-bytes", "--num-gpu-blocks-override", "--offload-backend"),
)
_LENGTH = re.compile(r"(\d{1,12})([kKmM]?)\Z", re.ASCII)
_UNITS = {"": 1, "k": 1000, "K": 1 << 10, "m": 1000**2, "M": 1 << 20}
# vLLM holds no wider floats, unless it is told to.
_NARROWED = {"F32": 2, "F64": 4}
# What a server may do without: layers that only predict, and what sees and hears.
_MAY_LACK = re.compile(r"(^|\.)(mtp\w*|visual|vision\w*|audio\w*|multi_modal_projector)\.")
_LAYER = re.compile(r"(?:^|\.)layers\.(\d{1,9})\.")
# Attention that is not one cache of all tokens in each layer; caches that layers, or keys and values, share.
_OTHER_ATTENTION = re.compile(
    "sliding|chunk|mamba|ssm|linear|block|pattern|period|cross|hybrid|attn_type|conv|compress|encoder"
)
_SHARED_CACHE = re.compile("kv_shared|k_eq_v|global_head|kv_lora")


class MemoryNeed(NamedTuple):
    """Bytes on each of ``ranks`` GPUs, at least: of the weights, and of the KV cache for a token.

    ``length`` is how many tokens a request may have; 0 where the command or the config does not tell. ``share`` is
    the part of a GPU's memory that vLLM takes.
    """

    weights: int
    token: int
    length: int
    ranks: int
    share: float

    def shortfall(self, device: Device) -> str:
        """Say what of it a GPU has no room for, ``""`` where it may have."""
        room, cache = int(device.memory * self.share), self.token * self.length
        if self.weights + cache <= room:
            return ""
        each = f"on each of {self.ranks} GPUs" if self.ranks > 1 else "on the GPU"
        more = f" and {_gib(cache)} for the KV cache of {self.length:,} tokens" if cache else ""
        return (
            f"the model needs {_gib(self.weights)} for weights{more} {each}, but vLLM may use only {_gib(room)} "
            f"({self.share:g} of the {_gib(device.memory)} of {device.name})"
        )

    def remedy(self, device: Device) -> str:
        """Say what of the command would have to change, for a GPU without room for it."""
        room = max(int(device.memory * self.share), 1)
        if self.token and self.weights < room:
            return f"--max-model-len {(room - self.weights) // self.token} at most"
        return f"--tensor-parallel-size {math.ceil(self.weights * self.ranks / room)} at least"


def memory_need(checkpoint: Checkpoint, argv: Sequence[str]) -> MemoryNeed | None:
    """Return what a checkpoint takes with a serve command, None where that cannot be told."""
    quantized = value(checkpoint.config, "quantization_config")
    made_smaller = not quantized and flag_value(argv, "--quantization", "-q") is not None
    if made_smaller or any(flag_value(argv, name) is not None for name in _ELSEWHERE):
        return None
    ranks = pairing.ranks(argv)
    weights = sum(_loaded(checkpoint)) // ranks
    if not weights:
        return None
    match = _LENGTH.match(flag_value(argv, "--max-model-len") or "")
    length = int(match[1]) * _UNITS[match[2]] if match else 0
    share = flag_value(argv, "--gpu-memory-utilization") or ""
    parts = ranks * (flag_number(argv, 1, "--decode-context-parallel-size", "-dcp") or 1)
    token = int(_values_per_token(checkpoint.config) * _width(quantized, argv) / parts)
    return MemoryNeed(weights, token, length, ranks, float(share) if _PART.match(share) else _SHARE)


def _loaded(checkpoint: Checkpoint) -> Iterator[int]:
    """Yield the bytes of each tensor that every server holds."""
    layers = value(checkpoint.config, "num_hidden_layers")
    for name, tensor in checkpoint.tensors.items():
        layer = _LAYER.search(name)
        is_beyond = isinstance(layers, int) and layer is not None and int(layer[1]) >= layers
        if not is_beyond and not _MAY_LACK.search(name):
            yield tensor.size // _NARROWED.get(tensor.dtype, 1)


def _values_per_token(config: Mapping[str, Any]) -> int:
    """Return how many numbers of a token the layers keep that see all of a request; 0 where the config does not tell."""
    text = config.get("text_config")
    keys = {**config, **(text if isinstance(text, dict) else {})}
    layers, kinds = keys.get("num_hidden_layers"), keys.get("layer_types")
    interval = keys.get("full_attention_interval")
    whole = keys.get("use_sliding_window") is False
    others = [key for key, held in keys.items() if held and not (whole and "sliding" in key)]
    if any(map(_SHARED_CACHE.search, others)):
        return 0
    if isinstance(kinds, list):
        layers = kinds.count("full_attention")
    elif isinstance(interval, int) and isinstance(layers, int) and interval > 0:
        layers //= interval
    elif any(map(_OTHER_ATTENTION.search, others)):
        return 0
    heads, width, head = map(keys.get, ("num_attention_heads", "hidden_size", "head_dim"))
    if head is None and type(width) is type(heads) is int and heads > 0:
        head = width // heads
    sizes = (layers, keys.get("num_key_value_heads", heads), head)
    counts = [n for n in sizes if type(n) is int and n > 0]
    return 2 * math.prod(counts) if len(counts) == 3 else 0


def _width(quantized: object, argv: Sequence[str]) -> float:
    """Return the bytes of one number in the cache."""
    named = flag_value(argv, "--kv-cache-dtype") or "auto"
    if named.startswith("fp8") or (named == "auto" and "kv_cache" in json.dumps(quantized)):
        return 1
    return 2 if named in {"auto", "bfloat16", "float16"} else 0.25


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB"
