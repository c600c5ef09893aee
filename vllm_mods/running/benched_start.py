"""One start of a server on this machine, measured by vLLM's own client, and ended with all that it started."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, Request, build_opener

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.images import engine_command
from vllm_mods.running import starting
from vllm_mods.running.failure import cause_of
from vllm_mods.scripts.command_line import flag_value

_HOST, _POLL_SECONDS, _STOP_SECONDS = "127.0.0.1", 0.1, 30
_WARM_UP, _MOST_WARM_UPS, _UNSTEADY = 1_000_003, 5, 1.05
"""Added to the seed for each pass that is dropped: prompts that it had too would be in the cache."""
_COUNTER = re.compile(r"^vllm:(\w+)_total\{.* (\S+)$", re.MULTILINE)
_TEXT = "The quick brown fox jumps over the lazy dog 3.14159 times a day.\ndef area(shape):\n    width, height = shape\n    return width * height\n"
"""What each start gives log probabilities of."""


class BenchLoad(NamedTuple):
    """What each start is asked: so many random ``prompts`` of each length, ``concurrency`` at a time."""

    input_lengths: tuple[int, ...] = (512,)
    output_length: int = 128
    prompts: int = 16
    concurrency: int = 1
    seed: int = 0


class BenchedStart(NamedTuple):
    """What one start of a side (``A`` or ``B``) showed: ``numbers`` by their name and unit."""

    side: str
    version: str
    numbers: Mapping[str, float]
    logprobs: tuple[float, ...]


def measure(
    side: str, command: Sequence[str], environ: Mapping[str, str], load: BenchLoad, log: str
) -> BenchedStart:
    """Start a server, ask it and end it with all that it started; what it says goes to the file ``log``.

    ``command`` has the word ``serve``. Raises ``TreeError`` for one that does not serve, or does not answer all.
    """
    try:
        with socket.create_server((_HOST, 0)) as free:
            place = ("--host", _HOST, "--port", str(free.getsockname()[1]))
        with open(log, "wb") as said, contextlib.ExitStack() as ending:
            process = subprocess.Popen(
                [*command, *place], env={**environ, "VLLM_API_KEY": ""}, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
            for sent in (signal.SIGKILL, signal.SIGTERM):  # the last is called first
                ending.callback(_end, process, sent)
            url = f"http://{_HOST}:{place[-1]}"
            seconds = _wait(process, url, log)
            version = json.loads(_ask(f"{url}/version"))["version"]
            model = json.loads(_ask(f"{url}/v1/models"))["data"][0]
            client = [*command[: command.index("serve")], "bench", "serve", *place]
            client += ["--model", model["root"], "--served-model-name", model["id"]]
            trusted = flag_value(command, "--trust-remote-code") is not None
            client += ["--trust-remote-code"] * trusted
            if tokenizer := flag_value(command, "--tokenizer"):
                client += ["--tokenizer", tokenizer]
            numbers = _numbers(client, url, load) | _memory(process.pid, environ)
            numbers["start-up, s"] = seconds
            return BenchedStart(side, version, numbers, _logprobs(url, model["id"]))
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TreeError) as error:
        why = f"the server of side {side} could not be measured: {error}"
        raise TreeError(why, hint=f"less {log}") from error


def _end(process: subprocess.Popen[bytes], sent: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, sent)
        process.wait(_STOP_SECONDS)


def _wait(process: subprocess.Popen[bytes], url: str, log: str) -> float:
    """Return how many seconds a server took until it serves."""
    begin = time.monotonic()
    while not starting.serves(url):
        if process.poll() is not None:
            with open(log, "rb") as file:
                raise TreeError(f"it ended before it was ready: {cause_of(file.read(limits.LOG))}")
        if time.monotonic() - begin >= limits.START_SECONDS:
            raise TreeError(f"it was not ready within {limits.START_SECONDS}")
        time.sleep(_POLL_SECONDS)
    return time.monotonic() - begin


def _numbers(client: Sequence[str], url: str, load: BenchLoad) -> dict[str, float]:
    for length in load.input_lengths:
        _warm_up(client, length, load)
    numbers, before = {}, _counters(url)
    for length in load.input_lengths:
        told = _drive(client, length, load)
        numbers[f"throughput at {length}, tokens/s"] = told["output_throughput"]
        numbers[f"time to first token at {length}, ms"] = told["median_ttft_ms"]
        numbers[f"time per token at {length}, ms"] = told["median_tpot_ms"]
    grown = {name: value - before[name] for name, value in _counters(url).items()}
    if drafted := grown.get("spec_decode_num_draft_tokens"):
        numbers["accepted drafts, share"] = grown["spec_decode_num_accepted_tokens"] / drafted
    if asked := grown.get("prefix_cache_queries"):
        numbers["prefix cache hits, share"] = grown["prefix_cache_hits"] / asked
    return numbers


def _warm_up(client: Sequence[str], length: int, load: BenchLoad) -> None:
    """Ask until the server is as fast as before: kernels are compiled when the first batch needs them."""
    speed = 0.0
    for _ in range(_MOST_WARM_UPS):
        load = load._replace(seed=load.seed + _WARM_UP)
        before, speed = speed, _drive(client, length, load)["output_throughput"]
        if before / _UNSTEADY < speed < before * _UNSTEADY:
            return


def _drive(client: Sequence[str], length: int, load: BenchLoad) -> dict[str, Any]:
    """Return what vLLM's client measured."""
    asking = f"--dataset-name random --random-input-len {length} --num-prompts {load.prompts}"
    asking += f" --random-output-len {load.output_length} --max-concurrency {load.concurrency}"
    asking += f" --seed {load.seed} --ignore-eos --temperature 0 --save-result"
    environ = {**os.environ, "NO_PROXY": _HOST, "no_proxy": _HOST}
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        done = subprocess.run(
            [*client, *asking.split(), "--result-dir", folder, "--result-filename", "told"],
            env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, timeout=limits.BENCH_SECONDS, check=False,
        )  # fmt: skip
        if done.returncode:
            raise TreeError(f"`vllm bench serve` failed: {cause_of(done.stdout)}")
        with open(f"{folder}/told", "rb") as file:
            told: dict[str, Any] = json.load(file)
    if told["completed"] != load.prompts:
        raise TreeError(f"it answered only {told['completed']} of {load.prompts} prompts")
    return told


def _ask(url: str, body: object = None) -> bytes:
    data = json.dumps(body).encode() if body else None
    request = Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    with build_opener(ProxyHandler({})).open(request, timeout=float(limits.ANSWER_SECONDS)) as told:
        return bytes(told.read(limits.ANSWER))


def _counters(url: str) -> defaultdict[str, float]:
    """Return the counters of a server, of all its engines together."""
    counted: defaultdict[str, float] = defaultdict(float)
    for name, value in _COUNTER.findall(_ask(f"{url}/metrics").decode()):
        counted[name] += float(value)
    return counted


def _logprobs(url: str, model: str) -> tuple[float, ...]:
    body = {"model": model, "prompt": _TEXT, "max_tokens": 1, "prompt_logprobs": 0}
    (choice,) = json.loads(_ask(f"{url}/v1/completions", body))["choices"]
    tokens = filter(None, choice["prompt_logprobs"])
    return tuple(round(next(iter(token.values()))["logprob"], 6) for token in tokens)


def _memory(group: int, environ: Mapping[str, str]) -> dict[str, float]:
    """Return the MiB that the processes of a group had at most, together, and what is taken of its GPUs'."""
    peaks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            with open(f"/proc/{pid}/status") as file:
                (peak,) = re.findall(r"VmHWM:\s+(\d+)", file.read()) or (0,)
            peaks += int(peak) * (os.getpgid(int(pid)) == group)
    used = sum(
        int(line)
        for line in engine_command.gpus("memory.used", environ.get("CUDA_VISIBLE_DEVICES"))
        if line.isdigit()
    )
    return {"memory, MiB": peaks / 1024} | ({"GPU memory, MiB": float(used)} if used else {})
