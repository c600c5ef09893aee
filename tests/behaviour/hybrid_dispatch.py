# mypy: disable-error-code="import-not-found, misc"
"""Ask the vLLM on PYTHONPATH which method each layer of some checkpoints gets.

usage: python hybrid_dispatch.py FOLDER…   (with a case.json beside the weights; see ``answers``)

vLLM's own functions are called in its own order: ``VllmConfig`` makes the quantization
config, the model loader applies the name mapping, and each layer asks for its method. What
is stood in for: the model (a class with the two mappings), the layers, and a GPU of
compute capability 9.0, whose FP8 kernels nothing here calls. Prints one JSON object per folder.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

SEEN: list[str] = []


class _Recorder(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SEEN.append(record.getMessage())


class _Kernel:
    """Takes any layer and is never run."""

    is_supported = can_implement = classmethod(lambda *_, **__: (True, None))

    def __init__(self, *_: object, **__: object) -> None:
        pass


def _pretend_gpu() -> None:
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    kind = type(current_platform)
    kind.get_device_capability = classmethod(lambda *_, **__: DeviceCapability(9, 0))
    kind.get_device_name = classmethod(lambda *_, **__: "stand-in")
    try:
        from vllm.model_executor.kernels import linear
    except ImportError:  # 0.16 has the tables elsewhere, and asks none of them for block FP8
        return
    for name, table in vars(linear).items():
        if name.startswith("_POSSIBLE_FP8"):
            table[current_platform._enum] = [_Kernel]


def _vllm_config(model: str, hf: dict[str, Any]) -> Any:
    """The quantization config, made as VllmConfig makes it when vLLM starts."""
    import torch
    from vllm.config import VllmConfig

    config = SimpleNamespace(**hf, text_config=None, _commit_hash=None)
    return VllmConfig._get_quantization_config(
        SimpleNamespace(
            model=model,
            hf_config=config,
            hf_text_config=config,
            hf_overrides={},
            quantization="inc",
            quantization_config=None,
            dtype=torch.bfloat16,
            revision=None,
        ),
        SimpleNamespace(download_dir=None),
    )


def _layer(kind: str) -> Any:
    import torch
    from vllm.model_executor.layers import fused_moe, linear, vocab_parallel_embedding

    cls = {
        "linear": linear.LinearBase,
        "moe": getattr(fused_moe, "RoutedExperts", None) or fused_moe.FusedMoE,
        "head": vocab_parallel_embedding.ParallelLMHead,
        "other": torch.nn.Module,
    }[kind]
    layer = cls.__new__(cls)
    torch.nn.Module.__init__(layer)
    if kind == "moe":
        # Enough of a layer for the checks that vLLM makes before it picks a method.
        sizes = {"hidden_size": 2048, "intermediate_size_per_partition": 1024}
        vars(layer).update(
            sizes,
            moe_config=MagicMock(hidden_dim=2048, moe_backend="auto", **sizes),
            apply_router_weight_on_input=False,
        )
    return layer


def _answer(config: Any, prefix: str, kind: str) -> str:
    layer = _layer(kind)
    try:
        method = config.get_quant_method(layer, prefix)
    except (ValueError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"
    block = getattr(getattr(method, "quant_config", None), "weight_block_size", None)
    if block and layer.quant_config.weight_block_size != block:
        return "the layer does not know its block size"
    return type(method).__name__ + (f" {block[0]}x{block[1]}" if block else "")


def answers(folder: str) -> dict[str, Any]:
    """case.json has "config", "prefixes", "packed", "mapper", "layers" (prefix to kind)."""
    with open(os.path.join(folder, "case.json")) as file:
        case = json.load(file)
    import torch
    import vllm
    from vllm.config import DeviceConfig, VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.quantization import fp8
    from vllm.model_executor.model_loader.utils import configure_quant_config
    from vllm.model_executor.models.utils import WeightsMapper

    SEEN.clear()

    class Experts:
        """For Fp8MoEMethod, whose choice of a backend asks for a real GPU and a real layer."""

        def __init__(self, quant_config: Any, layer: Any) -> None:
            assert layer.moe_config is not None
            self.quant_config = quant_config

    Experts.__name__ = "Fp8MoEMethod"
    fp8.Fp8MoEMethod = Experts

    try:
        config = _vllm_config(folder, {"quantization_config": case["config"]})
    except ValueError as error:  # a format that this release does not know
        return {"vllm": vllm.__file__, "survives_copies": True, "refused": str(error)}

    class Model(torch.nn.Module):
        hf_to_vllm_mapper = WeightsMapper(orig_to_new_prefix=case["mapper"])
        packed_modules_mapping = case["packed"]

    configure_quant_config(config, Model)
    current = VllmConfig(device_config=DeviceConfig(device="cpu"))
    current.model_config = SimpleNamespace(dtype=torch.bfloat16)
    with set_current_vllm_config(current):
        told = {prefix: _answer(config, prefix, kind) for prefix, kind in case["layers"].items()}
        copies = (copy.deepcopy(config), pickle.loads(pickle.dumps(config)))  # noqa: S301
        same = all(
            {p: _answer(other, p, kind) for p, kind in case["layers"].items()} == told
            for other in copies
        )
    return {
        "vllm": vllm.__file__,
        "methods": told,
        "survives_copies": same,
        "blocked": getattr(config, "has_blocked_weights", lambda: None)(),
        "use_deep_gemm": getattr(config, "use_deep_gemm", "absent"),
        "log": [line for line in SEEN if line.startswith("Hybrid")],
    }


if __name__ == "__main__":
    _pretend_gpu()
    logger = logging.getLogger("vllm")
    logger.addHandler(_Recorder())
    logger.setLevel(logging.INFO)  # as `vllm serve` does first of all from 0.31 on
    for one in sys.argv[1:]:
        sys.stdout.write("ANSWER " + json.dumps(answers(one)) + "\n")
