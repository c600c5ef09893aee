"""hybrid-int4-fp8 in a real engine on a CPU: what is loaded, and what is computed from it.

Needs ``VLLM_MODS_BEHAVIOUR_ENGINE``, a Python that a CPU build of vLLM is installed in. The mod
goes into a copy of that installation (``with``), which is not to change; the checkpoints are made on the spot.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., dict[str, Any]]

ENGINE = os.environ.get("VLLM_MODS_BEHAVIOUR_ENGINE", "")
HERE = Path(__file__).parent

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(not ENGINE, reason="set VLLM_MODS_BEHAVIOUR_ENGINE"),
]

LOADED = "Hybrid INT4+FP8: block FP8 weights are loaded"
FP8 = {
    "model.layers.0.mlp.gate_up_proj",
    "model.layers.0.mlp.down_proj",
    "model.layers.1.self_attn.qkv_proj",
    "model.layers.1.mlp.gate_up_proj",
    "model.layers.1.mlp.down_proj",
}


def installation() -> Path:
    """Return the folder that the engine's vLLM is installed in."""
    find = "import importlib.util as u; print(u.find_spec('vllm').origin)"
    told = subprocess.run([ENGINE, "-c", find], capture_output=True, text=True, check=True)
    return Path(told.stdout.strip()).parent.parent


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run one of the checkpoints with the mod or without."""
    base = tmp_path_factory.mktemp("engine")
    models = base / "models"
    subprocess.run([ENGINE, str(HERE / "hybrid_model.py"), str(models)], check=True)
    ours = [sys.executable, "-m", "vllm_mods", "with", "hybrid-int4-fp8"]
    ours += ["--target", str(installation()), "--"]

    @cache
    def run(model: str, *, modded: bool) -> dict[str, Any]:
        result = base / f"{model}-{modded}.json"
        done = subprocess.run(
            [
                *(ours if modded else ()),
                ENGINE,
                str(HERE / "hybrid_engine.py"),
                str(models / model),
                str(result),
                "--reference-kernel",
                *(["--twin", str(models / "twin")] if model == "hybrid" else []),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            env=os.environ
            | {
                "VLLM_MODS_CACHE": str(base / "cache"),
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "HF_HUB_OFFLINE": "1",
            },
        )
        said = done.stdout + done.stderr
        if done.returncode:
            return {"error": said}
        answer: dict[str, Any] = json.loads(result.read_text())
        return answer | {"log": [line for line in said.splitlines() if "Hybrid INT4+FP8" in line]}

    return run


def difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """Return the mean and the largest difference of log probabilities."""
    pairs = [
        abs(a - b)
        for mine, theirs in zip(one["logprobs"], other["logprobs"], strict=True)
        for a, b in zip(mine, theirs, strict=True)
    ]
    assert len(pairs) > 500
    return sum(pairs) / len(pairs), max(pairs)


def test_the_installation_stays_as_it_is(run: Run) -> None:
    def files() -> dict[Path, tuple[int, int, int]]:
        infos = {path: path.stat() for path in (installation() / "vllm").rglob("*.*")}
        sources = {path: info for path, info in infos.items() if path.suffix != ".pyc"}
        return {path: (i.st_size, i.st_mtime_ns, i.st_mode) for path, i in sources.items()}

    before = files()
    assert "error" not in run("hybrid", modded=True)
    assert files() == before


def test_without_the_mod_the_checkpoint_is_refused(run: Run) -> None:
    assert "weight_scale_inv" in run("hybrid", modded=False)["error"]


def test_fp8_layers_are_loaded_as_they_were_written(run: Run) -> None:
    answer = run("hybrid", modded=True)
    assert "error" not in answer, answer["error"][-4000:]
    assert answer["weights"] == dict.fromkeys(FP8, 0.0)
    fp8 = {name for name, kinds in answer["methods"].items() if kinds[0] == "Fp8LinearMethod"}
    assert fp8 == FP8
    int4 = {name for name, kinds in answer["methods"].items() if kinds[0].startswith("INC")}
    assert int4 == {f"model.layers.{n}.self_attn.o_proj" for n in (0, 1)} | {
        "model.layers.0.self_attn.qkv_proj"
    }
    assert any("9 FP8 layers" in line for line in answer["log"])
    assert sum(LOADED in line for line in answer["log"]) == 1


def test_logprobs_are_those_of_the_bf16_twin_and_one_fault_shows(run: Run) -> None:
    twin = run("twin", modded=False)
    mean, largest = difference(run("hybrid", modded=True), twin)
    assert mean < 0.01
    assert largest < 0.05
    mean, largest = difference(run("fault", modded=True), twin)
    assert mean > 0.04
    assert largest > 0.2


def test_a_plain_int4_checkpoint_gives_the_same_bits_with_the_mod(run: Run) -> None:
    before, after = run("plain", modded=False), run("plain", modded=True)
    assert after["logprobs"] == before["logprobs"]
    assert after["methods"] == before["methods"]
    assert not any("layers in" in line and "no FP8" not in line for line in after["log"])
    assert not any(LOADED in line for line in after["log"])
