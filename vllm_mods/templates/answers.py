"""One answer of a model, read by the release's own parsers as its server does: whole, or in pieces.

Nothing of vLLM is imported before it is needed: this runs where some ``vllm`` can be imported, in the
sandbox (``parser_sandbox``) or in a real one.
"""

import contextlib
import importlib
import inspect
import json
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any


def names() -> tuple[list[str], list[str]]:
    """Return the names of all tool parsers and reasoning parsers of the release."""
    tools = _import_name("vllm.tool_parsers", "ToolParserManager")
    reasoners = _import_name("vllm.reasoning", "ReasoningParserManager")
    return (
        sorted({*tools.lazy_parsers, *tools.tool_parsers}),
        sorted({*reasoners.lazy_parsers, *reasoners.reasoning_parsers}),
    )


def is_harmony(tool: str | None, reasoning: str | None) -> bool:
    """Tell whether parsers are those of gpt-oss, which read tokens and not letters."""
    return tool == "openai" or reasoning == "openai_gptoss"


def reader(
    tokenizer: Any,
    tool: str | None,
    reasoning: str | None,
    tools: Sequence[Any],
    kwargs: dict[str, Any],
) -> "AnswerReader":
    """Return the release's parsers for one answer, put together as its server does."""
    protocol = importlib.import_module("vllm.entrypoints.openai.chat_completion.protocol")
    request = protocol.ChatCompletionRequest(
        model="m",
        messages=[{"role": "user", "content": "Q"}],
        tools=list(tools) or None,
        tool_choice="auto" if tools else "none",
        chat_template_kwargs=kwargs,
    )
    both: Any = None
    with contextlib.suppress(ModuleNotFoundError):  # up to 0.15
        manager = _import_name("vllm.parser", "ParserManager")
        taken = inspect.signature(manager.get_parser).parameters
        asked: dict[str, Any] = {"tool_parser_name": tool, "reasoning_parser_name": reasoning}
        if "is_harmony" in taken and is_harmony(tool, reasoning):
            asked["is_harmony"] = True
        both = manager.get_parser(enable_auto_tools=True, **asked)
    if hasattr(both, "parse"):
        parser = both(tokenizer, request.tools, chat_template_kwargs=kwargs)
        return _Both(parser.adjust_request(request), parser)
    thinker = caller = None
    if reasoning is not None:
        reasoners = _import_name("vllm.reasoning", "ReasoningParserManager")
        kind = reasoners.get_reasoning_parser(reasoning)
        thinker = kind(tokenizer, chat_template_kwargs=kwargs)
    if tool is not None:
        kind = _import_name("vllm.tool_parsers", "ToolParserManager").get_tool_parser(tool)
        try:
            caller = kind(tokenizer, request.tools)
        except TypeError:  # up to 0.17 the tools come with each call only
            caller = kind(tokenizer)
        request = caller.adjust_request(request)
    return _Apart(request, thinker, caller)


def _import_name(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class _Both:
    """From 0.23 one object does it all.

    ``whole`` reads an answer that is there at once, ``piece`` the next piece of a streamed one: it returns
    vLLM's delta message, if any.
    """

    def __init__(self, request: Any, parser: Any) -> None:
        self.request, self.parser = request, parser

    def whole(self, text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
        if hasattr(self.parser, "set_prompt_token_ids"):
            self.parser.set_prompt_token_ids(prompt)
        taken = inspect.signature(self.parser.parse).parameters
        more = {"model_output_token_ids": ids} if "model_output_token_ids" in taken else {}
        parts = self.parser.parse(text, self.request, enable_auto_tools=True, **more)
        reasoning, content, calls = parts
        return answer(reasoning, content, calls or [])

    def piece(self, text: str, ids: list[int], prompt: list[int], *, last: bool) -> Any:
        return self.parser.parse_delta(text, ids, self.request, prompt, finished=last)


class _Apart:
    """Up to 0.22: the same by the steps that the chat completion server of those releases takes itself."""

    def __init__(self, request: Any, reasoning: Any, tool: Any) -> None:
        self.request, self.reasoning, self.tool = request, reasoning, tool
        self.text, self.ids = "", list[int]()
        self.reasoned, self.calling = reasoning is None, False

    def whole(self, text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
        del ids, prompt
        reasoning, content = None, text
        if self.reasoning is not None:
            reasoning, content = self.reasoning.extract_reasoning(text, self.request)
        if self.tool is None:
            return answer(reasoning, content, [])
        extracted = self.tool.extract_tool_calls(content or "", self.request)
        calls = [call.function for call in extracted.tool_calls]
        return answer(reasoning, extracted.content if extracted.tools_called else content, calls)

    def piece(self, text: str, ids: list[int], prompt: list[int], *, last: bool) -> Any:
        del last
        before, before_ids = self.text, self.ids
        now, now_ids, delta = before + text, before_ids + ids, None
        if not self.reasoned and self.reasoning.is_reasoning_end(prompt):
            self.reasoned, now_ids = True, ids
        elif not self.reasoned:
            seen = before, now, text, before_ids, now_ids, ids
            delta = self.reasoning.extract_reasoning_streaming(*seen)
            if self.reasoning.is_reasoning_end(ids):
                self.reasoned = True
                now_ids = self.reasoning.extract_content_ids(ids)
                now = (delta.content if delta else None) or ""
                if delta and self.tool is not None:
                    delta.content = None
        elif self.tool is None:
            delta = SimpleNamespace(reasoning=None, content=text, tool_calls=[])
        if self.reasoned and self.tool is not None:
            thought = delta.reasoning if delta else None
            if not self.calling:
                self.calling, before, before_ids, text, ids = True, "", [], now, now_ids
            seen = before, now, text, before_ids, now_ids, ids
            delta = self.tool.extract_tool_calls_streaming(*seen, self.request)
            if thought and delta is None:
                delta = SimpleNamespace(reasoning=thought, content=None, tool_calls=[])
            elif thought:
                delta.reasoning = thought
        self.text, self.ids = now, now_ids
        return delta


AnswerReader = _Both | _Apart
"""How a server reads one answer: reasoning, content, calls."""


def answer(reasoning: str | None, content: str | None, calls: Sequence[Any]) -> dict[str, Any]:
    """Return what was read; arguments that are no JSON come back as text, for the reader to see."""
    read = [{"name": call.name, "arguments": _parse_arguments(call.arguments)} for call in calls]
    return {"reasoning": reasoning or "", "content": content or "", "calls": read}


def _parse_arguments(arguments: str | None) -> Any:
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _pieces(tokenizer: Any, ids: list[int], size: int) -> Iterator[tuple[str, list[int]]]:
    """Give ``size`` tokens at a time, and the text that is whole by then, as vLLM streams them."""
    given = 0
    for start in range(0, len(ids), size):
        text = tokenizer.decode(ids[: start + size], skip_special_tokens=True)
        text = text.rstrip("\ufffd")  # a letter of several tokens, half of which are there
        yield text[given:], ids[start : start + size]
        given = len(text)


def read_streamed(
    reader: AnswerReader, tokenizer: Any, ids: list[int], prompt: list[int], size: int
) -> dict[str, Any]:
    """Read an answer in pieces of ``size`` tokens, and put together what a client would."""
    reasoning = content = ""
    calls: dict[int, SimpleNamespace] = {}
    pieces = list(_pieces(tokenizer, ids, size))
    for i, (text, some) in enumerate(pieces):
        delta = reader.piece(text, some, prompt, last=i == len(pieces) - 1)
        if delta is None:
            continue
        reasoning += getattr(delta, "reasoning", None) or ""
        content += delta.content or ""
        for part in delta.tool_calls or []:
            call = calls.setdefault(part.index, SimpleNamespace(name="", arguments=""))
            call.name += (part.function and part.function.name) or ""
            call.arguments += (part.function and part.function.arguments) or ""
    return answer(reasoning, content, [calls[index] for index in sorted(calls)])
