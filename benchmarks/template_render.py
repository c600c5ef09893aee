"""How long a prompt of 1 MB takes with the bundled templates, beside the models' own.

Agents' histories, with program text in results of tools or in long calls, and a chat. The least of several
renderings with a compiled template in both engines; ``OTHER`` is the ``chat_template.jinja`` of a model.

    python benchmarks/template_render.py OTHER
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_mods.library.catalog import Library
from vllm_mods.templates.sandbox import environment, rust_environment

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 15
BYTES = 1 << 20
LINE = "        if left < right and name not in {'a', 'b'}:  # text with <, > and \"quotes\"\n"


PIPED = LINE.replace("and", "|").replace("{'a', 'b'}", "a | b")


def agent(line: str, *, written: bool) -> list[dict[str, Any]]:
    """Return messages of about a megabyte: results of tools, half of it ``written`` by the model itself."""
    text = line * 200
    edit = text if written else ""
    function = {"name": "edit", "arguments": {"path": "a.py", "text": edit, "line": 3}}
    call = {"id": "call00001", "type": "function", "function": function}
    spoken = {"reasoning": "So be it.", "reasoning_content": "So be it.", "tool_calls": [call]}
    one_round: list[dict[str, Any]] = [
        {"role": "assistant", "content": "", **spoken},
        {"role": "tool", "tool_call_id": "call00001", "name": "edit", "content": text},
    ]
    return [{"role": "user", "content": "Mend it."}, *one_round * (BYTES // len(text + edit) + 1)]


def chat() -> list[dict[str, Any]]:
    """Return a chat of about a megabyte, half of it reasoning and answers."""
    text = LINE * 20
    half = LINE * 10
    one_round = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": half, "reasoning": half, "reasoning_content": half},
    ]
    return one_round * (BYTES // len(text) // 2) + one_round[:1]


HISTORIES = {
    "results of tools": agent(LINE, written=False),
    "half of it calls": agent(LINE, written=True),
    "half of it calls, with | in them": agent(PIPED, written=True),
    "a chat": chat(),
}


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
    for what, messages in HISTORIES.items():
        given = {"messages": messages, "add_generation_prompt": True}
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
