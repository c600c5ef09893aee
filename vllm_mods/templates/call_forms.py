"""In which form a model writes its calls: as its template writes them, or as models of its name do; and what reads it.

``template check --parsers`` was asked with the models' own templates on 0.17.0, 0.21.0 and 0.33.0: no parser of
these reads a call of a form that it is not named with here.
"""

import re
from typing import NamedTuple

from vllm_mods.templates import rendering, replay
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.source import Template


class CallForm(NamedTuple):
    """How calls begin, and the parsers that read any; the first one is that which such models are served with."""

    name: str
    begins: re.Pattern[str]
    readers: tuple[str, ...]


_NAME, _WORD = "look_up", "citadel"
_XML_CALL = re.compile(rf"<tool_call>\s*<function={_NAME}>")
_XML_READERS = ("qwen3_coder", "qwen3_xml", "seed_oss", "step3p5", "step5", "mimo")
XML = CallForm("<function=NAME>", _XML_CALL, _XML_READERS)
_JSON_CALL = re.compile(rf'<tool_call>\s*\{{"name": "{_NAME}"')
_JSON_READERS = ("hermes", "qwen3_json", "granite4", "ernie45", "llama3_json", "llama4_json")
JSON = CallForm("JSON in <tool_call>", _JSON_CALL, _JSON_READERS)
FORMS = (XML, JSON)
_OF_NAMES = (
    (re.compile(r"qwen3\.[5-8]|qwen3-coder", re.IGNORECASE), XML),
    (re.compile(r"qwen2\.5-(?!vl|omni)|qwen3-(\d|next)|qwq-", re.IGNORECASE), JSON),
)
MAKER = "Qwen/"
"""Whose models on the Hub are what their names say; others' may have been trained with another form."""
_THINKS = re.compile(r"qwen3\.[5-8]", re.IGNORECASE)


def form_of_template(template: Template) -> CallForm | None:
    """Return the form of the calls that a template writes into a history; None if it is neither or not to be seen. Raises ``NotRendered``."""
    call = replay.tool_call(1, _NAME, {"word": _WORD})
    messages = ({"role": "user", "content": "Well?"}, replay.assistant_message("", None, call))
    conversation = Conversation("call", messages, (replay.tool(_NAME, word="string"),))
    conversation = conversation._replace(add_generation_prompt=False)
    prompt = rendering.render(template, (conversation,), marked=True).rendered[0].prompt or ""
    # The call itself, and not an example of one in how the tools are told: its value is there.
    return next((form for form in FORMS if form.begins.search(prompt) and _WORD in prompt), None)


def form_of_name(model: str) -> CallForm | None:
    """Return the form that models of a name are known for; None if it is not known."""
    name = model.rstrip("/").rpartition("/")[2]
    return next((form for names, form in _OF_NAMES if names.search(name)), None)


def reasoning_parser_of(model: str) -> str | None:
    """Return the reasoning parser that is written for models of a name; None if it is not known."""
    return "qwen3" if _THINKS.search(model.rstrip("/").rpartition("/")[2]) else None
