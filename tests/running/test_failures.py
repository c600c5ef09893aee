"""Why a server does not serve: the cause in its log, and the line that is typed next."""

from __future__ import annotations

import pytest

from vllm_mods.running.engine import EngineContainer
from vllm_mods.running.failure import FailedStart, failure_of
from vllm_mods.running.service import TYPED_LABEL

ENGINE, API = "(EngineCore_DP0 pid=9) ", "(APIServer pid=1) "
ERROR = "ERROR 11-23 10:00:00 [core.py:9] "
TRACE = "Traceback (most recent call last):"
LINK = "The above exception was the direct cause of the following exception:"
END = "RuntimeError: No engine. See root cause above. Failed core proc(s): {}"
ENDED = EngineContainer(
    "docker", "x", {"vllm-mods.model": "/models/m", TYPED_LABEL: "run p --wait"}, False, 0, "", "exited", 1,
    command=("vllm", "serve", "/models/m", "--port", "9000"), folders={"/models/m": "/data/my m"},
)  # fmt: skip
AGAIN = "vllm-mods run p --wait --replace"


def failed(*lines: str, **state: object) -> FailedStart:
    log = "\n".join(lines).encode()
    return failure_of(ENDED._replace(**state), log)  # type: ignore[arg-type]


def raised(*texts: str, who: str = ENGINE + ERROR) -> list[str]:
    """Return what a process prints of exceptions, each of which came of the one before."""
    lines: list[str] = []
    for text in texts:
        lines += ["", LINK, ""] if lines else []
        lines += [TRACE, '  File "a.py", line 1, in f', "    f()", *text.splitlines()]
    return [f"{who}{line}" for line in lines]


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        ([*raised("ValueError: a"), *raised(END, who=API)], "ValueError: a"),
        ([*raised("ValueError: a", who=ENGINE), *raised("OSError: b")], "ValueError: a"),
        ([*raised("OSError: of the server", who=API), *raised("ValueError: a")], "ValueError: a"),
        ([*raised("KeyError: 'k'", "vllm.x.Odd: a"), *raised(END, who="")], "KeyError: 'k', which became vllm.x.Odd: a"),
        (
            [*raised("Exception: of a worker. See stack trace for root cause."), *raised("OSError: a", who="(Worker_TP1 pid=3) ")],
            "OSError: a",
        ),
        ([*raised("OSError: a", who=""), *raised(END, who="")], "OSError: a"),
        (
            raised("pydantic.ValidationError: 1 validation error for Model\n  Value error, no such kind [type=value_error, input]\n    more"),
            "pydantic.ValidationError: 1 validation error for Model Value error, no such kind",
        ),
        (["usage: vllm serve", "vllm serve: error: unrecognized arguments: --y"], "unrecognized arguments: --y"),
        (raised(END, who=""), END),
        ([], "the log is empty"),
        (["a", "b"], "the log has no exception; its end:\na\nb"),
    ],
)  # fmt: skip
def test_the_cause_is_the_first_exception_of_an_engine_or_a_worker(
    lines: list[str], cause: str
) -> None:
    assert failed(*lines).cause == cause


def test_two_processes_that_print_at_once_are_told_apart() -> None:
    first, second = (raised(f"OSError: {who}", who=f"(Worker_TP{who} pid={who}) ") for who in "12")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert failed(*mixed).cause == "OSError: 1"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: No engine. See root cause above. Failed core proc(s): {'EngineCore': -9}",
        f"{ENGINE}{ERROR}Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down",
        f"{API}{ERROR}[shutdown] MPClient: engine core exited unexpectedly; starting cleanup -9",
        f"{API}{ERROR}Engine core proc EngineCore died unexpectedly, shutting down client. -9",
        f"{API}{ERROR}vllm.v1.engine.exceptions.EngineDeadError: See stack trace (above) -9",
    ],
)
def test_a_process_that_was_killed_is_told(line: str) -> None:
    assert failed(TRACE, line).cause.startswith("a process of the engine was killed, by ")
    assert failed(line, out_of_memory=True, memory=48 << 20).cause == (
        "out of memory: a process was killed at the container's memory limit, 48 MiB"
    )
    died = failed(*raised("OSError: of a worker", who="(Worker pid=3) "), line)
    assert died.cause == "OSError: of a worker"


def test_a_process_that_crashed_was_not_killed() -> None:
    seen = failed("RuntimeError: No engine. Failed core proc(s): {'EngineCore': -11}")
    assert seen == ("a process of the engine crashed (signal 11)", "docker logs x")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("the estimated maximum model length is 4096. Or", f"{AGAIN} -- --max-model-len 4096"),
        (
            "Free memory on device cuda:0 (61.5/119.7 GiB) on startup is less than",
            f"{AGAIN} -- --gpu-memory-utilization 0.51",
        ),
        (
            "Available memory on node 0 (10.95/13.59 GiB) on startup is less than desired",
            f"{AGAIN} -- --gpu-memory-utilization 0.8",
        ),
        ("No available memory for the cache blocks.", f"{AGAIN} -- --gpu-memory-utilization 0.95"),
        ("CUDA out of memory. Tried", f"{AGAIN} -- --gpu-memory-utilization 0.8"),
        ("[Errno 98] Address already in use", f"{AGAIN} -- --port 9001"),
        ("401 Client Error", f"{AGAIN} --env-file hub.env"),
        ("No space left on device: '/dev/shm/x'", f"{AGAIN} --shm-size 32g"),
        ("Cannot find any model weights with `/models/m`", "ls -laL '/data/my m'"),
        ("weights were not initialized from checkpoint", "vllm-mods suggest '/data/my m'"),
        ("something else", "docker logs x"),
    ],
)
def test_a_hint_is_a_line_that_helps(text: str, hint: str) -> None:
    assert failed(*raised(f"ValueError: {text}")).hint == hint


def test_a_hint_knows_what_the_command_has() -> None:
    memory = raised("OutOfMemoryError: x")
    tight = (*ENDED.command, "--gpu-memory-utilization", "0.15")
    assert failed(*memory, command=tight).hint.endswith("--gpu-memory-utilization 0.1")
    assert failed(*memory, command=(*tight[:-1], "much")).hint.endswith(" 0.8")
    hub = failed(*raised("OSError: no config.json"), labels={"vllm-mods.model": "org/m"})
    assert hub.hint == "hf download org/m"
