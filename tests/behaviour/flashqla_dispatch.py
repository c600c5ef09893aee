# mypy: disable-error-code="import-not-found, misc"
"""Ask the vLLM on PYTHONPATH which GDN prefill kernel it takes, and call FlashQLA's through it.

usage: python flashqla_dispatch.py STANDIN   (the stand-in for flash_qla; only a patched vLLM uses it)

vLLM's own parser, configs and ``ChunkGatedDeltaRule`` answer. What is stood in for: the platform's
answers about the GPU, the model's config, and the package. Prints one JSON object.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import json
import logging
import os
import sys
import tempfile
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

HOMES = (
    "vllm.model_executor.layers.mamba.gdn.qwen_gdn_linear_attn",
    "vllm.model_executor.layers.mamba.gdn_linear_attn",
    "vllm.model_executor.models.qwen3_next",
)
BACKENDS = ("auto", "flashqla", "triton", "flashinfer", "cutedsl", "aiter_flydsl", "sycl")
GPUS = ("8.0", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1", "rocm", "xpu", "cpu")
PACKAGES = {
    "absent": None,
    "present": "",  # the stand-in
    "needy": "import tilelang_that_is_not_there",
    "broken": "raise ValueError('no kernels for compute version 7.5')",
    "old": "def chunk_gated_delta_rule(q, k, v, g, beta, cu_seqlens=None): pass",
}
COMPILERS = {
    "a compiler": "import sys\ndef get_nvcc_compiler(): return sys.executable",
    "no toolkit": "def get_nvcc_compiler(): raise RuntimeError('Failed to detect CUDA')",
    "no nvcc": "def get_nvcc_compiler(): return '/nowhere/bin/nvcc'",
    "another tilelang": "",
}
"""What is in tilelang.contrib.nvcc beside the stand-in."""
KEY_HEADS, VALUE_HEADS = 2, 4
CHUNKS = ((20, 1, 7), (9, 5, 13))
SEEN: list[str] = []

Part = dict[str, Any]


class _Recorder(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        SEEN.append(f"{record.levelname}: {record.getMessage()}")


def _pretend(gpu: str) -> None:
    """The platform answers as on this GPU."""
    from vllm.platforms import current_platform
    from vllm.platforms.interface import DeviceCapability

    kind = type(current_platform)
    vendor = gpu if gpu.isalpha() else "cuda"
    for name in ("cuda", "rocm", "xpu", "cpu"):
        setattr(kind, f"is_{name}", lambda _, yes=name == vendor: yes)
    numbers = (int(part) for part in gpu.split(".")) if vendor == "cuda" else None
    capability = DeviceCapability(*numbers) if numbers else None
    kind.get_device_capability = classmethod(lambda *_, **__: capability)
    kind.get_cuda_runtime_major = classmethod(lambda _: 13)
    kind.device_name = gpu
    if vendor == "rocm":
        # Importing vLLM's own asks a real GPU. It is an MI300 with AITER, which 0.33 takes by itself.
        rocm = ModuleType("vllm.platforms.rocm")
        vars(rocm)["on_mi3xx"] = lambda: True
        sys.modules[rocm.__name__] = rocm
        if ops := getattr(_home(), "rocm_aiter_ops", None):
            ops.is_gdn_flydsl_prefill_available = lambda: True


@contextlib.contextmanager
def _installed(source: str | None, standin: str, nvcc: str | None = None) -> Iterator[None]:
    """flash_qla is what ``source`` says, and tilelang's ``nvcc``, for vLLM's next look at it."""
    with tempfile.TemporaryDirectory() as folder:
        if source is not None:
            with open(standin) as file:
                text = source or file.read()
            with open(os.path.join(folder, "flash_qla.py"), "w") as file:
                file.write(text)
        if nvcc is not None:
            os.makedirs(os.path.join(folder, "tilelang", "contrib"))
            with open(os.path.join(folder, "tilelang", "contrib", "nvcc.py"), "w") as file:
                file.write(nvcc)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        for name in ("flash_qla", "tilelang", "tilelang.contrib", "tilelang.contrib.nvcc"):
            sys.modules.pop(name, None)
        if prefill := _prefill():
            prefill._load.cache_clear()
            prefill._no_compiler.cache_clear()
        yield
        sys.path.remove(folder)


def _home() -> Any:
    for name in HOMES:
        with contextlib.suppress(ModuleNotFoundError):
            module = importlib.import_module(name)
            if hasattr(module, "ChunkGatedDeltaRule"):
                return module
    raise AssertionError("no ChunkGatedDeltaRule")


def _prefill() -> Any:
    return getattr(_home(), "flashqla_prefill", None)


def _config(backend: str | None, sizes: tuple[Any, Any], dtype: Any) -> Any:
    from vllm.config import DeviceConfig, VllmConfig

    given = {} if backend is None else {"gdn_prefill_backend": backend}
    config = VllmConfig(device_config=DeviceConfig(device="cpu"), additional_config=given)
    heads = SimpleNamespace()
    if sizes != (None, None):
        heads.linear_key_head_dim, heads.linear_value_head_dim = sizes
    config.model_config = SimpleNamespace(hf_config=heads, hf_text_config=heads, dtype=dtype)
    return config


def _rule(config: Any) -> Any:
    from vllm.config import set_current_vllm_config

    with set_current_vllm_config(config):
        return _home().ChunkGatedDeltaRule()


def _choice(config: Any) -> dict[str, Any]:
    """The forward method, what the metadata's builder is told, and the log."""
    import vllm.logger

    for once in (vllm.logger._print_info_once, vllm.logger._print_warning_once):
        once.cache_clear()
    SEEN.clear()
    answer: dict[str, Any] = {"builder": None}
    try:
        method = _rule(config)._forward_method
        answer["method"] = f"{method.__module__.rpartition('.')[2]}.{method.__name__}"
        if resolve := getattr(_home(), "_resolve_gdn_prefill_backend", None):
            answer["builder"] = resolve(config)[1]
    except (ValueError, RuntimeError, ImportError, AttributeError) as error:
        answer["method"] = f"{type(error).__name__}: {error}"
    return answer | {"log": list(SEEN)}


def choices(standin: str) -> dict[str, dict[str, Any]]:
    import torch

    asked = {backend: _config(backend, (128, 128), torch.bfloat16) for backend in BACKENDS}
    asked[" FlashQLA "] = _config(" FlashQLA ", (128, 128), torch.bfloat16)
    asked["nothing"] = _config(None, (128, 128), torch.bfloat16)
    models = {
        f"{name}, {backend}": _config(backend, sizes, dtype)
        for backend in ("flashqla", "auto")
        for name, sizes, dtype in (
            ("float16", (128, 128), torch.float16),
            ("float32", (128, 128), torch.float32),
            ("keys of 64", (64, 128), torch.bfloat16),
            ("values of 256", (128, 256), torch.bfloat16),
            ("no linear heads", (None, None), torch.bfloat16),
        )
    }
    found = {}
    for package, source in PACKAGES.items():
        with _installed(source, standin):
            for gpu in GPUS:
                _pretend(gpu)
                for backend, config in (asked | (models if gpu in ("9.0", "10.0") else {})).items():
                    found[f"{package}, {gpu}, {backend}"] = _choice(config)
    _pretend("9.0")
    for compiler, nvcc in COMPILERS.items():
        with _installed("", standin, nvcc):
            for backend in ("flashqla", "auto", "triton"):
                found[f"{compiler}, 9.0, {backend}"] = _choice(asked[backend])
    return found


def parsed() -> dict[str, str | None]:
    """What --gdn-prefill-backend becomes in EngineArgs; None: the parser refuses it."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.platforms import current_platform
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    type(current_platform).device_type = "cpu"
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    found: dict[str, str | None] = {}
    for backend in (*BACKENDS, "nonsense"):
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                told = parser.parse_args(["--model", "x", "--gdn-prefill-backend", backend])
            found[backend] = EngineArgs.from_cli_args(told).gdn_prefill_backend
        except SystemExit:
            found[backend] = None
    told = parser.parse_args(
        ["--model", "x", "--additional-config", '{"gdn_prefill_backend": "flashqla"}']
    )
    found["additional"] = EngineArgs.from_cli_args(told).additional_config["gdn_prefill_backend"]
    return found


def upstream_calls() -> list[dict[str, Any]]:
    """The keywords of each call of the rule in vLLM's source; a constant's value, else None.

    The last one is the layer's own; a warm-up may come before it.
    """
    calls = [
        node
        for node in ast.walk(ast.parse(inspect.getsource(_home())))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "self.chunk_gated_delta_rule"
    ]
    return [
        {
            str(word.arg): word.value.value if isinstance(word.value, ast.Constant) else None
            for word in node.keywords
        }
        for node in sorted(calls, key=lambda node: node.lineno)
    ]


def _truth(given: list[Part], state: Any, *, normalise: bool) -> tuple[Any, Any]:
    """The recurrence over one sequence in float64, with vLLM's states: [HV, V, K]."""
    import numpy as np

    q, k, v, g, beta = (
        np.concatenate([part[name].double().numpy() for part in given])
        for name in ("q", "k", "v", "g", "beta")
    )
    if normalise:
        q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6) for x in (q, k))
    group, out = v.shape[1] // k.shape[1], np.empty_like(v)
    state = state.double().numpy().copy()
    for t, head in itertools.product(range(len(v)), range(v.shape[1])):
        key, memory = k[t, head // group], np.exp(g[t, head]) * state[head]
        memory = memory + np.outer(beta[t, head] * (v[t, head] - memory @ key), key)
        out[t, head] = memory @ q[t, head // group] / np.sqrt(key.size)
        state[head] = memory
    return out, state


def _part(length: int, *, normalise: bool) -> Part:
    """Random arguments for one piece of one sequence."""
    import torch

    part = {name: torch.randn(length, KEY_HEADS, 128) for name in "qk"}
    if not normalise:  # vLLM has done it before
        part = {name: x / x.norm(dim=-1, keepdim=True) for name, x in part.items()}
    part["v"] = torch.randn(length, VALUE_HEADS, 128)
    part = {name: x.bfloat16() for name, x in part.items()}
    part["g"] = -torch.rand(length, VALUE_HEADS)
    part["beta"] = torch.rand(length, VALUE_HEADS).bfloat16()  # as in the warm-up of 0.18
    return part


def _arguments(chunk: list[Part], state: Any, words: dict[str, Any]) -> dict[str, Any]:
    """One call as vLLM's layer makes it: the pieces in a row, its keywords, its constants."""
    import torch

    values: dict[str, Any] = {
        name: torch.cat([part[name] for part in chunk])[None] for name in chunk[0]
    }
    starts = itertools.accumulate((len(part["q"]) for part in chunk), initial=0)
    values["cu_seqlens"] = torch.tensor(list(starts), dtype=torch.int32)
    values["initial_state"] = state
    for name in ("chunk_indices", "chunk_offsets", "core_attn_out", "aiter_prefill_metadata"):
        values[name] = None
    return {name: values[name] if value is None else value for name, value in words.items()}


def computed(standin: str) -> dict[str, Any]:
    """Two chunks of three uneven sequences, through the rule as vLLM calls it, against the truth."""
    import numpy as np
    import torch

    _pretend("9.0")
    torch.manual_seed(21)
    words = upstream_calls()[-1]
    normalise = bool(words["use_qk_l2norm_in_kernel"])
    chunks = [[_part(n, normalise=normalise) for n in lengths] for lengths in CHUNKS]
    begun = torch.randn(len(CHUNKS[0]), VALUE_HEADS, 128, 128)
    answer: dict[str, Any] = {}
    with _installed("", standin):
        rule = _rule(_config("flashqla", (128, 128), torch.bfloat16))
        calls = importlib.import_module("flash_qla").CALLS
        SEEN.clear()
        given = _arguments(chunks[0], begun, words)
        first, state = rule(**given)
        given = _arguments(chunks[1], state, words)
        second, state = rule(**given)
        answer["log"] = list(SEEN)
        answer["calls"] = list(calls)
        answer["same_cu_seqlens"] = calls[-1]["cu_seqlens"] == id(given["cu_seqlens"])
        answer["output"] = [list(second.shape), str(second.dtype)]
        answer["state"] = [list(state.shape), str(state.dtype)]
        if "core_attn_out" in inspect.signature(rule.forward_native).parameters:
            buffer = torch.full((second.shape[1] + 3, VALUE_HEADS, 128), 7.0).bfloat16()
            rule(**given | {"core_attn_out": buffer})
            answer["filled"] = bool((buffer[:-3] == second[0]).all() and (buffer[-3:] == 7).all())
        # states in 16 bits, and int64 lengths, are what vLLM may hand over too
        rule(
            **given | {"cu_seqlens": given["cu_seqlens"].long(), "initial_state": begun.bfloat16()}
        )
        answer["other_dtypes"] = calls[-1]["dtypes"]
        answer["no_state"] = rule(**given | {"output_final_state": False})[1] is None

    def off(got: Any, true: Any) -> float:
        return float(np.sqrt(((got.double().numpy() - true) ** 2).mean() / (true**2).mean()))

    outputs = zip(first[0].split(CHUNKS[0]), second[0].split(CHUNKS[1]), strict=True)
    answer["off"] = []
    for n, pieces in enumerate(outputs):
        out, final = _truth([chunk[n] for chunk in chunks], begun[n], normalise=normalise)
        answer["off"].append([off(torch.cat(pieces), out), off(state[n], final)])
    return answer


def answers(standin: str) -> dict[str, Any]:
    import vllm
    from vllm.engine.arg_utils import EngineArgs

    logger = logging.getLogger("vllm")
    logger.addHandler(_Recorder())
    logger.setLevel("INFO")  # from 0.32 it is so only once an engine has configured the logging
    rule = _home().ChunkGatedDeltaRule
    found = {
        "vllm": vllm.__file__,
        "option": hasattr(EngineArgs, "gdn_prefill_backend"),
        "parsed": parsed() if hasattr(EngineArgs, "gdn_prefill_backend") else {},
        "choices": choices(standin),
        "upstream_calls": upstream_calls(),
        "upstream_arguments": list(inspect.signature(rule.forward_native).parameters)[1:],
    }
    if prefill := _prefill():
        found["arguments"] = list(inspect.signature(prefill.forward).parameters)
        found["computed"] = computed(standin)
    return found


if __name__ == "__main__":
    sys.stdout.write("\nANSWER " + json.dumps(answers(sys.argv[1])) + "\n")
