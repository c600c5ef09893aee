"""flashqla in a real vLLM: which kernel is taken, and what FlashQLA's is given and gives back.

Needs ``VLLM_MODS_BEHAVIOUR_PYTHON`` and ``VLLM_MODS_BEHAVIOUR_TREES``, as in test_hybrid_dispatch;
trees without ``ChunkGatedDeltaRule`` are passed over. ``VLLM_MODS_BEHAVIOUR_PATH`` comes before that
Python's own packages. No GPU and no flash-qla are used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.library.mod_folder import data_root, load_mod
from vllm_mods.planning.planner import plan
from vllm_mods.trees.open import open_tree

if TYPE_CHECKING:
    from pathlib import Path

HERE = os.path.dirname(__file__)
SCRIPT = os.path.join(HERE, "flashqla_dispatch.py")
STANDIN = os.path.join(HERE, "flash_qla_standin.py")
PYTHON = os.environ.get("VLLM_MODS_BEHAVIOUR_PYTHON", "")
HOMES = (
    "vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py",
    "vllm/model_executor/layers/mamba/gdn_linear_attn.py",
    "vllm/model_executor/models/qwen3_next.py",
)


def _has_rule(tree: str) -> bool:
    for home in HOMES:
        with contextlib.suppress(FileNotFoundError), open(os.path.join(tree, home), "rb") as file:
            if b"class ChunkGatedDeltaRule" in file.read():
                return True
    return False


TREES = [
    tree
    for tree in os.environ.get("VLLM_MODS_BEHAVIOUR_TREES", "").split(os.pathsep)
    if tree and _has_rule(tree)
]

pytestmark = [
    pytest.mark.behaviour,
    pytest.mark.network,
    pytest.mark.skipif(
        not (PYTHON and TREES),
        reason="set VLLM_MODS_BEHAVIOUR_PYTHON and VLLM_MODS_BEHAVIOUR_TREES",
    ),
]

FORWARD = "flashqla_prefill.forward"
SUPPORTED = ("9.0", "10.0", "10.3", "12.0", "12.1")
UNSUPPORTED = ("8.0", "8.9", "11.0", "rocm", "xpu", "cpu")
OTHERS = ("triton", "flashinfer", "cutedsl", "aiter_flydsl", "sycl")
UNUSABLE = {
    "absent": "the package flash-qla is not installed",
    "needy": "flash_qla needs tilelang_that_is_not_there, which is not installed",
    "broken": "flash_qla can't be imported (ValueError: no kernels for compute version 7.5)",
    "old": "flash_qla is too old, it knows one layout of the state only",
}
MODELS = {
    "float32": "the model runs in torch.float32, not in 16 bits",
    "keys of 64": "the linear heads have sizes 64 and 128, not 128",
    "values of 256": "the linear heads have sizes 128 and 256, not 128",
    "no linear heads": "the linear heads have sizes None and None, not 128",
}


def _mod() -> Any:
    return load_mod(os.path.join(data_root(), "patches", "flashqla"))


def _ask(tree: str, folder: Path) -> dict[str, Any]:
    paths = [tree, *filter(None, [os.environ.get("VLLM_MODS_BEHAVIOUR_PATH")])]
    done = subprocess.run(
        [PYTHON, SCRIPT, STANDIN],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    (line,) = re.findall(r"^ANSWER (.*)$", done.stdout, re.MULTILINE)
    answer = json.loads(line)
    assert isinstance(answer, dict)
    assert answer["vllm"].startswith(tree)
    return answer


@pytest.fixture(scope="module", params=TREES, ids=lambda tree: os.path.basename(tree.rstrip("/")))
def told(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What one vLLM answers as it is, and with the mod."""
    folder = tmp_path_factory.mktemp("flashqla")
    patched = str(folder / "patched")
    shutil.copytree(os.path.join(request.param, "vllm"), os.path.join(patched, "vllm"))
    planned = plan([_mod()], open_tree(patched))
    assert planned.ok, planned.mods[0].findings
    for change in planned.changes:
        assert change.after is not None
        with open(os.path.join(patched, change.path), "wb") as file:
            file.write(change.after)
    return _ask(request.param, folder), _ask(patched, folder)


Told = tuple[dict[str, Any], dict[str, Any]]


def _ours(log: list[str]) -> list[str]:
    return [line for line in log if "FlashQLA" in line or "'flashqla'" in line]


@pytest.mark.parametrize("asked", ["nothing", "auto", "flashqla", " FlashQLA "])
@pytest.mark.parametrize("gpu", SUPPORTED)
def test_flashqla_is_taken_where_it_can_be_used(told: Told, gpu: str, asked: str) -> None:
    choice = told[1]["choices"][f"present, {gpu}, {asked}"]
    assert choice["method"] == FORWARD
    # the builder of the metadata asks the same function from 0.22
    assert choice["builder"] in (None, "flashqla")
    named = "auto" if asked == "nothing" else asked.strip().lower()
    assert choice["log"] == [f"INFO: FlashQLA is chosen for GDN prefill (requested={named})"]


@pytest.mark.parametrize("asked", ["nothing", "auto", "flashqla"])
@pytest.mark.parametrize("gpu", UNSUPPORTED)
def test_on_another_gpu_vllm_chooses_as_without_the_mod(told: Told, gpu: str, asked: str) -> None:
    before = told[0]["choices"][f"absent, {gpu}, auto"]
    after = told[1]["choices"][f"present, {gpu}, {asked}"]
    assert (after["method"], after["builder"]) == (before["method"], before["builder"])
    (line,) = {line for line in after["log"] if line in _ours(after["log"])}
    if asked == "flashqla":
        assert line.startswith("WARNING: GDN prefill backend 'flashqla' was asked for and can't")
    else:
        assert line.startswith("INFO: GDN prefill goes without FlashQLA: ")
    assert ("NVIDIA" if gpu.isalpha() else f"compute capability is {gpu}, not") in line
    assert [line for line in after["log"] if line not in _ours(after["log"])] == before["log"]


@pytest.mark.parametrize("package", UNUSABLE)
@pytest.mark.parametrize("gpu", SUPPORTED)
def test_without_a_usable_package_vllm_chooses_as_without_the_mod(
    told: Told, gpu: str, package: str
) -> None:
    before = told[0]["choices"][f"absent, {gpu}, auto"]
    for asked, words in (
        (
            "flashqla",
            "WARNING: GDN prefill backend 'flashqla' was asked for and can't be used: {}. ",
        ),
        ("auto", "INFO: GDN prefill goes without FlashQLA: {}."),
    ):
        after = told[1]["choices"][f"{package}, {gpu}, {asked}"]
        assert (after["method"], after["builder"]) == (before["method"], before["builder"])
        assert after["log"][0].startswith(words.format(UNUSABLE[package]))
        assert after["log"][1:] == before["log"]


@pytest.mark.parametrize("compiler", ["a compiler", "another tilelang"])
@pytest.mark.parametrize("asked", ["auto", "flashqla"])
def test_with_a_compiler_or_nobody_to_ask_it_is_taken(
    told: Told, asked: str, compiler: str
) -> None:
    choice = told[1]["choices"][f"{compiler}, 9.0, {asked}"]
    assert choice["method"] == FORWARD
    assert choice["log"] == [f"INFO: FlashQLA is chosen for GDN prefill (requested={asked})"]


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("no toolkit", "tilelang finds no CUDA toolkit (CUDA_HOME)"),
        ("no nvcc", "there is no compiler /nowhere/bin/nvcc"),
    ],
)
def test_without_a_compiler_it_is_taken_only_if_asked_for(
    told: Told, compiler: str, why: str
) -> None:
    """Its kernels are compiled at the first prompt: where they can't be, the server would fail then."""
    choices = told[1]["choices"]
    before, auto = told[0]["choices"]["absent, 9.0, auto"], choices[f"{compiler}, 9.0, auto"]
    assert (auto["method"], auto["builder"]) == (before["method"], before["builder"])
    assert auto["log"][0] == f"INFO: GDN prefill goes without FlashQLA: {why}."
    insisted = choices[f"{compiler}, 9.0, flashqla"]
    assert insisted["method"] == FORWARD
    assert insisted["log"][0].startswith(
        "WARNING: FlashQLA's kernels are compiled when they are first"
    )
    assert why in insisted["log"][0]
    assert choices[f"{compiler}, 9.0, triton"] == told[0]["choices"]["absent, 9.0, triton"]


@pytest.mark.parametrize("gpu", ["9.0", "10.0"])
@pytest.mark.parametrize("model", MODELS)
def test_a_model_it_has_no_kernel_for_gets_another_one(told: Told, model: str, gpu: str) -> None:
    before = told[0]["choices"][f"absent, {gpu}, {model}, auto"]
    for asked in ("flashqla", "auto"):
        after = told[1]["choices"][f"present, {gpu}, {model}, {asked}"]
        assert (after["method"], after["builder"]) == (before["method"], before["builder"])
        assert MODELS[model] in after["log"][0]
        assert after["log"][1:] == before["log"]


def test_float16_is_served(told: Told) -> None:
    assert told[1]["choices"]["present, 9.0, float16, auto"]["method"] == FORWARD


@pytest.mark.parametrize("package", ["absent", "present", "broken"])
@pytest.mark.parametrize("asked", OTHERS)
def test_every_other_backend_stays_what_it_was(told: Told, asked: str, package: str) -> None:
    for gpu in (*SUPPORTED, *UNSUPPORTED):
        before = told[0]["choices"][f"absent, {gpu}, {asked}"]
        assert told[1]["choices"][f"{package}, {gpu}, {asked}"] == before


def test_the_option_takes_flashqla_and_what_it_took(told: Told) -> None:
    before, after = told[0]["parsed"], told[1]["parsed"]
    assert told[0]["option"] == told[1]["option"] == bool(after)
    if not after:
        pytest.skip("this release has no such option, only additional_config")
    assert before["flashqla"] is None
    assert after == before | {"flashqla": "flashqla"}
    assert after["nonsense"] is None
    assert after["additional"] == "flashqla"


def test_every_argument_that_vllm_may_pass_is_taken(told: Told) -> None:
    ours = set(told[1]["arguments"])
    assert set(told[1]["upstream_arguments"]) <= ours
    assert told[1]["upstream_calls"] == told[0]["upstream_calls"]
    for call in told[1]["upstream_calls"]:
        assert set(call) <= ours


def test_the_kernel_is_given_what_it_needs(told: Told) -> None:
    computed = told[1]["computed"]
    types = {
        "q": "bfloat16",
        "k": "bfloat16",
        "v": "bfloat16",
        "g": "float32",
        "beta": "float32",
        "initial_state": "float32",
        "cu_seqlens": "int32",
    }
    assert len(computed["calls"]) == 2
    for call in computed["calls"]:
        assert call["dtypes"] == types
        assert call["state_v_first"] is True
        assert call["scale"] is None
        words = told[1]["upstream_calls"][-1]
        assert call["use_qk_l2norm_in_kernel"] is words["use_qk_l2norm_in_kernel"]
    # FlashQLA keeps what it derives from the lengths by their identity: a copy for every layer would
    # make it wait for the GPU in every layer
    assert computed["same_cu_seqlens"]
    assert computed["other_dtypes"] == types


def test_outputs_and_carried_states_are_the_recurrence(told: Told) -> None:
    computed = told[1]["computed"]
    for output, state in computed["off"]:
        assert output < 3e-3  # bfloat16 outputs
        assert state < 1e-5  # float32 states, after two chunks
    assert computed["output"] == [[1, 27, 4, 128], "torch.bfloat16"]
    assert computed["state"] == [[3, 4, 128, 128], "torch.float32"]
    assert computed["no_state"]


def test_the_output_buffer_is_filled_from_its_beginning(told: Told) -> None:
    if "core_attn_out" not in told[1]["upstream_arguments"]:
        pytest.skip("this release has no output buffer here")
    assert told[1]["computed"]["filled"]


def test_the_evidence_is_logged_once_and_by_the_kernel_alone(told: Told) -> None:
    evidence = re.compile(dict(_mod().evidence)["log"])
    (line,) = told[1]["computed"]["log"]
    assert evidence.search(line)
    assert not any(
        evidence.search(line) for choice in told[1]["choices"].values() for line in choice["log"]
    )
