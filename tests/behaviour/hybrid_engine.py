# mypy: disable-error-code="import-not-found, misc"
"""Run one checkpoint in the vLLM on PYTHONPATH; write what it computed.

usage: python hybrid_engine.py MODEL RESULT.json [--twin TWIN] [--reference-kernel]
           [--gpus N] [--graphs] [--mtp] [--gdn BACKEND]

RESULT gets the log probabilities of four random prompts, which method and kernel each layer
has, and with ``--twin`` how far the dequantised FP8 weights are from those of that checkpoint.
It also has the log probabilities of the tokens that were generated behind each prompt, and
those that the same tokens have when they are part of a prompt.
``--reference-kernel`` is for a CPU without the instructions that vLLM's own block FP8 kernel
needs: layers are then computed by dequantising and multiplying. The engine runs in this process
(with more than one GPU in several). ``--mtp`` drafts a token with the checkpoint's MTP head.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ["VLLM_ALLOW_INSECURE_SERIALIZATION"] = "1"

import torch
from hybrid_model import from_fp8

LENGTHS = (17, 64, 150, 300)
TOKENS = 16
LOGPROBS = {"prompt_logprobs": 0, "logprobs": 0}


def use_reference_kernel() -> None:
    from vllm.model_executor.kernels import linear
    from vllm.platforms import current_platform

    class Reference(linear.Fp8BlockScaledMMLinearKernel):
        apply_input_quant = False

        @classmethod
        def is_supported(cls, *_: object, **__: object) -> tuple[bool, str | None]:
            return True, None

        def apply_block_scaled_mm(self, **given: torch.Tensor) -> torch.Tensor:
            weight = from_fp8(given["B"], given["Bs"])
            return given["A"] @ weight.to(given["A"].dtype).t()

    linear._POSSIBLE_FP8_BLOCK_KERNELS[current_platform._enum] = [Reference]


def methods(model: torch.nn.Module) -> dict[str, list[str]]:
    """Name the method of each layer and the kernel it chose."""
    found = {}
    for name, module in model.named_modules():
        method = getattr(module, "quant_method", None)
        if method is not None:
            inner = [getattr(method, part, None) for part in ("kernel", "fp8_linear", "scheme")]
            names = [type(one).__name__ for one in (method, *inner) if one is not None]
            found[name] = names
    return found


def weight_errors(model: torch.nn.Module, twin: str) -> dict[str, float]:
    """Return, per FP8 layer, the largest difference of its dequantised weights from the twin's."""
    from safetensors.torch import load_file

    meant = load_file(Path(twin) / "model.safetensors")
    parts = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    found = {}
    for name, module in model.named_modules():
        scale = getattr(module, "weight_scale_inv", None)
        if scale is None:
            continue
        parent, _, last = name.rpartition(".")
        shards = [meant[f"{parent}.{part}.weight"] for part in parts.get(last, (last,))]
        got = from_fp8(module.weight.data, scale.data).to(torch.bfloat16)
        found[name] = (got - torch.cat(shards)).abs().max().item()
    return found


def of_prompt(answer: Any) -> list[float]:
    """Return the log probability of each token of a prompt but the first."""
    given = zip(answer.prompt_token_ids[1:], answer.prompt_logprobs[1:], strict=True)
    return [at[token].logprob for token, at in given]


def run(options: argparse.Namespace) -> dict[str, Any]:
    from vllm import LLM, SamplingParams, __version__

    if options.reference_kernel:
        use_reference_kernel()
    draw = random.Random(0)
    prompts = [{"prompt_token_ids": [draw.randrange(1, 256) for _ in range(n)]} for n in LENGTHS]
    more: dict[str, Any] = {}
    if options.mtp:
        more["speculative_config"] = {"method": "mtp", "num_speculative_tokens": 1}
    if options.gdn:
        more["additional_config"] = {"gdn_prefill_backend": options.gdn}
        more["limit_mm_per_prompt"] = {"image": 0, "video": 0}
        # else vLLM measures what is free, and others on the same GPU disturb it
        more["kv_cache_memory_bytes"] = 2 << 30
    llm = LLM(
        model=options.model,
        enforce_eager=not options.graphs,
        max_model_len=1024,
        max_num_seqs=8,
        dtype="bfloat16",
        gpu_memory_utilization=0.1,
        tensor_parallel_size=options.gpus,
        enable_prefix_caching=False,
        **more,
    )
    sampling = SamplingParams(max_tokens=TOKENS, temperature=0, ignore_eos=True, **LOGPROBS)
    answers = llm.generate(prompts, sampling)
    logprobs = [of_prompt(answer) for answer in answers]
    whole = [
        {"prompt_token_ids": [*answer.prompt_token_ids, *answer.outputs[0].token_ids]}
        for answer in answers
    ]
    again = [of_prompt(answer)[-TOKENS:] for answer in llm.generate(whole, sampling)]
    generated = [
        [at[token].logprob for token, at in zip(out.token_ids, out.logprobs, strict=True)]
        for answer in answers
        for out in answer.outputs
    ]
    result = {
        "vllm": __version__,
        "logprobs": logprobs,
        "generated": generated,
        "again": again,
        "methods": llm.apply_model(methods)[0],
    }
    if options.twin:
        result["weights"] = llm.apply_model(lambda model: weight_errors(model, options.twin))[0]
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("result", type=Path)
    parser.add_argument("--twin")
    parser.add_argument("--reference-kernel", action="store_true")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--gdn")
    options = parser.parse_args()
    options.result.write_text(json.dumps(run(options)))


if __name__ == "__main__":
    # by its own name: what is sent to the workers is found there by the name of its module
    import hybrid_engine

    hybrid_engine.main()
