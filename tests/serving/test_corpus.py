"""serve-check against what two real releases said of 554 commands: most that can be told, nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
from functools import cache
from typing import NamedTuple

import pytest

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.serving.check import check
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving
from vllm_mods.trees.release import Releases

pytestmark = pytest.mark.network

TRUTH = os.path.join(os.path.dirname(__file__), "..", "corpus", "serve_truth")
VERSIONS = ("0.21.0", "0.32.0")

# What no command says, by what the release answered: the model, the machine, what is installed.
BEYOND = {
    r"failed to tokenize|os\.PathLike": "the tokenizer, which the small model lacks",
    r"Non-MoE models|Number of experts|requires a multimodal model": "the model",
    r"GQA/MQA|total num kv he": "the model's heads",
    r"Model Runner V1": "the model, by which a runner is chosen",
    r"only supported on CUDA|Sleep mode is not supported": "the machine: a CPU",
    r"data_parallel_external_lb can only": "VLLM_DP_SIZE of the container",
    r"Arctic Inference|No module named": "what is installed",
    r"does not exist|appears path-like": "files",
}
# What a config class computes is not followed: vLLM itself names it before it reads weights.
COMPUTED = r"Value error|Assertion|config: |start: |parser: \S+: argument --compilation-config/-cc: .* Input should be (?:[0-9]|an object)|argument --collect-detailed"


class Rates(NamedTuple):
    refused: int
    accepted: int
    missed: tuple[str, ...]
    false: tuple[str, ...]
    beyond: int


@cache
def rates(version: str) -> Rates:
    known = KnownFlags(Releases().open(version))
    with open(os.path.join(TRUTH, f"{version}.json"), encoding="utf-8") as file:
        truth: dict[str, str | None] = json.load(file)
    missed, false, beyond = [], [], 0
    for line, refused in truth.items():
        answer = check(known, Serving(("m", *shlex.split(line))))
        # what is not used is taken all the same
        errors = (fault for fault in answer.faults if fault.level is Level.ERROR)
        wrong = [fault for fault in errors if fault.code != FindingCode.FLAG_UNUSED]
        if refused is None and wrong:
            false.append(f"{line}: {wrong[0].message}")
        elif refused is not None and not wrong:
            told = not any(re.search(one, refused) for one in BEYOND)
            beyond += not told
            if told:
                missed.append(f"{line}: {refused}")
    counted = sum(one is not None for one in truth.values())
    return Rates(counted, len(truth) - counted, tuple(missed), tuple(false), beyond)


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_flagged_that_the_release_takes(version: str) -> None:
    found = rates(version)
    assert found.accepted > 250
    assert found.false == ()


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_command_shows_to_be_refused_is_found(version: str) -> None:
    found = rates(version)
    assert found.refused > 260
    assert len(found.missed) < found.refused / 3.5
    assert [line for line in found.missed if not re.search(COMPUTED, line)] == []
