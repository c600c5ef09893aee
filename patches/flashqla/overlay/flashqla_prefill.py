# SPDX-License-Identifier: Apache-2.0
"""FlashQLA's kernel as one more backend of vLLM's GDN prefill.

`resolve` says whether it is to be used, and `forward` stands in for the other
methods that `ChunkGatedDeltaRule` chooses from. The patched files call these
two; all that depends on FlashQLA is here.
"""

import importlib
import inspect
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from vllm.logger import init_logger
from vllm.platforms import current_platform

logger = init_logger(__name__)

NAME = "flashqla"
# What flash-qla 0.1.3 has kernels for; its import fails on any other GPU.
CAPABILITIES = frozenset({(9, 0), (10, 0), (10, 3), (12, 0), (12, 1)})
HEAD_SIZE = 128
DTYPES = (torch.bfloat16, torch.float16)


class Unusable(Exception):
    """FlashQLA can't be used here; says why."""


def resolve(vllm_config: Any) -> str:
    """The GDN prefill backend to go on with: "flashqla", or what vLLM knows.

    "flashqla" and "auto" become "flashqla" where it can be used and "auto"
    where it can't, so that vLLM then chooses as it does without it. Without a
    compiler for its kernels only "flashqla" does. Every other backend that was
    asked for stays.
    """
    config = vllm_config.additional_config
    asked = "auto"
    if isinstance(config, dict):
        asked = str(config.get("gdn_prefill_backend", asked)).strip().lower()
    if asked not in (NAME, "auto"):
        return asked
    try:
        _check(vllm_config.model_config)
        if missing := _no_compiler():
            # Whoever insists may have every kernel in tilelang's cache.
            if asked != NAME:
                raise Unusable(missing)
            logger.warning_once(
                "FlashQLA's kernels are compiled when they are first used, and %s: "
                "only those in tilelang's cache will run.",
                missing,
            )
    except Unusable as error:
        if asked == NAME:
            logger.warning_once(
                "GDN prefill backend 'flashqla' was asked for and can't be used: %s. "
                "vLLM chooses another one.",
                str(error),
            )
        else:
            logger.info_once("GDN prefill goes without FlashQLA: %s.", str(error))
        return "auto"
    logger.info_once("FlashQLA is chosen for GDN prefill (requested=%s)", asked)
    return NAME


def _check(model_config: Any) -> None:
    """Raise Unusable unless FlashQLA can compute this model on this GPU."""
    if not current_platform.is_cuda():
        raise Unusable("it needs an NVIDIA GPU")
    capability = current_platform.get_device_capability()
    if capability is None or tuple(capability) not in CAPABILITIES:
        known = ", ".join(f"{major}.{minor}" for major, minor in sorted(CAPABILITIES))
        version = "unknown" if capability is None else ".".join(map(str, capability))
        raise Unusable(f"the GPU's compute capability is {version}, not one of {known}")
    text_config = getattr(model_config, "hf_text_config", None)
    sizes = [
        getattr(text_config, f"linear_{part}_head_dim", None) for part in ("key", "value")
    ]
    if sizes != [HEAD_SIZE, HEAD_SIZE]:
        raise Unusable(
            f"the linear heads have sizes {sizes[0]} and {sizes[1]}, not {HEAD_SIZE}"
        )
    if model_config.dtype not in DTYPES:
        raise Unusable(f"the model runs in {model_config.dtype}, not in 16 bits")
    if isinstance(kernel := _load(), str):
        raise Unusable(kernel)


@cache
def _load() -> Callable[..., Any] | str:
    """FlashQLA's function, or why there is none. Imported only where it is to run."""
    try:
        kernel = importlib.import_module("flash_qla").chunk_gated_delta_rule
    except ModuleNotFoundError as error:
        if error.name == "flash_qla":
            return "the package flash-qla is not installed"
        return f"flash_qla needs {error.name}, which is not installed"
    except Exception as error:
        # The import loads a compiler and asks the GPU and the driver: what a broken
        # installation raises there is open, and none of it should keep vLLM from
        # starting.
        return f"flash_qla can't be imported ({type(error).__name__}: {error})"
    if "state_v_first" not in inspect.signature(kernel).parameters:
        return "flash_qla is too old, it knows one layout of the state only"
    return kernel


@cache
def _no_compiler() -> str | None:
    """Why tilelang can't compile FlashQLA's kernels, or None if nothing is known to be missing."""
    try:
        find = importlib.import_module("tilelang.contrib.nvcc").get_nvcc_compiler
    except (ImportError, AttributeError):
        return None  # a tilelang that is asked in another way
    try:
        nvcc = find()
    except RuntimeError:
        return "tilelang finds no CUDA toolkit (CUDA_HOME)"
    return None if os.access(nvcc, os.X_OK) else f"there is no compiler {nvcc}"


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    initial_state: torch.Tensor,
    output_final_state: bool,
    *,
    cu_seqlens: torch.Tensor | None = None,
    chunk_indices: torch.Tensor | None = None,
    chunk_offsets: torch.Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = True,
    core_attn_out: torch.Tensor | None = None,
    aiter_prefill_metadata: object | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The chunked gated delta rule, with the arguments of every release.

    Returns the output [1, T, HV, V] and the final states [N, HV, V, K].
    `core_attn_out`, if given, receives the output too, from its beginning.
    The metadata of other kernels is not needed: FlashQLA makes its own from
    `cu_seqlens`, once for all layers of a step.
    """
    kernel = _load()
    assert not isinstance(kernel, str), kernel
    output, final_state = kernel(
        q=q,
        k=k,
        v=v,
        # Each dtype is a kernel of its own, compiled at its first use: the gates
        # and the state are what they are inside vLLM's rules, float32.
        g=g.float(),
        beta=beta.float(),
        initial_state=initial_state.float(),
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        # int32 as vLLM has it at run time; its warm-up passes int64 in some releases.
        cu_seqlens=None if cu_seqlens is None else cu_seqlens.int(),
        # vLLM's states are [N, HV, V, K]. With K = V a mix-up would raise nothing.
        state_v_first=True,
    )
    if core_attn_out is not None:
        # view, since a copy of a strided buffer would be filled instead of it
        core_attn_out.view(-1)[: output.numel()].copy_(output.view(-1))
    logger.info_once(
        "FlashQLA computes GDN prefill: %d key heads, %d value heads",
        k.shape[-2],
        v.shape[-2],
    )
    return output, final_state
