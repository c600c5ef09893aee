"""Whether a GPU has room for a model: its weights, and the KV cache of one request; never more than is sure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.base.errors import UsageError
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.device import GIB, Device, device
from vllm_mods.checkpoints.memory import MemoryNeed, memory_need
from vllm_mods.formats.safetensors import Tensor

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = {
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 1024,
    "n_shared_experts": 1,
}
PER_TOKEN = 4 * 2 * 2 * 128 * 2
"""Layers, keys and values, heads, their width, bytes."""


def need(command: str = "", config: dict[str, Any] = PLAIN, **sizes: int) -> MemoryNeed | None:
    named = {name.replace("__", "."): Tensor("BF16", (), size) for name, size in sizes.items()}
    tensors = named or {"model.layers.0.a.weight": Tensor("BF16", (), 1000)}
    checkpoint = Checkpoint("org/m", None, config, tensors, "0" * 64, None)
    return memory_need(checkpoint, ("vllm", "serve", "org/m", *command.split()))


def test_weights_and_the_cache_of_one_request_are_counted() -> None:
    assert need("--max-model-len 32k --gpu-memory-utilization=0.5") == (
        *(1000, PER_TOKEN, 32000, 1),
        0.5,
    )
    assert need() == (1000, PER_TOKEN, 0, 1, 0.92)
    assert need("--max-model-len auto") == need("--max_model_len -1") == need()
    assert need("--max-model 2K") == need("--max-model-len 1 --max-model-len 2048")


@pytest.mark.parametrize(
    ("command", "weights", "token"),
    [
        ("-tp 2", 500, PER_TOKEN // 2),
        ("--tensor-parallel 2 --pipeline-parallel-size=2", 250, PER_TOKEN // 4),
        ("-dp 4 --enable-expert-parallel", 250, PER_TOKEN // 4),
        ("-tp 2 -dcp 2", 500, PER_TOKEN // 4),
        ("--kv-cache-dtype fp8_e4m3", 1000, PER_TOKEN // 2),
        ("--kv-cache-dtype turboquant_4bit", 1000, PER_TOKEN // 8),
        ("-tp two -pp 0", 1000, PER_TOKEN),
    ],
)
def test_each_gpu_has_a_part_of_both(command: str, weights: int, token: int) -> None:
    found = need(command)
    assert found is not None
    assert found[:2] == (weights, token)


@pytest.mark.parametrize(
    "command",
    [
        *("-q fp8", "--quantization=bitsandbytes", "--cpu-offload-gb 10", "--load-format dummy"),
        *("--hf-overrides.num_hidden_layers 2", "--config x.yaml", "--kv-cache-memory-bytes 1"),
    ],
)
def test_what_a_command_makes_smaller_is_not_known(command: str) -> None:
    assert need(command) is None


def test_a_checkpoint_without_weights_and_one_that_is_quantised_already() -> None:
    assert need(model__a=0) is None
    quantized = {**PLAIN, "quantization_config": {"quant_method": "fp8"}}
    assert need("-q fp8", quantized) == need()
    cached = {**PLAIN, "quantization_config": {"kv_cache_quant_algo": "FP8"}}
    found = need("", cached)
    assert found is not None
    assert found.token == PER_TOKEN // 2


@pytest.mark.parametrize(
    ("more", "layers"),
    [
        ({"layer_types": ["full_attention", "linear_attention"] * 2}, 2),
        ({"layer_types": ["sliding_attention"] * 3 + ["full_attention"], "sliding_window": 9}, 1),
        ({"full_attention_interval": 4, "linear_key_head_dim": 128}, 1),
        ({"sliding_window": 4096, "use_sliding_window": False}, 4),
        ({"sliding_window": None, "cross_attention_hidden_size": None}, 4),
        *(({key: 2}, 0) for key in ("sliding_window", "attn_layer_period", "mamba_d_state")),
        ({"layer_types": ["full_attention"] * 4, "num_kv_shared_layers": 2}, 0),
        ({"layer_types": ["mamba"] * 4}, 0),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64}, 0),
        ({"num_hidden_layers": None}, 0),
        ({"num_key_value_heads": "2"}, 0),
    ],
)
def test_only_layers_that_keep_every_token_are_counted(more: dict[str, Any], layers: int) -> None:
    for config in ({**PLAIN, **more}, {"text_config": {**PLAIN, **more}}):
        found = need("--max-model-len 9", config)
        assert found is not None
        assert found.token == PER_TOKEN // 4 * layers


def test_what_a_server_may_do_without_is_not_counted() -> None:
    mtp = {"model__layers__3__a": 5, "model__layers__4__a": 7, "mtp__layers__0__a": 11}
    found = need("--speculative-config.method mtp", PLAIN, **mtp, model__visual__a=13)
    assert found is not None
    assert found.weights == 5


def test_wide_floats_are_held_narrow() -> None:
    tensors = {"a": Tensor("F32", (), 400), "b": Tensor("F64", (), 400), "c": Tensor("I32", (), 4)}
    found = memory_need(Checkpoint("m", None, {}, tensors, "", None), ())
    assert found == (304, 0, 0, 1, 0.92)


@pytest.mark.parametrize("text", ["nan", "-1", "0", "2", "1e-9", "x", ""])
def test_a_share_that_vllm_would_not_take_is_none(text: str) -> None:
    assert need(f"--gpu-memory-utilization={text}") == need()


def test_what_has_no_room_is_told_with_its_numbers() -> None:
    gpu = Device("NVIDIA X", 80 * GIB)
    fits = MemoryNeed(70 * GIB, GIB // 1024, 2048, 1, 0.9)
    assert fits.shortfall(gpu) == ""
    long = fits._replace(length=4096)
    assert long.shortfall(gpu) == (
        "the model needs 70.0 GiB for weights and 4.0 GiB for the KV cache of 4,096 tokens on the GPU, "
        "but vLLM may use only 72.0 GiB (0.9 of the 80.0 GiB of NVIDIA X)"
    )
    assert long.remedy(gpu) == "--max-model-len 2048 at most"
    large = MemoryNeed(80 * GIB, 0, 0, 2, 0.9)
    assert large.shortfall(gpu).startswith(
        "the model needs 80.0 GiB for weights on each of 2 GPUs, but "
    )
    assert large.remedy(gpu) == "--tensor-parallel-size 3 at least"


def test_a_gpu_is_what_somebody_says_or_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("96g", "96 GiB", "96.0GB"):
        assert device(text) == ("--device-memory", 96 * GIB)
    with pytest.raises(UsageError) as caught:
        device("lots")
    assert caught.value.message == "--device-memory lots: not a size"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert device(None) is None
    program = tmp_path / "nvidia-smi"
    for answer, expected in (
        ("NVIDIA A, 100\nNVIDIA B, 200", ("NVIDIA B", 200 << 20)),
        ("No devices were found", None),
        ("", None),
    ):
        program.write_text(f"#!/bin/sh\necho '{answer}'\n")
        program.chmod(0o755)
        assert device(None) == expected
    program.write_text("#!/bin/sh\necho 'NVIDIA GB10, [N/A]'\n")
    spark = device(None)
    assert spark is not None
    assert (spark.name, spark.memory > GIB) == ("NVIDIA GB10 and the CPU together", True)
    program.write_text("#!/bin/sh\necho 'NVIDIA A, 9'; exit 9\n")
    assert device(None) is None
