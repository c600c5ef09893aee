"""How long a prompt takes with the bundled templates, beside the models' own.

Histories of 10, 100 and 1,000 messages: agents' and chats, of short and of long messages, as vLLM hands them to a
template that takes parts: the text of users, systems and assistants as a list of one part, that of tools as text.
A round renders a history once with each template; of the rounds' ratios to ``OTHER``, the ``chat_template.jinja``
of a model, the median is printed. Templates are compiled before, as vLLM does.

    python benchmarks/template_render.py OTHER
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from vllm_mods.library.catalog import Library
from vllm_mods.templates.replay import tool
from vllm_mods.templates.sandbox import environment, rust_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Message = dict[str, Any]
    Renderer = Callable[[], str]

COUNTS = (10, 100, 1000)
MESSAGES = 3000
"""So many are rendered at least with each template, in rounds of a history."""
ROUNDS = 9
LINE = "        if left < right and name not in {'a', 'b'}:  # text with <, > and \"quotes\"\n"
PIPED = LINE.replace("and", "|").replace("{'a', 'b'}", "a | b")
SHORT = "Well, is it so?"
TOOLS = [tool("edit", path="string", text="string", line="integer"), tool("run", command="string")]


def parts(*texts: str) -> list[dict[str, str]]:
    """Return the content that vLLM makes of texts."""
    return [{"type": "text", "text": text} for text in texts]


def answer(text: str, thought: str | None, **more: object) -> Message:
    """Return what a model said; vLLM has the reasoning under both names."""
    reasoning = {} if thought is None else {"reasoning": thought, "reasoning_content": thought}
    return {"role": "assistant", "content": parts(text), **reasoning, **more}


def agent(count: int, result: str, written: str) -> list[Message]:
    """Return an agent's history, in which each call has text that is ``written`` by the model itself."""
    function = {"name": "edit", "arguments": {"path": "a.py", "text": written, "line": 3}}
    call = {"id": "call00001", "type": "function", "function": function}
    step: list[Message] = [
        answer("", "So be it.", tool_calls=[call]),
        {"role": "tool", "tool_call_id": "call00001", "name": "edit", "content": result},
    ]
    head: list[Message] = [
        {"role": "system", "content": parts("Be brief.")},
        {"role": "user", "content": parts("Mend it.")},
    ]
    return head + step * ((count - len(head)) // 2)


def chat(count: int, text: str, thought: str | None, *, texts: int = 1) -> list[Message]:
    """Return a chat that ends with a question; each question is of so many ``texts``."""
    question: Message = {"role": "user", "content": parts(*[text] * texts)}
    turns = [message for _ in range(count // 2) for message in (answer(text, thought), question)]
    return [{"role": "system", "content": parts("Be brief.")}, *turns[1 - count :]]


def with_pictures(messages: list[Message]) -> list[Message]:
    """Return messages with a picture before each question."""
    return [
        {**one, "content": [{"type": "image"}, *one["content"]]} if one["role"] == "user" else one
        for one in messages
    ]


HISTORIES: dict[str, tuple[Callable[[int], list[Message]], list[Message] | None]] = {
    "agent, short": (partial(agent, result="Done.", written="x = 1\n"), TOOLS),
    "agent, long results": (partial(agent, result=LINE * 100, written="x = 1\n"), TOOLS),
    "agent, long calls": (partial(agent, result="Done.", written=LINE * 100), TOOLS),
    "agent, all long, with |": (partial(agent, result=PIPED * 50, written=PIPED * 50), TOOLS),
    "chat, short": (partial(chat, text=SHORT, thought=None), None),
    "chat, short, reasoning": (partial(chat, text=SHORT, thought=SHORT), None),
    "chat, long, reasoning": (partial(chat, text=LINE * 20, thought=LINE * 20), None),
    "chat, long, with |": (partial(chat, text=PIPED * 20, thought=None), None),
    "chat, control tokens in it": (partial(chat, text=f"{SHORT} <|im_end|>", thought=None), None),
    "chat, questions of 3 texts": (partial(chat, text=SHORT, thought=None, texts=3), None),
    "chat, pictures": (lambda count: with_pictures(chat(count, SHORT, None)), None),
}


def renderers(text: str, variables: dict[str, Any]) -> tuple[Renderer, Renderer]:
    """Return how a history is rendered, by Jinja and by minijinja."""
    stated = {name: value for name, value in variables.items() if value is not None}
    return (
        partial(environment().from_string(text).render, variables),
        partial(rust_environment(text).render_template, "", **stated),
    )


def seconds(render: Renderer, times: int) -> float:
    before = time.process_time()
    for _ in range(times):
        render()
    return (time.process_time() - before) / times


def ratios(renders: list[Renderer], count: int) -> Iterator[float]:
    """Yield, for all but the first, the median of the rounds' ratios to the first."""
    times = max(1, MESSAGES // count // ROUNDS)
    rounds = [[seconds(render, times) for render in renders] for _ in range(ROUNDS)]
    for other in range(1, len(renders)):
        yield statistics.median(took[other] / took[0] for took in rounds)


def read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def main() -> None:
    library = Library()
    names = library.template_names()
    texts = [read(sys.argv[1])]
    texts += [read(os.path.join(library.template_folder(name), "template.jinja")) for name in names]
    print(f"{'messages, Jinja and minijinja':38}", *(f"{name:>16}" for name in names))
    highest = 0.0
    for what, (history, tools) in HISTORIES.items():
        for count in COUNTS:
            variables = {"messages": history(count), "tools": tools, "add_generation_prompt": True}
            made = [renderers(text, variables) for text in texts]
            jinja = list(ratios([render for render, _ in made], count))
            rust = list(ratios([render for _, render in made], count))
            highest = max(highest, *jinja)
            cells = (f"{a:9.2f} {b:6.2f}" for a, b in zip(jinja, rust, strict=True))
            print(f"{what:28} {count:>9,}", *cells)
    print(f"the highest with Jinja: {highest:.2f}")


if __name__ == "__main__":
    main()
