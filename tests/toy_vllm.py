"""A stand-in for the program ``vllm``: a server that starts at once, and the client that measures it.

How fast it is follows from the vLLM that its Python imports: each ``slow`` in ``vllm/loader.py`` doubles the time per
token, and ``wrong`` changes what it computes. A start varies by 1 %, in the order of ``WAVERING``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

WAVERING = (1.0, 1.01, 0.99, 1.005, 0.995, 1.002, 0.998, 1.007)
WARM_UPS = 1_000_000


def _value(name: str) -> str:
    return sys.argv[len(sys.argv) - sys.argv[::-1].index(name)]


def serve() -> None:
    folder = Path(os.environ["TOY_FOLDER"])
    text = Path(importlib.util.find_spec("vllm").origin).with_name("loader.py").read_text()  # type: ignore[union-attr, arg-type]
    before = len(list(folder.glob("server-*")))
    child = subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"])
    (folder / f"server-{before}").write_text(
        f"{os.getpid()} {child.pid} {os.environ.get('PYTHONPATH')}"
    )
    if "dies" in text or (folder / f"fail-{before}").exists():
        sys.stderr.write("Traceback (most recent call last):\n  File x\nValueError: no layer\n")
        raise SystemExit(1)
    facts = {
        "time": WAVERING[before % len(WAVERING)] * 2 ** text.count("slow"),
        "logprob": -1.5 if "wrong" in text else -1.25,
        "asked": 0,
    }

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            model = {"id": "toy", "root": "/models/toy"}
            facts["asked"] += self.path == "/drive"
            count = int(facts["asked"])
            told = {
                "/health": "",
                "/version": {"version": "0.0.toy"},
                "/v1/models": {"data": [model]},
                "/drive": facts,
                "/metrics": "# HELP\n"
                f'vllm:prefix_cache_queries_total{{engine="0"}} {count * 100}.0\n'
                f'vllm:prefix_cache_hits_total{{engine="0"}} {count * 25}.0\n',
            }[self.path]
            self._tell(told)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert (body["model"], body["prompt_logprobs"], self.path) == (
                "toy",
                0,
                "/v1/completions",
            )
            tokens = [None, *({"7": {"logprob": facts["logprob"]}} for _ in body["prompt"][1:])]
            self._tell({"choices": [{"prompt_logprobs": tokens}]})

        def _tell(self, told: Any) -> None:
            data = (told if isinstance(told, str) else json.dumps(told)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    ThreadingHTTPServer((_value("--host"), int(_value("--port"))), Answers).serve_forever()


def drive() -> None:
    folder = Path(os.environ["TOY_FOLDER"])
    with (folder / "asked").open("a") as file:
        file.write(
            f"{_value('--random-input-len')} {int(_value('--seed')) < WARM_UPS} {os.environ.get('PYTHONPATH')}\n"
        )
    assert (_value("--model"), _value("--served-model-name")) == ("/models/toy", "toy")
    with urllib.request.urlopen(f"http://127.0.0.1:{_value('--port')}/drive") as answer:
        facts = json.load(answer)
    slower = (folder / "cold").read_text().split() if (folder / "cold").exists() else []
    time = facts["time"] * int([*slower, *"111111"][facts["asked"] - 1])
    count = int(_value("--num-prompts"))
    told = {
        "completed": count - (folder / "unanswered").exists(),
        "output_throughput": 100 / time,
        "median_ttft_ms": 50.0 * WAVERING[count % 3],
        "median_tpot_ms": 10 * time,
    }
    Path(_value("--result-dir"), _value("--result-filename")).write_text(json.dumps(told))


if __name__ == "__main__":
    drive() if sys.argv[1:3] == ["bench", "serve"] else serve()
