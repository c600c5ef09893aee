# SPDX-License-Identifier: Apache-2.0
"""FP8 layers inside a checkpoint that INC (AutoRound) loads as INT4.

Some checkpoints keep part of their layers as block-quantised FP8, as they were
released, and hold the rest as INT4. Their quantization_config describes the
INT4 part only. What tells the two apart is the checkpoint itself: an FP8 layer
has a `<layer>.weight` of dtype float8_e4m3fn and a `<layer>.weight_scale_inv`
with one scale per block.

`attach` reads the safetensors headers and notes these layers on the INCConfig,
`rename` follows the model's weight-name mapping, and `quant_method` answers
for one layer of the model. Without such layers all three do nothing.

Nothing of vLLM is imported at module level, so that the reading and naming
rules can be tried without it.
"""

import json
import logging
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

# A child of vLLM's own "vllm" logger: it has its handlers and its level.
logger = logging.getLogger(__name__)

WEIGHT = ".weight"
SCALE = ".weight_scale_inv"
INDEX = "model.safetensors.index.json"
# The block edge of every FP8 checkpoint in circulation, and the one that the
# fast kernels are written for. Taken wherever the shapes allow it.
USUAL_EDGE = 128

Block = tuple[int, int]
# The block edges, smallest and largest, that fit one dimension; None: no limit.
Edges = tuple[int, int | None]


class HeadersUnavailable(Exception):
    """The safetensors headers can't be had now; says why."""


@dataclass(frozen=True)
class Fp8Layers:
    """The FP8 layers of one checkpoint, by name, each with its block size.

    `others` are the layers beside them that are not FP8: the remaining parts
    of what vLLM may fuse with an FP8 layer (the other projections of the same
    attention, the other experts of the same block).
    """

    blocks: dict[str, Block]
    others: frozenset[str]

    def __bool__(self) -> bool:
        return bool(self.blocks)

    def renamed(self, mapper: Any) -> "Fp8Layers":
        """The same layers under the names a WeightsMapper gives their weights.

        Rules such as "lm_head." match a tensor's name, not a layer's, hence
        the mapping of `<layer>.weight`.
        """
        weights = {name + WEIGHT: block for name, block in self.blocks.items()}
        blocks = mapper.apply_dict(weights)
        others = mapper.apply_list([name + WEIGHT for name in sorted(self.others)])
        return Fp8Layers(
            {name.removesuffix(WEIGHT): block for name, block in blocks.items()},
            frozenset(name.removesuffix(WEIGHT) for name in others),
        )

    def linear(self, prefix: str, fused: Mapping[str, list[str]]) -> Block | None:
        """The block size of the linear layer `prefix`; None: it is not FP8.

        `fused` maps a fused layer's last name to those of its shards, as
        `packed_modules_mapping` does. Raises ValueError when some shards are
        FP8 and others are not, or when their block sizes differ.
        """
        for name in _spellings(prefix):
            if name in self.blocks:
                return self.blocks[name]
            parent, _, last = name.rpartition(".")
            shards = [f"{parent}.{s}" if parent else s for s in fused.get(last, ())]
            if any(shard in self.blocks for shard in shards):
                return self._agreed(prefix, shards)
        return None

    def experts(self, prefix: str) -> Block | None:
        """The block size of the expert layers below `prefix`; None: not FP8.

        Raises ValueError when only some of the experts' layers are FP8.
        """
        for name in _spellings(prefix):
            parts = [
                layer
                for layer in (*self.blocks, *self.others)
                if layer.startswith(name) and _group(layer) == name
            ]
            if any(part in self.blocks for part in parts):
                return self._agreed(prefix, parts)
        return None

    def _agreed(self, prefix: str, parts: list[str]) -> Block:
        # A part that is in neither set is not in the checkpoint at all (a model
        # without that projection) and has no say.
        fp8 = sorted(part for part in parts if part in self.blocks)
        others = sorted(part for part in parts if part in self.others)
        if others:
            raise ValueError(
                f"Layer '{prefix}' can't be loaded, its parts in the checkpoint have "
                f"different formats: FP8 {_some(fp8)}; not FP8 {_some(others)}."
            )
        sizes = {self.blocks[part] for part in fp8}
        if len(sizes) > 1:
            raise ValueError(
                f"Layer '{prefix}' can't be loaded, its FP8 parts in the checkpoint "
                f"have different block sizes: {_some(fp8)}, of {sorted(sizes)}."
            )
        return sizes.pop()


def find_fp8_layers(tensors: Mapping[str, Any]) -> Fp8Layers:
    """The FP8 layers among `tensors`: name to safetensors header entry.

    An entry is a mapping with "dtype" (as safetensors writes it, "F8_E4M3")
    and "shape". A weight without a matrix of scales is left out: that is
    another format. Raises ValueError when a weight and its scales have shapes
    that no block size explains.
    """
    edges: dict[str, tuple[Edges, Edges]] = {}
    for name, entry in tensors.items():
        layer = name.removesuffix(WEIGHT)
        scale = tensors.get(layer + SCALE)
        if layer == name or scale is None or entry["dtype"] != "F8_E4M3":
            continue
        shape, blocks = tuple(entry["shape"]), tuple(scale["shape"])
        if len(shape) != 2 or len(blocks) != 2:
            continue
        rows, columns = map(_edges, shape, blocks)
        if rows is None or columns is None:
            raise ValueError(
                f"Tensor '{name}' of shape {shape} has scales of shape {blocks} in "
                f"'{layer + SCALE}': no block size leads from one to the other."
            )
        edges[layer] = (rows, columns)
    groups = {_group(layer) for layer in edges}
    layers = {name.rpartition(".")[0] for name in tensors}
    return Fp8Layers(
        _block_sizes(edges),
        frozenset(layer for layer in layers - edges.keys() if _group(layer) in groups),
    )


def _edges(size: int, blocks: int) -> Edges | None:
    """The block edges that cut `size` into `blocks`, the last one maybe short."""
    if not 0 < blocks <= size:
        return None
    low = -(-size // blocks)
    high = None if blocks == 1 else -(-size // (blocks - 1)) - 1
    return None if high is not None and low > high else (low, high)


def _edge(fits: Iterable[Edges]) -> int | None:
    """One block edge for all of `fits`, the usual one if it is among them."""
    pairs = list(fits)
    low = max(low for low, _ in pairs)
    high = min((high for _, high in pairs if high is not None), default=None)
    if high is not None and low > high:
        return None
    power = 1 << (low - 1).bit_length()
    for edge in (USUAL_EDGE, power):
        if low <= edge and (high is None or edge <= high):
            return edge
    return low


def _block_sizes(edges: Mapping[str, tuple[Edges, Edges]]) -> dict[str, Block]:
    """A block size for each layer: one for all of them if one fits all."""
    if not edges:
        return {}
    rows = _edge(row for row, _ in edges.values())
    columns = _edge(column for _, column in edges.values())
    # A layer alone always has an edge: _edges has seen to that.
    return {
        name: (rows or _edge([row]) or 0, columns or _edge([column]) or 0)
        for name, (row, column) in edges.items()
    }


def _group(layer: str) -> str:
    """Where the layers lie that vLLM may fuse with `layer`.

    That is its parent, or what holds the parent if that is an expert's number.
    """
    parent = layer.rpartition(".")[0]
    before, _, last = parent.rpartition(".")
    return before if last.isdigit() else parent


def _spellings(prefix: str) -> tuple[str, str]:
    # INC itself takes a name in the config with or without the outer "model.".
    return prefix, f"model.{prefix}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def read_header(path: str) -> dict[str, Any]:
    """The header of one safetensors file: an 8-byte length, then JSON."""
    try:
        with open(path, "rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > os.path.getsize(path):
                raise HeadersUnavailable(f"{path} is cut short or no safetensors file")
            header: dict[str, Any] = json.loads(file.read(length))
    except (OSError, ValueError, struct.error) as error:
        raise HeadersUnavailable(f"{path}: {error}") from error
    header.pop("__metadata__", None)
    return header


def read_folder(folder: str) -> dict[str, Any]:
    """The headers of the safetensors files that vLLM would load from `folder`.

    With an index these are the files it names, else all of them.
    """
    index = os.path.join(folder, INDEX)
    if os.path.isfile(index):
        try:
            with open(index, encoding="utf-8") as file:
                names = sorted(set(json.load(file)["weight_map"].values()))
        except (OSError, ValueError, KeyError) as error:
            raise HeadersUnavailable(f"{index}: {error}") from error
    else:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    if not names:
        raise HeadersUnavailable(f"no safetensors file in {folder}")
    tensors: dict[str, Any] = {}
    for name in names:
        tensors.update(read_header(os.path.join(folder, name)))
    return tensors


@lru_cache(maxsize=4)
def _find_on_hub(model: str, revision: str | None) -> Fp8Layers:
    # Kept because a draft model inside the same checkpoint asks again, and
    # each asking is one request per file.
    from huggingface_hub import snapshot_download
    from vllm.transformers_utils.config import get_safetensors_params_metadata

    try:
        tensors = get_safetensors_params_metadata(model, revision=revision)
        if not tensors:
            # The hub did not answer. What vLLM loads then is what it has
            # downloaded before.
            tensors = read_folder(
                snapshot_download(model, revision=revision, local_files_only=True)
            )
    except (OSError, ValueError) as error:
        raise HeadersUnavailable(str(error).strip().split("\n")[0]) from error
    return find_fp8_layers(tensors)


def find_in_checkpoint(model: str, revision: str | None) -> Fp8Layers:
    """The FP8 layers of `model`: a folder, a file, or a name on the hub.

    Raises HeadersUnavailable where there is nothing to read yet or at all.
    """
    if os.path.isdir(model):
        return find_fp8_layers(read_folder(model))
    if os.path.isfile(model):
        return find_fp8_layers(read_header(model))
    if "://" in model:
        raise HeadersUnavailable("object storage is not read")

    from vllm import envs

    if envs.VLLM_USE_MODELSCOPE:
        from vllm.transformers_utils.utils import convert_model_repo_to_path

        folder = convert_model_repo_to_path(model)
        if not os.path.isdir(folder):
            raise HeadersUnavailable("not downloaded from ModelScope yet")
        return find_fp8_layers(read_folder(folder))
    return _find_on_hub(model, revision)


def attach(config: Any, model: str, revision: str | None = None) -> None:
    """Look for FP8 layers in `model`, note them on the INCConfig, and log it.

    Never fails for want of headers: then the config answers as it always did.
    So it does for a checkpoint that is not INT4 at all: block FP8 throughout
    is a format of INC's own from 0.29 on.
    """
    if config.data_type != "int":
        return
    where = f"{model} at revision {revision}" if revision else model
    try:
        layers = find_in_checkpoint(model, revision)
    except HeadersUnavailable as error:
        logger.warning("Hybrid INT4+FP8: inactive, no headers of %s (%s)", where, error)
        return
    if not layers:
        logger.info("Hybrid INT4+FP8: no FP8 layers in %s, nothing changes", where)
        return
    config.hybrid_fp8 = layers
    # vLLM looks for this attribute to switch DeepGEMM off for models that lose
    # accuracy with it (from 0.19), and for an FP8 config only.
    config.use_deep_gemm = None
    sizes = sorted({f"{rows}x{columns}" for rows, columns in layers.blocks.values()})
    logger.info(
        "Hybrid INT4+FP8: %d FP8 layers in %s, blocks of %s; INC loads the others",
        len(layers.blocks),
        where,
        ", ".join(sizes),
    )


def rename(config: Any, mapper: Any) -> None:
    """Follow the model's weight-name mapping, as `apply_vllm_mapper` asks."""
    if config.hybrid_fp8:
        config.hybrid_fp8 = config.hybrid_fp8.renamed(mapper)


def quant_method(config: Any, layer: Any, prefix: str) -> Any | None:
    """The FP8 method of `layer`, or None where INC is to answer.

    The release's own Fp8Config makes the method, for linear layers and for
    experts. Raises ValueError for a layer that is FP8 in part, and for an
    embedding or output head, which vLLM has no block FP8 method for.
    """
    if not config.hybrid_fp8:
        return None
    from vllm.model_executor.layers import fused_moe
    from vllm.model_executor.layers.linear import LinearBase
    from vllm.model_executor.layers.quantization.fp8 import Fp8Config
    from vllm.model_executor.layers.vocab_parallel_embedding import (
        VocabParallelEmbedding,
    )

    # What holds the experts' weights: FusedMoE itself before 0.22.
    names = [n for n in ("RoutedExperts", "FusedMoE") if hasattr(fused_moe, n)]
    if isinstance(layer, getattr(fused_moe, names[0])):
        block = config.hybrid_fp8.experts(prefix)
    elif isinstance(layer, (LinearBase, VocabParallelEmbedding)):
        block = config.hybrid_fp8.linear(prefix, config.packed_modules_mapping)
    else:
        return None
    if block is None:
        return None
    fp8 = Fp8Config(
        is_checkpoint_fp8_serialized=True,
        activation_scheme="dynamic",
        weight_block_size=list(block),
    )
    if hasattr(fp8, "use_deep_gemm"):
        fp8.use_deep_gemm = config.use_deep_gemm
    method = fp8.get_quant_method(layer, prefix)
    if method is None:
        raise ValueError(
            f"Layer '{prefix}' ({type(layer).__name__}) is block-quantised FP8 in the "
            "checkpoint, and vLLM has no method to load it so: store it in 16 bits."
        )
    # The layer reads its block size from its own config when it checks the
    # sizes of its shards.
    layer.quant_config = fp8
    _log_when_loaded(method)
    return method


def _log_when_loaded(method: Any) -> None:
    """Have `method` log that it has the weights of its layer, when it has."""
    process = method.process_weights_after_loading

    def process_and_log(layer: Any) -> None:
        process(layer)
        _log_loaded()

    method.process_weights_after_loading = process_and_log


@lru_cache(maxsize=1)
def _log_loaded() -> None:
    # Once per process. That a configuration names FP8 layers says less: it is
    # read before any weight is.
    logger.info("Hybrid INT4+FP8: block FP8 weights are loaded")
