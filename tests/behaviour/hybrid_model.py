# mypy: disable-error-code="import-not-found, misc"
"""Make small Qwen3 checkpoints whose layers are quantised in different ways.

usage: python hybrid_model.py FOLDER [--hidden N] [--layers N]

FOLDER gets ``twin`` (bf16), and beside it, all with an AutoRound configuration:

* ``hybrid``: block FP8 and INT4 layers; ``twin`` has exactly the values these stand for,
* ``fault``: the same with the scales of one FP8 layer doubled,
* ``plain``: INT4 wherever ``hybrid`` has INT4 or FP8,
* ``other``: ``hybrid`` made from other random weights.

Needs torch, transformers and safetensors, no vLLM. INT4 is packed as GPTQ does it (eight values
to an int32 along the input, zero points stored minus one), FP8 as e4m3 with one scale per block.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

EDGE = 128
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
FAULTY = "model.layers.1.mlp.down_proj"


def is_fp8(layer: str) -> bool:
    """Tell which layers are FP8: every MLP, and what vLLM fuses to qkv in odd layers."""
    number, part = int(layer.split(".")[2]), layer.rpartition(".")[2]
    return part in MLP or (number % 2 == 1 and part in ATTENTION[:3])


def is_quantised(layer: str) -> bool:
    return layer.rpartition(".")[2] in (*ATTENTION, *MLP)


def fp8_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return e4m3 values and the scale of each 128 by 128 block."""
    rows, columns = weight.shape
    blocks = weight.reshape(rows // EDGE, EDGE, columns // EDGE, EDGE)
    scale = blocks.abs().amax((1, 3)) / torch.finfo(torch.float8_e4m3fn).max
    values = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    return values.reshape(rows, columns).contiguous(), scale.contiguous()


def from_fp8(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return what FP8 values with their blocks' scales stand for, as float32."""
    wide = scale.repeat_interleave(EDGE, 0).repeat_interleave(EDGE, 1)
    return values.float() * wide[: values.shape[0], : values.shape[1]]


def int4_of(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return integers in -8..7 and the scale of each group of 128 inputs."""
    groups = weight.unflatten(1, (-1, EDGE))
    scale = (groups.abs().amax(2) / 7).to(torch.bfloat16)
    values = (groups / scale[:, :, None].float()).round().clamp(-8, 7)
    return values.flatten(1).int(), scale


def from_int4(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return values.float() * scale.float().repeat_interleave(EDGE, 1)


def packed(values: torch.Tensor) -> torch.Tensor:
    """Pack values of 0..15, eight to an int32, along the first dimension."""
    words = values.unflatten(0, (-1, 8)).to(torch.int64)
    shifts = torch.arange(0, 32, 4).reshape(1, 8, 1)
    word = (words << shifts).sum(1)
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32).contiguous()


def int4_tensors(layer: str, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    values, scale = int4_of(weight)
    groups = scale.shape[1]
    zeros = torch.full((weight.shape[0], groups), 7, dtype=torch.int32)
    return {
        f"{layer}.qweight": packed((values + 8).t()),
        f"{layer}.scales": scale.t().contiguous(),
        f"{layer}.qzeros": packed(zeros).t().contiguous(),
        f"{layer}.g_idx": (torch.arange(weight.shape[1]) // EDGE).int(),
    }


def fp8_tensors(layer: str, weight: torch.Tensor, factor: float = 1) -> dict[str, torch.Tensor]:
    values, scale = fp8_of(weight)
    return {f"{layer}.weight": values, f"{layer}.weight_scale_inv": scale * factor}


def base(folder: Path, hidden: int, layers: int) -> dict[str, torch.Tensor]:
    """Write the configuration and a byte tokenizer; return random weights."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=512,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 128,
        num_key_value_heads=max(1, hidden // 256),
        head_dim=128,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    weights: dict[str, torch.Tensor] = load_file(folder / "model.safetensors")
    return weights


def write(folder: Path, like: Path, tensors: dict[str, torch.Tensor], fp8: list[str]) -> None:
    """Write one quantised checkpoint; ``fp8`` are listed as AutoRound lists what it leaves alone."""
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    untouched = {"bits": 16, "data_type": "fp"}
    config["quantization_config"] = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": EDGE,
        "sym": True,
        "data_type": "int",
        "packing_format": "auto_round:auto_gptq",
        "block_name_to_quantize": "model.layers",
        "extra_config": dict.fromkeys(("lm_head", *fp8), untouched),
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def family(folder: Path, hidden: int, layers: int, seed: int) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors of every form that one set of random weights takes."""
    torch.manual_seed(seed)
    forms: dict[str, dict[str, torch.Tensor]] = {
        name: {} for name in ("twin", "hybrid", "fault", "plain")
    }
    for name, weight in base(folder, hidden, layers).items():
        layer = name.removesuffix(".weight")
        if not is_quantised(layer):
            for tensors in forms.values():
                tensors[name] = weight
            continue
        wide = weight.float() * 4  # so that the layers matter beside the residual stream
        forms["plain"] |= int4_tensors(layer, wide)
        if is_fp8(layer):
            forms["hybrid"] |= fp8_tensors(layer, wide)
            forms["fault"] |= fp8_tensors(layer, wide, 2 if layer == FAULTY else 1)
            meant = from_fp8(*fp8_of(wide))
        else:
            forms["hybrid"] |= int4_tensors(layer, wide)
            forms["fault"] |= int4_tensors(layer, wide)
            meant = from_int4(*int4_of(wide))
        forms["twin"][name] = meant.to(torch.bfloat16)
    return forms


def make(folder: Path, hidden: int, layers: int) -> None:
    twin = folder / "twin"
    forms = family(twin, hidden, layers, seed=1)
    names = {name.removesuffix(".weight") for name in forms["twin"]}
    fp8 = sorted(layer for layer in names if is_quantised(layer) and is_fp8(layer))
    for name in ("hybrid", "fault", "plain"):
        write(folder / name, twin, forms[name], [] if name == "plain" else fp8)
    save_file(forms["twin"], twin / "model.safetensors", {"format": "pt"})
    scratch = folder / "scratch"
    write(folder / "other", twin, family(scratch, hidden, layers, seed=2)["hybrid"], fp8)
    shutil.rmtree(scratch)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    make(options.folder, options.hidden, options.layers)
