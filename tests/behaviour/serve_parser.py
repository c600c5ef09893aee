"""Ask a real vLLM's parser: its flags, and which of the commands on stdin it refuses.

stdin is a JSON list of lists of words; the answer is one line, ``ANSWER`` and a JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import sys
from typing import Any, NoReturn


class _RefusedError(Exception):
    pass


def _refuse(message: str) -> NoReturn:
    raise _RefusedError(message)


def _make_parser() -> Any:
    platforms = importlib.import_module("vllm.platforms")
    # A machine without an accelerator has no device type, and the defaults of some fields ask for it.
    platforms.current_platform.device_type = "cpu"
    parsing = importlib.import_module("vllm.utils.argparse_utils")
    for place in ("common", "launchers", "openai"):
        name = f"vllm.entrypoints.{place}.cli_args"
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        return module.make_arg_parser(parsing.FlexibleArgumentParser())
    raise SystemExit("no make_arg_parser")


def _refused(parser: Any, words: list[str]) -> str | None:
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            parser.parse_args(words)
    except SystemExit:
        return "exit"
    except Exception as error:  # noqa: BLE001  (whatever it raises, the command does not start)
        return f"{type(error).__name__}: {error}"[:300]
    return None


def main() -> None:
    commands = json.load(sys.stdin)
    sys.argv = ["vllm"]
    parser = _make_parser()
    parser.error = _refuse
    answer = {
        "vllm": importlib.import_module("vllm").__file__,
        "flags": [
            {
                "names": action.option_strings,
                "action": type(action).__name__,
                "nargs": action.nargs,
                "choices": None if action.choices is None else [str(one) for one in action.choices],
            }
            for action in parser._actions
            if action.option_strings
        ],
        "refused": [_refused(parser, words) for words in commands],
    }
    sys.stdout.write(f"ANSWER {json.dumps(answer)}\n")


if __name__ == "__main__":
    main()
