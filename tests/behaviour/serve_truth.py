"""Ask a real vLLM which commands it refuses: its parser, its validation, its config classes.

    python serve_truth.py COMMANDS

COMMANDS is a JSON list of lists of words, what follows ``vllm serve``; ``{model}`` becomes a small
checkpoint without weights that is made here. The answer is one line, ``ANSWER`` and a JSON object:
for each command ``null``, or the stage that refused it and what it said.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import json
import os
import sys
import tempfile
from typing import Any, NoReturn

CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "head_dim": 16,
    "intermediate_size": 512,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_hidden_layers": 4,
    "vocab_size": 512,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": True,
}


class _RefusedError(Exception):
    pass


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)


def _modules() -> tuple[Any, Any]:
    platforms = importlib.import_module("vllm.platforms")
    if not platforms.current_platform.device_type:
        # A machine without an accelerator has no device type, and the defaults of some fields ask for it.
        platforms.current_platform.device_type = "cpu"
    for place in ("common", "launchers", "openai"):
        name = f"vllm.entrypoints.{place}.cli_args"
        try:
            arguments = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        return arguments, importlib.import_module("vllm.engine.arg_utils")
    raise SystemExit("no make_arg_parser")


def _start(args: Any, config: Any) -> None:
    """Look up what a server looks up when it starts: parser, tokenizer, loader."""
    managers = importlib.import_module("vllm.tool_parsers")
    if args.tool_call_parser:
        managers.ToolParserManager.get_tool_parser(args.tool_call_parser)
    loading = importlib.import_module("vllm.model_executor.model_loader")
    loading.get_model_loader(config.load_config)
    registry = importlib.import_module("vllm.tokenizers.registry")
    if args.tokenizer_mode != "auto":
        model, mode = config.model_config.model, args.tokenizer_mode
        mode = registry.resolve_tokenizer_args(model, tokenizer_mode=mode)[0]
        registry.TokenizerRegistry.load_tokenizer_cls(mode)


def _refused(arguments: Any, engine: Any, parser: Any, words: list[str]) -> list[str] | None:
    stage = "parser"
    try:
        args = parser.parse_args(words)
        stage = "validation"
        args.model = args.model_tag or args.model
        arguments.validate_parsed_serve_args(args)
        stage = "config"
        made = engine.AsyncEngineArgs.from_cli_args(args)
        config = made.create_engine_config(headless=getattr(args, "headless", False))
        stage = "start"
        _start(args, config)
    except SystemExit:
        return [stage, "exit"]
    except Exception as error:  # noqa: BLE001  (whatever it raises, the command does not start)
        return [stage, f"{type(error).__name__}: {error}"[:400]]
    return None


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        commands = json.load(file)
    sys.argv = ["vllm"]
    arguments, engine = _modules()
    parsing = importlib.import_module(arguments.FlexibleArgumentParser.__module__)
    parser = arguments.make_arg_parser(parsing.FlexibleArgumentParser())
    parser.error = _refuse
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(CONFIG, file)
        truth = []
        for command in commands:
            before = copy.deepcopy(dict(os.environ))
            words = [folder if word == "{model}" else word for word in command]
            with contextlib.redirect_stdout(io.StringIO()):
                answer = _refused(arguments, engine, parser, words)
            truth.append(answer and [answer[0], answer[1].replace(folder, "{model}")])
            os.environ.clear()
            os.environ.update(before)
    version = importlib.import_module("vllm").__version__
    sys.stdout.write(f"\nANSWER {json.dumps({'vllm': version, 'truth': truth})}\n")


if __name__ == "__main__":
    main()
