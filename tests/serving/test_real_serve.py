"""Serve commands against real releases of vLLM from the index that pip uses here."""

from __future__ import annotations

import re
import shlex
from functools import cache

import pytest

from vllm_mods.base.model import Level
from vllm_mods.serving.check import ServeAnswer, check
from vllm_mods.serving.command import words
from vllm_mods.serving.shape import KnownFlags
from vllm_mods.serving.template import Serving
from vllm_mods.trees.release import Releases

pytestmark = pytest.mark.network

COMMAND = """vllm serve org/Model --served-model-name desk --max-model-len 196608
--gpu-memory-utilization 0.76 --max-num-batched-tokens 16k --max-num-seqs 16 --dtype bfloat16
--kv-cache-dtype fp8_e4m3 --port 8000 --host 0.0.0.0 --load-format fastsafetensors
--no-enable-prefix-caching --enable-chunked-prefill --attention-backend FLASHINFER
--speculative-config '{"method": "mtp", "num_speculative_tokens": 3}' -tp 2
--compilation-config.cudagraph_mode FULL --enable-auto-tool-choice
--tool-call-parser qwen3_coder --reasoning-parser qwen3 --generation-config auto
--override-generation-config '{"temperature": 0.7, "top_p": 0.8, "top_k": 20}'"""
ENV = {"VLLM_MARLIN_USE_ATOMIC_ADD": "1", "HF_HUB_OFFLINE": "1"}
VERSIONS = ("0.15.0", "0.17.1", "0.19.1", "0.21.0", "0.24.0", "0.28.0", "0.31.0", "0.33.0")


@cache
def known(version: str) -> KnownFlags:
    return KnownFlags(Releases().open(version))


def ask(version: str, line: str) -> ServeAnswer:
    return check(known(version), Serving(words(shlex.split(line)), ENV))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_command_that_they_all_take_is_right(version: str) -> None:
    assert ask(version, COMMAND).faults == ()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("before", "after", "code", "near"),
    [
        ("--tool-call-parser", "--tool-cal-parser", "flag-unknown", "--tool-call-parser"),
        ("--max-num-seqs 16", "--max-num-seqs 1k", "value-type", ""),
        ("qwen3_coder", "qwen3_code", "value-choice", "qwen3_coder"),
        ("parser qwen3 ", "parser qwen33 ", "value-choice", "qwen3"),
        ("FLASHINFER", "FLASHINFR", "value-choice", "FLASHINFER"),
        ("fastsafetensors", "fastsafetensor", "value-choice", "fastsafetensors"),
        ("fp8_e4m3", "fp8_e4m33", "value-choice", "fp8_e4m3"),
        ("bfloat16", "bf16", "value-choice", None),
        ("0.76", "76", "value-range", ""),
        ('"method"', "method", "json-invalid", ""),
        ('"num_speculative_tokens"', '"num_speculative_token"', "json-key", None),
        ('"mtp"', '"mtpp"', "json-value", None),
        ("cudagraph_mode", "cudagraph_mod", "json-key", "cudagraph_mode"),
        ('"temperature"', '"temprature"', "json-key", "temperature"),
    ],
)
def test_one_fault_is_found_and_no_other(
    version: str, before: str, after: str, code: str, near: str | None
) -> None:
    assert len(re.findall(re.escape(before), COMMAND)) == 1
    answer = ask(version, COMMAND.replace(before, after))
    wrong = [fault for fault in answer.faults if fault.level is Level.ERROR]
    assert [fault.code for fault in wrong if fault.code not in {"flag-alone", "flag-unused"}] == [
        code
    ]
    if near is not None:
        assert wrong[0].near == near


@pytest.mark.parametrize(("version", "count"), [("0.19.1", 230), ("0.33.0", 320)])
def test_as_many_flags_as_the_real_parser_has_but_help(version: str, count: int) -> None:
    assert len(known(version).flags) == count


def test_what_came_and_went() -> None:
    line = "vllm serve m --enable-auto-tool-choice --tool-call-parser "
    assert not ask("0.19.1", f"{line} qwen3_json").ok
    assert ask("0.33.0", f"{line} qwen3_json").ok
    assert ask("0.21.0", f"{line} minimax").ok
    assert not ask("0.24.0", f"{line} minimax").ok
    assert ask("0.33.0", "vllm serve m --disable-prefix-caching").ok
    assert not ask("0.31.0", "vllm serve m --disable-prefix-caching").ok
    gdn = "vllm serve m --gdn-prefill-backend cutedsl"
    assert [ask(version, gdn).ok for version in ("0.17.1", "0.19.1", "0.24.0")] == [
        False,
        False,
        True,
    ]
    assert not ask("0.33.0", "vllm serve m --swap-space 4").ok


def test_a_release_is_read_by_a_few_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    releases = Releases(cache_dir=str(tmp_path_factory.mktemp("cache")))
    tree = releases.open("0.33.0")
    assert releases.http is not None
    before = releases.http.received
    check(KnownFlags(tree), Serving(words(shlex.split(COMMAND)), ENV))
    assert releases.http.received - before < 400_000
