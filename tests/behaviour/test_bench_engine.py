"""``bench`` with a real vLLM on a CPU: a mod that sleeps is slower, and computes the same.

Needs ``VLLM_MODS_BEHAVIOUR_ENGINE``, a Python that a CPU build of vLLM is installed in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mod_making import diff_of
from test_hybrid_engine import ENGINE, HERE, installation

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(not ENGINE, reason="set VLLM_MODS_BEHAVIOUR_ENGINE"),
]

MODEL = "vllm/model_executor/models/qwen3.py"
LAYER = "        # Self Attention\n"


def test_a_mod_that_sleeps_in_each_layer_is_slower_and_computes_the_same(tmp_path: Path) -> None:
    subprocess.run([ENGINE, str(HERE / "hybrid_model.py"), str(tmp_path)], check=True)
    text = (installation() / MODEL).read_text()
    assert LAYER in text
    sleeps = text.replace(LAYER, f"        __import__('time').sleep(0.02)\n{LAYER}")
    (tmp_path / "sleeps.patch").write_bytes(diff_of(MODEL, text, sleeps))
    words = ["bench", "plain", f"{tmp_path}/sleeps.patch", "--starts", "2", "--json"]
    words += ["--input-length", "64", "--output-length", "16", "--prompts", "4"]
    words += ["--target", str(installation()), "--output", str(tmp_path / "bench")]
    serve = [str(Path(ENGINE).with_name("vllm")), "serve", str(tmp_path / "twin")]
    serve += [
        "--max-model-len",
        "256",
        "--gpu-memory-utilization",
        "0.1",
        "--enforce-eager",
        "--dtype",
        "bfloat16",
    ]
    info = (
        tmp_path / "named/vllm-0+cpu.dist-info"
    )  # builds for CPUs have another name, and `vllm` asks for its own
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.4\nName: vllm\nVersion: 0+cpu\n")
    done = subprocess.run(
        [sys.executable, "-m", "vllm_mods", *words, "--", *serve],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, (os.environ.get("PYTHONPATH"), str(info.parent)))
            ),
            "VLLM_MODS_CACHE": str(tmp_path / "cache"),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["numbers"]["time per token at 64, ms"]["middle"] > 2
    assert told["numbers"]["time per token at 64, ms"]["means"][1] > 40
    assert told["apart"] <= told["noise"]
    assert [start["side"] for start in told["starts"]] == ["A", "B", "B", "A"]
    assert len(told["starts"][0]["logprobs"]) > 20
