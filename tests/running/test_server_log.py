"""What counts as a record of a server, since which start, and when it serves."""

from __future__ import annotations

import pytest
from lowering import lower

from vllm_mods.running import server_log

TIME = "INFO 11-23 10:00:00"
ENGINE, API = "(EngineCore pid=9) ", "(APIServer pid=1) "


def records(*lines: str) -> list[tuple[str, str, bool]]:
    read = server_log.read("\n".join(lines).encode()).records
    return [(record.file, record.message, record.computes) for record in read]


@pytest.mark.parametrize(
    ("line", "record"),
    [
        (f"{ENGINE}{TIME} [a.py:1] text", ("a.py", "text", True)),
        (f"{API}{TIME} [a.py:1] text", ("a.py", "text", False)),
        (f"(EngineCore_DP0 pid=9) {TIME} [a.py:1] text", ("a.py", "text", True)),
        (f"(Worker_TP0 pid=9) {TIME} [a.py:1] text", ("a.py", "text", True)),
        (f"{ENGINE}(RayWorkerWrapper pid=3, ip=10.0.0.1) {TIME} [a.py:1] x", ("a.py", "x", True)),
        (f"{API}{ENGINE}{TIME} [a.py:1] x", ("a.py", "x", False)),
        (f"{TIME} [a.py:1] text", ("a.py", "text", True)),
        (f"{TIME} [some/folder/a-b.py:10] text", ("a-b.py", "text", True)),
        (f"\x1b[0;36m{ENGINE}\x1b[0m{TIME} [a.py:1] text", ("a.py", "text", True)),
        (f"{TIME} [a.py:1] text\r", ("a.py", "text", True)),
        (f"{TIME} [a.py:1] ", ("a.py", "", True)),
        ("DEBUG 01-02 03:04:05 [a.py:1] x", ("a.py", "x", True)),
        ("WARNING 01-02 03:04:05 [a.py:1] x", ("a.py", "x", True)),
        ("ERROR 01-02 03:04:05 [a.py:1] x", ("a.py", "x", True)),
        ("CRITICAL 01-02 03:04:05 [a.py:1] x", ("a.py", "x", True)),
    ],
)
def test_a_record_of_a_log(line: str, record: tuple[str, str, bool]) -> None:
    assert records(line) == [record]


@pytest.mark.parametrize(
    "line",
    ["text", f" {TIME} [a.py:1] x", "INFO [a.py:1] x", f"{TIME} a.py:1 x", f"x {ENGINE}{TIME} [a.py:1] x"],
)  # fmt: skip
def test_what_is_no_record(line: str) -> None:
    assert records(line, f"{TIME} [a.py:1] last") == [("a.py", "last", True)]


def test_where_processes_have_names_a_record_without_one_is_no_engines() -> None:
    lines = (f"{ENGINE}{TIME} [a.py:1] x", f"{TIME} [b.py:1] y", f"{API}{TIME} [c.py:1] z")
    assert records(*lines) == [("a.py", "x", True), ("b.py", "y", False), ("c.py", "z", False)]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("utils.py", "vLLM API server version 0.19.1"),
        ("api_server.py", "vLLM server version 0.22"),
        ("api_utils.py", "       █     █     █▄   ▄█ version 0.22"),
        ("startup.py", " ▄▄ ▄█ █     █     █ ▀▄▀ █ version 0.22"),
        ("serve.py", "Launching vLLM (v0.22) headless multiproc executor"),
    ],
)
def test_a_start_of_the_server_begins_the_log_anew(file: str, message: str) -> None:
    log = server_log.read(f"{TIME} [a.py:1] old\n{TIME} [{file}:1] {message}\n".encode())
    assert [(record.file, record.message) for record in log.records] == [(file, message)]
    assert (log.starts, log.ready) == (1, "headless" in message)


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("a.py", "vLLM API server version 0.19.1"),
        ("utils.py", "a vLLM API server version 0.19.1"),
        ("utils.py", "version 1"),
    ],
)
def test_what_is_no_start(file: str, message: str) -> None:
    log = server_log.read(f"{TIME} [a.py:1] old\n{TIME} [{file}:1] {message}\n".encode())
    assert (len(log.records), log.starts) == (2, 0)


@pytest.mark.parametrize(
    ("line", "ready"),
    [
        (f"{API}{TIME} [a.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000", True),
        (f"{TIME} [a.py:1] Starting vLLM server on http://0.0.0.0:8000", True),
        (f"{API}{TIME} [a.py:1] Server is ready to accept requests", True),
        (f"{ENGINE}{TIME} [a.py:1] Server is ready to accept requests", False),
        (f"{API}{TIME} [a.py:1] the Server is ready to accept requests", False),
        ("Starting vLLM API server 0", False),
    ],
)
def test_when_a_server_serves(line: str, *, ready: bool) -> None:
    assert server_log.read(f"{line}\n{TIME} [a.py:1] x\n".encode()).ready is ready


def test_who_starts_again_does_not_serve_yet() -> None:
    start = f"{API}{TIME} [utils.py:1] vLLM API server version 1\n"
    ready = f"{API}{TIME} [a.py:1] Starting vLLM API server 0\n"
    log = server_log.read(f"{start}{ready}{start}".encode())
    assert (log.starts, log.ready, len(log.records)) == (2, False, 1)


def test_of_a_line_so_many_letters_count(monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{TIME} [a.py:1] "
    lower(monkeypatch, "LOG_LINE", len(line) + 2)
    assert records(f"{line}xyz") == [("a.py", "xy", True)]
    assert server_log.read(f"{line}é\xff".encode("latin-1")).records[0].message == "��"


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ((), "starts"),
        ((f"{API}{TIME} [utils.py:1] vLLM API server version 1",), "starts"),
        (("Fetching 9 files:  11%|# | 1/9 [00:01<00:08]\rFetching 9 files:  22%|# | 2/9 [00:02<",), "downloads the model, 2 of 9 files"),
        ((f"{ENGINE}{TIME} [gpu_model_runner.py:1] Starting to load model m...", "x"), "loads the model"),
        (("Loading safetensors checkpoint shards:  50% Completed | 2/4 [00:01<00:01, 1it/s]",), "loads weights, 2 of 4 files"),
        ((f"{ENGINE}{TIME} [a.py:1] Model loading took 5.2 GiB",), "has loaded the weights"),
        ((f"{ENGINE}{TIME} [a.py:1] GPU KV cache size: 9 tokens", "Capturing CUDA graphs:   0%|"), "captures CUDA graphs"),
        ((f"{API}{TIME} [a.py:1] Starting vLLM server on http://0.0.0.0:8000", "INFO: started"), "opens its port"),
    ],
)  # fmt: skip
def test_what_a_server_that_starts_is_at(lines: tuple[str, ...], phase: str) -> None:
    assert server_log.phase("\n".join(lines).encode()) == phase
