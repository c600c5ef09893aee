"""What stands in an image for `vllm serve`: it logs in vLLM's form, serves `/health`, and fails as the model's folder says.

`fail` in that folder names the way: its engine, a process of its own, then ends as vLLM's does, and so does the server
that finds it dead. What helps against it is an option of vLLM's.
"""

from __future__ import annotations

import http.server
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

given = dict(zip(sys.argv[1:], [*sys.argv[2:], ""], strict=True))
wish = Path(sys.argv[2], "fail")
fail = wish.read_text() if wish.exists() else ""
# These are real processes: a test may kill the engine.
full = float(given.get("--gpu-memory-utilization", "0.9")) > 0.85


def log(text: str, file: str = "core.py", who: str = "EngineCore", level: str = "INFO") -> None:
    prefix = f"({who} pid={os.getpid()}) {level} 11-23 10:00:00 [{file}:1]"
    sys.stderr.write("".join(f"{prefix} {line}\n" for line in text.splitlines()))


def load() -> None:
    """Load a model as an engine does, and fail as it would."""
    log("Starting to load model /models/small...", "gpu_model_runner.py")
    for shard in (1, 2):
        bar = f"Loading safetensors checkpoint shards:  50% Completed | {shard}/2 [00:01<00:01]"
        sys.stderr.write(f"{bar}\n")
        time.sleep(3 * (fail == "slow"))
    if fail == "weights":
        places: dict[str, int] = {}
        try:
            places["layers.0.qkv_proj.weight_scale_inv"] += 1
        except KeyError as error:
            raise ValueError("the model has no place for a tensor of this name") from error
    if fail == "length" and "--max-model-len" not in given:
        raise ValueError(
            "9.0 GiB KV cache is needed for one request, and the estimated maximum model length is 4096. Or"
        )
    held = []
    while fail == "memory" and full:
        held.append(os.urandom(1 << 20))
    if fail == "killed" and full:
        os.kill(os.getpid(), signal.SIGKILL)
    log("Loading weights took 0.10 seconds", "default_loader.py")
    log("patched 7", "a.py", "Worker")


class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_words: object) -> None:
        pass


def watch(engine: int, served: list[int]) -> None:
    """End with the engine, as vLLM does: with an orderly exit once it has served."""
    code = os.waitstatus_to_exitcode(os.waitpid(engine, 0)[1])
    text = f"No engine. See root cause above. Failed core proc(s): {{'EngineCore': {code}}}"
    text = "[shutdown] engine core exited unexpectedly; starting cleanup" if served else text
    log(text, "core_client.py", "APIServer", "ERROR")
    os._exit(not served)


def main() -> None:
    log("vLLM API server version 0.19.1", "utils.py", "APIServer")
    reading, writing = os.pipe()
    engine = os.fork()
    if not engine:
        try:
            load()
        except Exception:  # noqa: BLE001  (as an engine ends: with a record, and then as Python does)
            log(f"EngineCore failed to start.\n{traceback.format_exc()}", level="ERROR")
            traceback.print_exc()
            os._exit(1)
        os.write(writing, b"ready")
        time.sleep(600)
    os.close(writing)
    served: list[int] = []
    watcher = threading.Thread(target=watch, args=(engine, served))
    watcher.start()
    if os.read(reading, 9):
        place = ("", int(given.get("--port", "8000")))
        served.append(place[1])
        server = http.server.ThreadingHTTPServer(place, Health)
        log(f"Starting vLLM server on http://0.0.0.0:{place[1]}", "launcher.py", "APIServer")
        server.serve_forever()
    watcher.join()


if __name__ == "__main__":
    main()
