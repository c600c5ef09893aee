"""How long a prompt of 1 MB takes with the bundled templates, beside a template of the makers' own kind.

An agent's history: results of tools with program text, calls with long arguments, reasoning. The least of several
renderings with a compiled template in both engines; ``OTHER`` is ``examples/tool_chat_template_qwen3coder.jinja`` of a vLLM's sdist,
or the ``chat_template.jinja`` of a model.

    python benchmarks/template_render.py OTHER
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_mods.library.catalog import Library
from vllm_mods.template.sandbox import environment, rust_environment

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
BYTES = 1 << 20
LINE = "        if left < right and name not in {'a', 'b'}:  # text with <, > and \"quotes\"\n"


def history(written: int) -> list[dict[str, Any]]:
    """Return messages of about a megabyte, ``written`` bytes of each round by the model itself."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Mend it."}]
    size = 0
    while size < BYTES:
        text = LINE * 200
        edit = LINE * (written // len(LINE))
        function = {"name": "edit", "arguments": {"path": "a.py", "text": edit, "line": 3}}
        call = {"id": "call00001", "type": "function", "function": function}
        messages += [
            {
                "role": "assistant",
                "content": "",
                "reasoning": "So be it.",
                "reasoning_content": "So be it.",
                "tool_calls": [call],
            },
            {"role": "tool", "tool_call_id": "call00001", "name": "edit", "content": text},
        ]
        size += len(text) + len(edit)
    return messages


def milliseconds(render: Callable[[], str]) -> float:
    took = []
    for _ in range(ROUNDS):
        before = time.process_time()
        render()
        took.append(time.process_time() - before)
    return 1000 * min(took)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def main() -> None:
    library = Library()
    sources = {"the other": read(sys.argv[1])}
    for name in library.template_names():
        sources[name] = read(os.path.join(library.template_folder(name), "template.jinja"))
    for what, written in (("results of tools", 0), ("half of it calls", len(LINE) * 200)):
        given = {"messages": history(written), "add_generation_prompt": True}
        print(what)
        base: tuple[float, float] | None = None
        for name, text in sources.items():
            took = (
                milliseconds(partial(environment().from_string(text).render, given, tools=None)),
                milliseconds(partial(rust_environment(text).render_template, "", **given)),
            )
            base = base or took
            print(
                f"  {name:20} {took[0]:7.1f} ms ({took[0] / base[0]:.2f}) "
                f"{took[1]:7.1f} ms ({took[1] / base[1]:.2f})"
            )


if __name__ == "__main__":
    main()
