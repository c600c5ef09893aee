# mypy: disable-error-code="import-not-found, import-untyped"
"""A random Qwen3-Next in vLLM's engine on a GPU: FlashQLA by the mod's own switch against Triton.

usage: python flashqla_engine.py [FOLDER]   (for the checkpoint; default: a temporary folder)

Run it with a vLLM of 0.18 or newer that the `flashqla` mod is applied to, and with flash-qla and tilelang.
Nothing is downloaded. Five engines run one after the other, each in a process of its own:

    triton, flashqla                  every prompt in one piece; --gdn-prefill-backend
    triton-chunked, flashqla-chunked  at most 256 tokens at a time, so that states are carried over; here
                                      FlashQLA is what vLLM chooses without any option
    transposed-chunked                FlashQLA with its final states transposed: what a mix-up of the layouts
                                      would be. It has to be out of bounds, or the bounds prove nothing

And without any option the mod is asked what to take, where there is a compiler for FlashQLA's kernels and
where there is none: its choice has to be FlashQLA once, and vLLM's own once.

Prompt logprobs are compared; greedy tokens of a random model part wherever two logits are nearly equal.
Prints one JSON object; exit code 0 when all is as it should be, else 1, with the reasons under "wrong".
"""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from typing import Any

LOGGER = "vllm.model_executor.layers.mamba.ops.flashqla_prefill"
EVIDENCE = r"FlashQLA computes GDN prefill: \d+ key heads, \d+ value heads"
VOCABULARY = 512
LENGTHS = (17, 64, 300, 2000)
CHUNK = 256
# Seen on an H200 with another model of this kind: mean 0.009, max 0.21 between FlashQLA and Triton.
MAX_MEAN, MAX_ANY = 0.05, 0.6
RUNS = {
    "triton": ("triton", None),
    "flashqla": ("flashqla", None),
    "triton-chunked": ("triton", CHUNK),
    "flashqla-chunked": (None, CHUNK),
    "transposed-chunked": ("flashqla", CHUNK),
}
# Where tilelang looks for a toolkit, and what the mod then takes.
CHOICES = {
    "with a compiler": ({}, "flashqla"),
    "without": ({"CUDA_HOME": "/nowhere", "CUDA_PATH": "/nowhere"}, "auto"),
}
WHY = "GDN prefill goes without FlashQLA: there is no compiler /nowhere/bin/nvcc."
# (got, expected): within the bounds
NEAR = (
    ("flashqla", "triton"),
    ("flashqla-chunked", "triton-chunked"),
    ("flashqla-chunked", "flashqla"),
    ("triton-chunked", "triton"),
)
FAR = ("transposed-chunked", "flashqla")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # so that the engine's log is this process's
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # FlashInfer need not be there
}


def spread_memory(model: Any) -> None:
    """Have a model's GDN heads remember from some 3 tokens to a thousand.

    As they come, every head forgets within a token, and no state is ever carried far.
    """
    import torch

    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            torch.nn.init.uniform_(parameter, -6, 0)
        elif name.endswith("dt_bias"):
            torch.nn.init.constant_(parameter, -1)


def make_model(folder: str) -> None:
    """Three GDN layers, one of attention; vLLM's Qwen3-Next asks for at least one MoE layer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3NextConfig, Qwen3NextForCausalLM

    torch.manual_seed(20)
    config = Qwen3NextConfig(
        vocab_size=VOCABULARY,
        hidden_size=1024,
        intermediate_size=1024,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=128,
        linear_num_key_heads=8,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        mlp_only_layers=[0, 1, 2],
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=256,
        shared_expert_intermediate_size=256,
        decoder_sparse_step=1,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        dtype="bfloat16",
    )
    model = Qwen3NextForCausalLM(config)
    spread_memory(model)
    model.to(torch.bfloat16).save_pretrained(folder)
    words = {f"w{number}": number for number in range(VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, "w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "w0", "eos_token": "w1", "pad_token": "w2"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


def _transpose_states() -> None:
    import flash_qla

    right = flash_qla.chunk_gated_delta_rule

    def wrong(*args: Any, state_v_first: bool, **kwargs: Any) -> Any:
        output, state = right(*args, state_v_first=state_v_first, **kwargs)
        return output, state.transpose(-1, -2).contiguous()

    flash_qla.chunk_gated_delta_rule = wrong


def record() -> list[str]:
    """Return what the mod is going to log."""
    import vllm  # noqa: F401  (its logging configuration takes the handlers off that are there before)

    seen: list[str] = []

    class Recorder(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record.getMessage())

    # Its own logger: from 0.32 the engine configures "vllm" anew and drops other handlers there.
    logging.getLogger(LOGGER).addHandler(Recorder())
    return seen


def choose(folder: str) -> dict[str, Any]:
    """What the mod takes where nothing is asked for, and what it says."""
    seen = record()
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.layers.mamba.ops import flashqla_prefill

    config = EngineArgs(model=folder, dtype="bfloat16", max_model_len=2304).create_engine_config()
    return {"chosen": flashqla_prefill.resolve(config), "log": seen}


def one(name: str, folder: str) -> dict[str, Any]:
    """One engine: the prompts' logprobs, and which of the mod's lines were logged."""
    seen = record()
    import torch
    import vllm

    backend, chunk = RUNS[name]
    if name.startswith("transposed"):
        _transpose_states()
    options: dict[str, Any] = {} if backend is None else {"gdn_prefill_backend": backend}
    model = vllm.LLM(
        model=folder,
        dtype="bfloat16",
        max_model_len=2304,
        max_num_seqs=8,
        max_num_batched_tokens=chunk or 4096,
        gpu_memory_utilization=0.2,
        enable_prefix_caching=False,
        enforce_eager=True,
        **options,
    )
    torch.manual_seed(20)
    prompts = [
        {"prompt_token_ids": torch.randint(3, VOCABULARY, (length,)).tolist()} for length in LENGTHS
    ]
    sampling = vllm.SamplingParams(max_tokens=8, temperature=0, ignore_eos=True, prompt_logprobs=0)
    outputs = model.generate(prompts, sampling)
    return {
        "vllm": vllm.__version__,
        "logprobs": [
            given[token].logprob
            for output in outputs
            for token, given in zip(
                output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True
            )
        ],
        "log": seen,
    }


def compare(got: list[float], expected: list[float]) -> dict[str, float]:
    differences = [abs(a - b) for a, b in zip(got, expected, strict=True)]
    return {
        "mean": sum(differences) / len(differences),
        "max": max(differences),
        "n": len(differences),
    }


def judge(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The comparisons, and what is wrong with them."""
    compared = {
        f"{got} ~ {expected}": compare(answers[got]["logprobs"], answers[expected]["logprobs"])
        for got, expected in (*NEAR, FAR)
    }
    wrong = []
    for name, found in compared.items():
        near = found["mean"] <= MAX_MEAN and found["max"] <= MAX_ANY
        if near == name.startswith(FAR[0]):
            wrong.append(f"{name}: {'within' if near else 'out of'} bounds")
    for name, answer in answers.items():
        used = sum(bool(re.search(EVIDENCE, line)) for line in answer["log"])
        if used != (not name.startswith("triton")):
            wrong.append(f"{name}: the evidence line was logged {used} times")
    return {"compared": compared, "wrong": wrong}


def ask(environ: dict[str, str], *arguments: str) -> dict[str, Any]:
    """Have a process of its own answer. Raises ``RuntimeError`` with its output if it fails."""
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        env=ENVIRONMENT | os.environ | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    if done.returncode or not lines:
        raise RuntimeError(f"{arguments}: {done.stdout[-4000:]}{done.stderr[-8000:]}")
    answer: dict[str, Any] = json.loads(lines[0].removeprefix("ANSWER "))
    return answer


def main(folder: str) -> int:
    begun = time.monotonic()
    if not os.path.exists(os.path.join(folder, "config.json")):
        make_model(folder)
    answers: dict[str, dict[str, Any]] = {}
    for name in RUNS:
        answers[name] = ask({}, "--one", name, folder)
        sys.stderr.write(f"{name}: done after {time.monotonic() - begun:.0f} s\n")
    choices = {name: ask(environ, "--choose", folder) for name, (environ, _) in CHOICES.items()}
    verdict = judge(answers)
    for name, (_, wanted) in CHOICES.items():
        found = choices[name]
        if found["chosen"] != wanted or (WHY in found["log"]) != (wanted == "auto"):
            verdict["wrong"].append(f"{name}: {found}")
    told = {name: answer["log"] for name, answer in (answers | choices).items()}
    result = {"vllm": answers["triton"]["vllm"], **verdict, "log": told}
    result["seconds"] = round(time.monotonic() - begun)
    sys.stdout.write(json.dumps(result, indent=1) + "\n")
    return 1 if verdict["wrong"] else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--choose"]:
        sys.stdout.write("\nANSWER " + json.dumps(choose(sys.argv[2])) + "\n")
        sys.exit(0)
    if sys.argv[1:2] == ["--one"]:
        sys.stdout.write("\nANSWER " + json.dumps(one(*sys.argv[2:4])) + "\n")
        sys.exit(0)
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1]))
    with tempfile.TemporaryDirectory() as temporary:
        sys.exit(main(temporary))
