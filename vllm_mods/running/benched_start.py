"""One start of a server on this machine, measured by vLLM's own client, and ended with all its processes."""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.request import ProxyHandler, Request, build_opener

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, reading, system_errors
from vllm_mods.formats.container import options_of
from vllm_mods.images import engine_command
from vllm_mods.running import server_log, starting
from vllm_mods.running.failure import cause_of

_POLL_SECONDS = 0.1
_STOP_SECONDS = 30
_WARM_UP = 1_000_003
"""What is added to the seed for the pass that is dropped: with the same prompts the next one would find them in the cache."""
_COUNTERS = re.compile(
    r"vllm:(spec_decode_num_accepted_tokens|spec_decode_num_draft_tokens|prefix_cache_hits|prefix_cache_queries)_total\{.* (\S+)$",
    re.MULTILINE,
)
_FOR_CLIENT = ("--tokenizer", "--tokenizer-mode", "--trust-remote-code")
"""Options of the server that the client has too, and needs for its prompts."""
_TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it writes to the editor of a newspaper about dogs.",
    "def area(shape):\n    width, height = shape\n    if width < 0:\n        raise ValueError(width)\n    return width * height\n",
    "3.14159 26535 89793 23846; 2.71828 18284 59045 23536; 1.41421 35623 73095 04880; 1.61803 39887 49894",
)
"""What both sides give log probabilities of."""


class BenchLoad(NamedTuple):
    """What a server is asked: random prompts of each of the lengths, so many at a time; the same for every start."""

    input_lengths: tuple[int, ...] = (512, 2048)
    output_length: int = 128
    prompts: int = 16
    concurrency: int = 1
    seed: int = 0


class BenchedStart(NamedTuple):
    """What one start of a side (``A`` or ``B``) showed: numbers by name, with ``@`` and the length where they are for one."""

    side: str
    version: str
    numbers: Mapping[str, float]
    logprobs: tuple[float, ...]


def measure(
    side: str,
    command: Sequence[str],
    environ: Mapping[str, str],
    load: BenchLoad,
    log: str,
    progress: Callable[[str], object],
) -> BenchedStart:
    """Start a server, ask it and end it; what it says goes to the file ``log``.

    ``command`` has the word ``serve``. Raises ``TreeError`` for one that does not come to serve, or does not answer all.
    """
    at = command.index("serve")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = ("--host", "127.0.0.1", "--port", str(port))
    begin = time.monotonic()
    with _running((*command, *place), environ, log) as process:
        _wait(process, f"http://127.0.0.1:{port}", log, progress)
        numbers = {"start-up": time.monotonic() - begin}
        server = _Server(f"http://127.0.0.1:{port}")
        model = server.ask("/v1/models")["data"][0]
        client = [*command[:at], "bench", "serve", *place, "--model", model["root"]]
        client += ["--served-model-name", model["id"], *_kept(tuple(command[at:]))]
        for length in load.input_lengths:
            progress(f"warms up, {length} tokens")
            _drive(client, length, load._replace(seed=load.seed + _WARM_UP), log)
        before = server.counters()
        for length in load.input_lengths:
            progress(f"is measured, {length} tokens")
            told = _drive(client, length, load, log)
            numbers[f"throughput@{length}"] = told["output_throughput"]
            numbers[f"first-token@{length}"] = told["median_ttft_ms"]
            numbers[f"per-token@{length}"] = told["median_tpot_ms"]
        numbers |= _rates(before, server.counters())
        numbers |= _memory(process.pid)
        return BenchedStart(
            side, str(server.ask("/version")["version"]), numbers, server.logprobs(model["id"])
        )


@contextlib.contextmanager
def _running(
    command: Sequence[str], environ: Mapping[str, str], log: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process in a session that is ended, with whatever it started, when the block is."""
    with open(log, "wb") as said, system_errors(UsageError, command[0]):
        process = subprocess.Popen(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        try:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(_STOP_SECONDS)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            pass
        finally:
            end = time.monotonic() + _STOP_SECONDS
            with contextlib.suppress(ProcessLookupError):
                while time.monotonic() < end:  # the next one needs the memory
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait(_STOP_SECONDS)
                    time.sleep(_POLL_SECONDS)


def _wait(
    process: subprocess.Popen[bytes], url: str, log: str, progress: Callable[[str], object]
) -> None:
    begin, shown = time.monotonic(), ""
    while not starting.serves(url):
        said = _said(log)
        if process.poll() is not None:
            why = f"the server ended before it served: {cause_of(said)}"
            raise TreeError(why, hint=f"less {log}")
        if time.monotonic() - begin >= limits.START_SECONDS:
            why = f"the server did not serve within {limits.START_SECONDS}, and was ended"
            raise TreeError(why, hint=f"less {log}")
        if (phase := server_log.phase(said)) != shown:
            progress(phase)
            shown = phase
        time.sleep(_POLL_SECONDS)


def _said(log: str) -> bytes:
    with open(log, "rb") as file:
        return file.read(limits.LOG)


def _kept(command: tuple[str, ...]) -> list[str]:
    options = options_of(command)
    kept = [(name, options[name]) for name in _FOR_CLIENT if name in options]
    return [word for pair in kept for word in pair if word]


def _drive(client: Sequence[str], length: int, load: BenchLoad, log: str) -> dict[str, Any]:
    """Return what vLLM's client measured. It is the plain one's, whatever the server has."""
    folder, name = os.path.split(f"{os.path.abspath(log)}.client.json")
    words = [*client, "--dataset-name", "random", "--random-input-len", str(length)]
    words += ["--random-output-len", str(load.output_length), "--num-prompts", str(load.prompts)]
    words += ["--max-concurrency", str(load.concurrency), "--seed", str(load.seed)]
    words += ["--ignore-eos", "--temperature", "0", "--disable-tqdm", "--save-result"]
    words += ["--result-dir", folder, "--result-filename", name]
    environ = {**os.environ, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    result = os.path.join(folder, name)
    try:
        done = subprocess.run(
            words, env=environ, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            timeout=limits.BENCH_SECONDS,
        )  # fmt: skip
        with open(result, "rb") as file:
            told: dict[str, Any] = json.load(file)
    except subprocess.TimeoutExpired as error:
        why = f"`vllm bench serve` with {length} tokens did not end within {limits.BENCH_SECONDS}"
        raise TreeError(why, hint=f"less {log}") from error
    except (OSError, ValueError) as error:
        why = f"`vllm bench serve` failed: {cause_of(done.stdout + done.stderr)}"
        raise TreeError(why, hint=f"less {log}") from error
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(result)
    if told["completed"] != load.prompts:
        why = f"{told['completed']} of {load.prompts} prompts of {length} tokens were answered"
        raise TreeError(why, hint=f"less {log}  # --max-model-len may be too small")
    return told


class _Server(NamedTuple):
    """A server that serves."""

    url: str

    def read(self, path: str, body: object = None) -> bytes:
        """Return an answer. Raises ``TreeError``."""
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.url + path, data, {"Content-Type": "application/json"})  # noqa: S310
        opener = build_opener(ProxyHandler({}))
        with reading(path, f"{path} of the server"):
            try:
                with opener.open(request, timeout=float(limits.ANSWER_SECONDS)) as answer:
                    return bytes(answer.read(limits.ANSWER))
            except http.client.HTTPException as error:
                raise OSError(str(error)) from error

    def ask(self, path: str, body: object = None) -> Any:  # noqa: ANN401  (JSON)
        """Return an answer that is JSON."""
        return json.loads(self.read(path, body))

    def counters(self) -> dict[str, float]:
        """Return the counters of what drafts and caches spare, of all engines."""
        counted: dict[str, float] = {}
        for name, value in _COUNTERS.findall(self.read("/metrics").decode("utf-8", "replace")):
            counted[name] = counted.get(name, 0.0) + float(value)
        return counted

    def logprobs(self, model: str) -> tuple[float, ...]:
        """Return the log probability of each token of the fixed texts."""
        told: list[float] = []
        for text in _TEXTS:
            body = {"model": model, "prompt": text, "max_tokens": 1, "prompt_logprobs": 0}
            (choice,) = self.ask("/v1/completions", body)["choices"]
            for each in filter(None, choice["prompt_logprobs"]):
                told.append(round(next(iter(each.values()))["logprob"], 6))
        return tuple(told)


def _rates(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the share of drafted tokens that were accepted, and of prompts' tokens that were found in the cache."""
    grown = {name: value - before.get(name, 0) for name, value in after.items()}
    rates = {}
    for name, part, whole in (
        ("acceptance", "spec_decode_num_accepted_tokens", "spec_decode_num_draft_tokens"),
        ("cache-hits", "prefix_cache_hits", "prefix_cache_queries"),
    ):
        if grown.get(whole):
            rates[name] = grown.get(part, 0.0) / grown[whole]
    return rates


def _memory(group: int) -> dict[str, float]:
    """Return the MiB of memory that the processes of a group had at most, and what is taken of the GPUs'."""
    peaks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, AttributeError):
            if os.getpgid(int(pid)) == group:
                with open(f"/proc/{pid}/status") as file:
                    peaks += int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])  # type: ignore[index]
    used = [int(line) for line in gpus("memory.used") if line.isdigit()]
    return {"memory": peaks / 1024} | ({"gpu-memory": float(sum(used))} if any(used) else {})


def gpus(field: str) -> list[str]:
    """Return what nvidia-smi says of each GPU here."""
    if shutil.which("nvidia-smi") is None:
        return []
    done = engine_command.run("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits")
    return [] if done.code else done.out.splitlines()
