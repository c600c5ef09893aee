"""What a checkpoint is, in the words that people compare models by. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from vllm_mods.checkpoints.checkpoint import Checkpoint

_PACKED = (".qweight", ".weight_packed")
_SCALE = ".weight_scale_inv"
_FP8 = frozenset({"F8_E4M3", "F8_E5M2"})
# A_log is the one tensor that GDN layers have in every model, and that nobody quantises.
_GDN = ".linear_attn.A_log"
_CONTEXT = "max_position_embeddings"


class LayerKinds(NamedTuple):
    """Layers of one kind: how many, and how many match each pattern (``*`` for each number in a name)."""

    total: int
    patterns: tuple[tuple[str, int], ...]


class ModelFacts(NamedTuple):
    """``quantization`` is the method's name, ``bits`` its width; ``context`` in tokens, ``weights`` in bytes. None: not said."""

    architecture: str | None
    model_type: str | None
    quantization: str | None
    bits: int | None
    packed: LayerKinds
    block_fp8: LayerKinds
    gdn: LayerKinds
    context: int | None
    weights: int = 0


def facts(checkpoint: Checkpoint) -> ModelFacts:
    """Return what a checkpoint's config and headers say."""
    names = checkpoint.tensors
    quantization = value(checkpoint.config, "quantization_config")
    table = quantization if isinstance(quantization, dict) else {}
    ends = tuple(name.rpartition(".")[0] for name in names if name.endswith(_PACKED))
    of_fp8 = (name for name, tensor in names.items() if tensor.dtype in _FP8)
    layers = (name.removesuffix(".weight") for name in of_fp8 if name.endswith(".weight"))
    fp8 = (layer for layer in layers if f"{layer}{_SCALE}" in names)
    return ModelFacts(
        architecture=next(iter(architectures(checkpoint)), None),
        model_type=_as(str, value(checkpoint.config, "model_type")),
        quantization=_as(str, table.get("quant_method")),
        bits=_as(int, table.get("bits")),
        packed=_layers(ends),
        block_fp8=_layers(fp8),
        gdn=_layers(name.removesuffix(".A_log") for name in names if name.endswith(_GDN)),
        context=_as(int, value(checkpoint.config, _CONTEXT)),
        weights=sum(tensor.size for tensor in names.values()),
    )


def architectures(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Return the classes that a config names for the model."""
    named = value(checkpoint.config, "architectures")
    return tuple(one for one in named if type(one) is str) if isinstance(named, list) else ()


def value(config: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401  (any JSON)
    """Return what a dotted key of a config leads to, else what it does below ``text_config``.

    A model that sees pictures keeps there what is said of its language model.
    """
    for top in (config, config.get("text_config")):
        entry: Any = top
        for part in key.split("."):
            entry = entry.get(part) if isinstance(entry, dict) else None
        if entry is not None:
            return entry
    return None


def _as(kind: type[Any], raw: object) -> Any:  # noqa: ANN401  (a ``kind``, or None)
    return raw if type(raw) is kind else None


def _layers(names: Iterable[str]) -> LayerKinds:
    # An expert's or a layer's number stands between dots.
    counted = Counter(re.sub(r"(?<=\.)\d+(?=\.|\Z)", "*", name) for name in names)
    return LayerKinds(sum(counted.values()), tuple(sorted(counted.items())))
