"""hybrid-int4-fp8 in a real vLLM: which method each layer gets, with the mod and without.

Needs ``VLLM_MODS_BEHAVIOUR_PYTHON``, a Python with torch and what vLLM imports, and
``VLLM_MODS_BEHAVIOUR_TREES``, source trees (site roots, joined as in ``PATH``) that the
mod is applied to a copy of. Folders in ``VLLM_MODS_BEHAVIOUR_PATH`` come before that Python's
own packages: another transformers for a release that wants one. No GPU is used.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hybrid_checkpoints import bf16, fp8, int4, write_checkpoint

from vllm_mods.library.mod_folder import data_root, load_mod
from vllm_mods.planning.planner import plan
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hybrid_checkpoints import Tensors

    Ask = Callable[..., dict[str, Any]]

PYTHON = os.environ.get("VLLM_MODS_BEHAVIOUR_PYTHON", "")
TREES = [t for t in os.environ.get("VLLM_MODS_BEHAVIOUR_TREES", "").split(os.pathsep) if t]
SCRIPT = os.path.join(os.path.dirname(__file__), "hybrid_dispatch.py")

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(
        not (PYTHON and TREES),
        reason="set VLLM_MODS_BEHAVIOUR_PYTHON and VLLM_MODS_BEHAVIOUR_TREES",
    ),
]

HF = "model.language_model.layers"
OURS = "language_model.model.layers"
MAPPER = {"lm_head.": "language_model.lm_head.", "model.language_model.": "language_model.model."}
PACKED = {
    "qkv_proj": ["q_proj", "k_proj", "v_proj"],
    "gate_up_proj": ["gate_proj", "up_proj"],
    "in_proj_qkvz": ["in_proj_qkv", "in_proj_z"],
    "in_proj_ba": ["in_proj_b", "in_proj_a"],
}
FP8_PARTS = {
    "0.self_attn": ("q_proj", "k_proj", "v_proj"),
    "1.linear_attn": ("in_proj_qkv", "in_proj_z"),
    "0.mlp": ("down_proj",),
}
FP8, FP8_MOE = "Fp8LinearMethod 128x128", "Fp8MoEMethod 128x128"
LAYERS = {
    f"{OURS}.0.self_attn.qkv_proj": "linear",
    f"{OURS}.0.self_attn.o_proj": "linear",
    f"{OURS}.0.self_attn.attn": "other",
    f"{OURS}.0.self_attn": "other",
    f"{OURS}.0.mlp.gate_up_proj": "linear",
    f"{OURS}.0.mlp.down_proj": "linear",
    f"{OURS}.1.linear_attn.in_proj_qkvz": "linear",
    f"{OURS}.1.linear_attn.in_proj_ba": "linear",
    f"{OURS}.2.mlp.experts": "moe",
    f"{OURS}.3.mlp.experts": "moe",
    f"{OURS}.4.mlp.experts": "moe",
    f"{OURS}.4.self_attn.qkv_proj": "linear",
    f"{OURS}.5.self_attn.o_proj": "linear",
    "language_model.lm_head": "head",
}


def _checkpoint(folder: Path, form: str, *, hybrid: bool) -> str:
    """Two files; ``hybrid`` False has INT4 in every place where True has FP8."""
    make = fp8 if hybrid else int4
    first: Tensors = {}
    extra: dict[str, dict[str, object]] = {}
    for parent, parts in FP8_PARTS.items():
        for part in parts:
            first |= make(f"{HF}.{parent}.{part}")
            if hybrid:  # as AutoRound writes layers that it leaves alone
                extra[f"{HF}.{parent}.{part}"] = {"bits": 16, "data_type": "fp"}
    for part in ("self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj"):
        first |= int4(f"{HF}.0.{part}")
    for part in ("in_proj_a", "in_proj_b"):
        first |= bf16(f"{HF}.1.linear_attn.{part}")
        extra[f"{HF}.1.linear_attn.{part}"] = {"bits": 16, "data_type": "fp"}
    second: Tensors = make("lm_head") | make(f"{HF}.4.self_attn.q_proj")
    second |= int4(f"{HF}.4.self_attn.k_proj") | int4(f"{HF}.4.self_attn.v_proj")
    second |= {
        f"{HF}.5.self_attn.o_proj.weight": ("F8_E4M3", [256, 256]),
        f"{HF}.5.self_attn.o_proj.weight_scale": ("F32", [1]),
    }
    for number in range(2):
        for part in ("gate_proj", "up_proj", "down_proj"):
            second |= int4(f"{HF}.2.mlp.experts.{number}.{part}")
            second |= make(f"{HF}.3.mlp.experts.{number}.{part}")
            second |= (make if number else int4)(f"{HF}.4.mlp.experts.{number}.{part}")
    name = f"{form}-{'hybrid' if hybrid else 'plain'}"
    path = write_checkpoint(str(folder / name), [first, second])
    quantization = {
        "quant_method": "auto-round",
        "bits": 4,
        "group_size": 128,
        "sym": True,
        "packing_format": f"auto_round:auto_{form}",
        "extra_config": extra,
    }
    return _case(path, quantization, LAYERS)


def _fp8_throughout(folder: Path) -> str:
    """What INC itself loads from 0.29 on: block FP8, and said so for the whole checkpoint."""
    layers = {name: kind for name, kind in LAYERS.items() if kind == "linear"}
    tensors: Tensors = {}
    for layer in layers:
        parent, _, last = layer.replace(OURS, HF).rpartition(".")
        for part in PACKED.get(last, [last]):
            tensors |= fp8(f"{parent}.{part}")
    quantization = {
        "quant_method": "auto-round",
        "bits": 8,
        "group_size": [128, 128],
        "data_type": "fp",
        "sym": True,
        "packing_format": "auto_round:fp8",
    }
    return _case(write_checkpoint(str(folder / "fp8"), [tensors]), quantization, layers)


def _case(path: str, quantization: dict[str, object], layers: dict[str, str]) -> str:
    case = {"config": quantization, "packed": PACKED, "mapper": MAPPER, "layers": layers}
    with open(os.path.join(path, "case.json"), "w") as file:
        json.dump(case, file)
    return path


def _patched(tree: str, copy: str) -> None:
    shutil.copytree(os.path.join(tree, "vllm"), os.path.join(copy, "vllm"))
    mod = load_mod(os.path.join(data_root(), "patches", "hybrid-int4-fp8"))
    planned = plan([mod], open_tree(copy))
    assert planned.ok, planned.mods[0].findings
    for change in planned.changes:
        assert change.after is not None
        path = os.path.join(copy, change.path)
        with open(path, "wb") as file:
            file.write(change.after)


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: os.path.basename(tree.rstrip("/")))
def ask(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ask:
    """Ask one vLLM, ``modded`` or not, about one checkpoint."""
    base = tmp_path_factory.mktemp("behaviour")
    patched = str(base / "patched")
    _patched(request.param, patched)

    @cache
    def run(*, modded: bool) -> dict[tuple[str, bool], dict[str, Any]]:
        tree = patched if modded else request.param
        paths = [tree, *filter(None, [os.environ.get("VLLM_MODS_BEHAVIOUR_PATH")])]
        cases = {
            (form, hybrid): _checkpoint(base / str(modded), form, hybrid=hybrid)
            for form in ("gptq", "awq")
            for hybrid in (True, False)
        }
        cases["fp8", False] = _fp8_throughout(base / str(modded))
        done = subprocess.run(
            [PYTHON, SCRIPT, *cases.values()],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=base,
            env=os.environ
            | {
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONHASHSEED": "0",  # some messages list a set
            },
        )
        assert done.returncode == 0, done.stderr[-4000:]
        answers = [json.loads(line) for line in re.findall(r"(?m)^ANSWER (.*)$", done.stdout)]
        for answer in answers:
            assert answer["vllm"].startswith(tree)
            assert answer["survives_copies"]
        return dict(zip(cases, answers, strict=True))

    return lambda form, *, hybrid, modded=True: run(modded=modded)[form, hybrid]


@pytest.mark.parametrize("form", ["gptq", "awq"])
def test_fp8_layers_get_fp8_methods_and_int4_layers_keep_theirs(ask: Ask, form: str) -> None:
    before = ask(form, hybrid=False, modded=False)["methods"]
    answer = ask(form, hybrid=True)
    got = answer["methods"]
    assert {name for name, method in got.items() if method == FP8} == {
        f"{OURS}.0.self_attn.qkv_proj",
        f"{OURS}.0.mlp.down_proj",
        f"{OURS}.1.linear_attn.in_proj_qkvz",
    }
    assert got[f"{OURS}.3.mlp.experts"] == FP8_MOE
    for layer in (
        "0.self_attn.o_proj",
        "0.self_attn.attn",
        "0.self_attn",
        "0.mlp.gate_up_proj",
        "1.linear_attn.in_proj_ba",
        "2.mlp.experts",
        "5.self_attn.o_proj",
    ):
        assert got[f"{OURS}.{layer}"] == before[f"{OURS}.{layer}"], layer
    assert re.match(
        r"ValueError: .*not FP8 .*4\.self_attn\.k_proj", got[f"{OURS}.4.self_attn.qkv_proj"]
    )
    assert re.match(r"ValueError: .*not FP8 .*experts\.0\.", got[f"{OURS}.4.mlp.experts"])
    assert re.match(r"ValueError: .*\(ParallelLMHead\)", got["language_model.lm_head"])
    assert answer["blocked"] is True
    (line,) = answer["log"]
    assert line.startswith("Hybrid INT4+FP8: 17 FP8 layers in ")


@pytest.mark.parametrize("form", ["gptq", "awq"])
def test_a_plain_checkpoint_gets_the_same_answers_as_without_the_mod(ask: Ask, form: str) -> None:
    before = ask(form, hybrid=False, modded=False)
    after = ask(form, hybrid=False)
    assert after["methods"] == before["methods"]
    assert after["use_deep_gemm"] == before["use_deep_gemm"] == "absent"
    assert not after["blocked"]
    (line,) = after["log"]
    assert "no FP8 layers" in line


def test_without_the_mod_the_hybrid_checkpoint_gets_no_fp8_method(ask: Ask) -> None:
    methods = ask("gptq", hybrid=True, modded=False)["methods"]
    assert not [method for method in methods.values() if method.startswith("Fp8")]


def test_block_fp8_throughout_stays_incs_own(ask: Ask) -> None:
    before, after = (ask("fp8", hybrid=False, modded=modded) for modded in (False, True))
    if "refused" in before:  # before 0.29
        assert after["refused"] == before["refused"]
        return
    assert set(before["methods"].values()) == {"INCLinearMethod"}
    assert after["methods"] == before["methods"]
    assert after["use_deep_gemm"] == before["use_deep_gemm"] == "absent"
    assert not after["blocked"]
    assert after["log"] == before["log"] == []
