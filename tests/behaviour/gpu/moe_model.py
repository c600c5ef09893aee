# mypy: disable-error-code="import-not-found, misc"
"""Make random Qwen3.5-MoE checkpoints: the shape that hybrid-int4-fp8 was written for.

usage: python moe_model.py FOLDER

Three layers of gated delta rule, one of attention, 16 experts of which four answer, a shared expert,
an MTP head, a picture tower that nothing uses. FOLDER gets, each with what the others' values stand for:

* ``twin``: bf16, with the values that the quantised ones stand for,
* ``fp8``: block FP8 in vLLM's own format, the experts in bf16 with the values of their INT4,
* ``hybrid``: the same FP8 layers, the experts INT4, as AutoRound writes both,
* ``other``: ``hybrid`` made from other random weights.

Routers, the narrow GDN projections, the head, the tower and MTP stay bf16. Needs torch,
transformers and safetensors, no vLLM.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from flashqla_engine import spread_memory
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from hybrid_model import EDGE, fp8_of, fp8_tensors, from_fp8, from_int4, int4_of, int4_tensors

HIDDEN = 1024
WIDTH = 512
EXPERTS = 16
TEXT = "model.language_model."
FP8 = ("q_proj", "k_proj", "v_proj", "o_proj", "in_proj_qkv", "in_proj_z", "out_proj")
MLP = ("gate_proj", "up_proj", "down_proj")
SPECIAL = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

Tensors = dict[str, torch.Tensor]


def is_expert(layer: str) -> bool:
    return layer.startswith(TEXT) and ".experts." in layer


def is_fp8(layer: str) -> bool:
    last = layer.rpartition(".")[2]
    shared = ".shared_expert." in layer and last in MLP
    return layer.startswith(f"{TEXT}layers.") and (last in FP8 or shared)


def save_tokenizer(folder: Path) -> dict[str, int]:
    """Write a byte tokenizer and the pictures' processors; return the special tokens' numbers."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    whole = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, additional_special_tokens=list(SPECIAL), **special
    )
    whole.save_pretrained(folder)
    sizes = {"size": {"shortest_edge": 65536, "longest_edge": 16777216}}
    pictures = {"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2, **sizes}
    means = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    for name, kind in (("", "Qwen2VLImageProcessorFast"), ("video_", "Qwen3VLVideoProcessor")):
        key = f"{name or 'image_'}processor_type"
        text = json.dumps({key: kind, "processor_class": "Qwen3VLProcessor", **pictures, **means})
        (folder / f"{name}preprocessor_config.json").write_text(text)
    return {token: whole.convert_tokens_to_ids(token) for token in SPECIAL}


def base(folder: Path) -> Tensors:
    """Write the configuration and the tokenizer; return random weights."""
    from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration

    numbers = save_tokenizer(folder)
    rope = {
        "rope_type": "default",
        "rope_theta": 10_000_000,
        "mrope_section": [6, 5, 5],
        "mrope_interleaved": True,
        "partial_rotary_factor": 0.25,
    }
    text = {
        "vocab_size": 512,
        "hidden_size": HIDDEN,
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "linear_num_key_heads": 8,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "num_experts": EXPERTS,
        "num_experts_per_tok": 4,
        "moe_intermediate_size": WIDTH,
        "shared_expert_intermediate_size": WIDTH,
        "max_position_embeddings": 2048,
        "mtp_num_hidden_layers": 1,
        "rope_parameters": rope,
        "dtype": "bfloat16",
    }
    tower = {
        "depth": 1,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 256,
        "deepstack_visual_indexes": [],
    }
    config = Qwen3_5MoeConfig(
        text_config=text,
        vision_config=tower,
        tie_word_embeddings=False,
        dtype="bfloat16",
        vision_start_token_id=numbers["<|vision_start|>"],
        vision_end_token_id=numbers["<|vision_end|>"],
        image_token_id=numbers["<|image_pad|>"],
        video_token_id=numbers["<|video_pad|>"],
    )
    model = Qwen3_5MoeForConditionalGeneration(config)
    spread_memory(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    weights: Tensors = load_file(folder / "model.safetensors")
    return weights | mtp_head(weights)


def mtp_head(weights: Tensors) -> Tensors:
    """Return a random head that predicts a further token: one layer of attention and experts."""
    layer = f"{TEXT}layers.3."
    head = {
        f"mtp.layers.0.{name.removeprefix(layer)}": torch.randn_like(weight.float()) * 0.02
        if weight.dim() > 1
        else weight.clone()
        for name, weight in weights.items()
        if name.startswith(layer)
    }
    head["mtp.fc.weight"] = torch.randn(HIDDEN, 2 * HIDDEN) * 0.02
    for norm in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        head[f"mtp.{norm}.weight"] = torch.zeros(HIDDEN)
    return {name: weight.to(torch.bfloat16).contiguous() for name, weight in head.items()}


def family(folder: Path, seed: int) -> dict[str, Tensors]:
    """Return the tensors of every form that one set of random weights takes."""
    torch.manual_seed(seed)
    forms: dict[str, Tensors] = {name: {} for name in ("twin", "fp8", "hybrid")}
    for name, weight in base(folder).items():
        layer = name.removesuffix(".weight")
        wide = weight.float() * 4  # so that the layers matter beside the residual stream
        if is_expert(layer):
            meant = from_int4(*int4_of(wide)).to(torch.bfloat16)
            forms["hybrid"] |= int4_tensors(layer, wide)
            forms["twin"][name] = forms["fp8"][name] = meant
        elif is_fp8(layer):
            forms["hybrid"] |= fp8_tensors(layer, wide)
            forms["fp8"] |= fp8_tensors(layer, wide)
            forms["twin"][name] = from_fp8(*fp8_of(wide)).to(torch.bfloat16)
        else:
            for tensors in forms.values():
                tensors[name] = weight
    return forms


def write(folder: Path, like: Path, tensors: Tensors, quantisation: Mapping[str, object]) -> None:
    shutil.copytree(like, folder, ignore=shutil.ignore_patterns("*.safetensors*"))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantisation
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def make(folder: Path) -> None:
    twin, scratch = folder / "twin", folder / "scratch"
    forms = family(twin, seed=1)
    layers = {
        name.removesuffix(".weight")
        for name, weight in forms["twin"].items()
        if name.endswith(".weight") and weight.dim() > 1
    }
    fp8 = sorted(filter(is_fp8, layers))
    left = sorted(layer for layer in layers if not is_fp8(layer))
    auto_round = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": EDGE,
        "sym": True,
        "data_type": "int",
        "packing_format": "auto_round:auto_gptq",
        "block_name_to_quantize": f"{TEXT}layers",
        "extra_config": {
            layer: {"bits": 16, "data_type": "fp"}
            for layer in (*fp8, *left)
            if not is_expert(layer)
        },
    }
    own = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [EDGE, EDGE],
        "modules_to_not_convert": left,
    }
    write(folder / "hybrid", twin, forms["hybrid"], auto_round)
    write(folder / "fp8", twin, forms["fp8"], own)
    write(folder / "other", twin, family(scratch, seed=2)["hybrid"], auto_round)
    shutil.rmtree(scratch)
    save_file(forms["twin"], twin / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    make(Path(sys.argv[1]))
