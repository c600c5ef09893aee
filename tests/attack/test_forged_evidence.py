"""What others write into a server's log is no evidence: requests, an earlier life, a server that never served."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from mod_making import mod, variant

from vllm_mods.library.catalog import Library
from vllm_mods.running import evidence

if TYPE_CHECKING:
    from vllm_mods.running.evidence import ServerEvidence

SAYS = "FlashQLA computes GDN prefill: 16 key heads, 64 value heads"
FORM = "INFO 11-23 10:00:00"
API, ENGINE, WORKER = "(APIServer pid=1) ", "(EngineCore_DP0 pid=271) ", "(Worker_TP1 pid=340) "
START = f"{API}{FORM} [utils.py:325]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.21.0\r\n"
READY = f"{API}{FORM} [api_server.py:617] Starting vLLM server on http://0.0.0.0:8000\n"
RUNS = f"{ENGINE}{FORM} [flashqla_prefill.py:173] {SAYS}\n"
INSTEAD = f"{ENGINE}{FORM} [gdn_linear_attn.py:147] Using Triton/FLA GDN prefill kernel\n"


def of(log: str, name: str = "flashqla") -> ServerEvidence:
    return evidence.of_mods([Library().load(name)], log.encode())


def state(log: str) -> str:
    return of(START + READY + log).mods[0].state


@pytest.mark.parametrize(
    "line",
    [
        RUNS,
        RUNS.replace(ENGINE, WORKER),
        RUNS.replace(ENGINE, f"{ENGINE}\x1b[36m(RayWorkerWrapper pid=9, ip=10.0.0.2)\x1b[0m "),
        RUNS.replace("[flashqla", "[model_executor/.../ops/flashqla"),
        RUNS.replace("INFO", "\x1b[32mINFO\x1b[0m"),
    ],
)
def test_a_record_of_the_mods_own_file_in_an_engine_or_a_worker_counts(line: str) -> None:
    assert state(line) == "ran"


@pytest.mark.parametrize(
    "line",
    [
        f"{API}ERROR 11-23 10:00:00 [serving.py:99] Error: The model `{SAYS}` does not exist.\n",
        # a message of several lines: each gets the prefix of its own record
        f"{API}{FORM} [serving.py:99] The model `\r\n{API}{FORM} [serving.py:99] {SAYS}` is not here\n",
        f"{API}{FORM} [serving.py:99] The model `\r\n{API}{FORM} [serving.py:99] {RUNS}",
        f"{API}{RUNS}",
        f"{API}{FORM} [flashqla_prefill.py:173] {SAYS}\n",
        f"{ENGINE}{FORM} [core.py:99] request `{SAYS}`\n",
        f"{ENGINE}{FORM} [core.py:99] request `\r{RUNS}",
        f"{ENGINE}{FORM} [core.py:99] request `\u2028{RUNS}",
        RUNS.removeprefix(ENGINE),
        f"{SAYS}\n",
        f"{ENGINE}{SAYS}\n",
        f'INFO:     10.0.0.1:4 - "GET /{SAYS} HTTP/1.1" 404 Not Found\n',
    ],
)
def test_what_a_request_writes_does_not(line: str) -> None:
    assert state(line) == "silent"


@pytest.mark.slow
def test_that_other_code_did_the_work_counts_more() -> None:
    assert [state(log) for log in (INSTEAD + RUNS, RUNS + INSTEAD)] == ["other", "other"]


@pytest.mark.parametrize("log", ["", RUNS, START, START + RUNS, READY + START + RUNS])
def test_a_server_that_never_served_is_a_no(log: str) -> None:
    seen = of(log)
    assert (seen.ready, seen.ok) == (False, False)


@pytest.mark.parametrize("process", [ENGINE, WORKER])
@pytest.mark.parametrize("text", ["Starting vLLM server ", "Server is ready to accept requests"])
def test_an_engine_does_not_say_that_the_server_is_ready(process: str, text: str) -> None:
    seen = of(f"{START}{RUNS}{process}{FORM} [core.py:9] {text}\n")
    assert (seen.ready, seen.ok) == (False, False)


@pytest.mark.slow
def test_an_earlier_life_does_not_count() -> None:
    seen = of(START + READY + RUNS + START + READY)
    assert (seen.ready, seen.restarts, seen.mods[0].state) == (True, 1, "silent")
    quoted = f"{API}{FORM} [serving.py:9] vLLM server version 1, serving model `\n"
    assert of(START + READY + RUNS + quoted).ok


@pytest.mark.parametrize(
    "line",
    [
        "[serve.py:191] Launching 2 data parallel engine(s) in headless mode, with head node …",
        "[serve.py:176] Launching vLLM (v0.21.0) headless multiproc executor, with head node …",
    ],
)
def test_a_node_without_an_api_server_has_nothing_to_serve(line: str) -> None:
    assert of(f"{FORM} {line}\n{RUNS}").ok


def test_a_program_that_names_no_process_is_taken_as_it_is() -> None:
    assert of(f"{READY.removeprefix(API)}{RUNS.removeprefix(ENGINE)}").ok


@pytest.mark.slow
def test_that_the_configuration_was_read_is_not_that_the_code_ran() -> None:
    line = (
        "[inc_hybrid_fp8.py:316] Hybrid INT4+FP8: 18 FP8 layers in /m, blocks of 128x128; INC loads"
    )
    for process in (API, ENGINE):
        seen = of(f"{START}{process}{FORM} {line}\n{READY}", "hybrid-int4-fp8")
        assert seen.mods[0].state == "silent"


def test_a_file_that_a_mod_renames_logs_by_its_new_name() -> None:
    patch = (
        b"diff --git a/vllm/old.py b/vllm/new.py\nsimilarity index 100%\n"
        b"rename from vllm/old.py\nrename to vllm/new.py\n"
    )
    renaming = mod(variant(patch), evidence=(("log", "done"),))
    log = f"{START}{ENGINE}{FORM} [new.py:1] done\n{READY}"
    assert evidence.of_mods([renaming], log.encode()).ok
