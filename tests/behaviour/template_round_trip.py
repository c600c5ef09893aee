# mypy: disable-error-code="import-not-found, misc"
"""Render conversations with the vLLM on PYTHONPATH, and have its own parsers read them back.

usage: python template_round_trip.py CASES   (a JSON object; what a case holds: ``answer``)

vLLM's own functions are called in its own order: detection of the content format, its reading of
messages and tools, its call of the template; then, for each assistant message, its reasoning and
tool parsers on what the model must have written for the history to look as it does. What is stood
in for: the tokenizer (one token per byte, and the tags that Qwen's has as tokens), the download of
pictures, and the model's processor, which would count them. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import json
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

Message = dict[str, Any]
# Reasoning is kept until the next question; a result is none.
RESULT: Message = {"role": "tool", "content": "r", "tool_call_id": "c"}
RESULT_TURN = "<|im_start|>user\n<tool_response>\nr\n</tool_response><|im_end|>\n"
END = "<|im_end|>"
CONTROL = (
    "<|endoftext|>", "<|im_start|>", END,
    "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(token, special=True) for token in CONTROL])
    made.add_tokens([AddedToken(token, special=False) for token in TAGS])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, eos_token=END, clean_up_tokenization_spaces=False
    )


def _pretend_pictures() -> None:
    from vllm.multimodal.media import MediaConnector

    for kind in ("image", "video", "audio"):
        setattr(MediaConnector, f"fetch_{kind}", lambda *_, **__: None)
    tracker = _moved(
        "BaseMultiModalItemTracker",
        "vllm.renderers.chat_utils.item_tracker",
        "vllm.renderers.chat_utils",
        "vllm.entrypoints.chat_utils",
    )
    tracker.add = lambda _, modality, __: f"<a placeholder for {modality}>"


def _moved(name: str, *modules: str) -> Any:
    """Return what has had several homes, from the newest that this release has."""
    for module in modules:
        with contextlib.suppress(ModuleNotFoundError):
            return getattr(importlib.import_module(module), name)
    raise ImportError(f"{name} is in none of {', '.join(modules)}")


def _refusal() -> tuple[type[Exception], ...]:
    """What the server answers with 400."""
    try:
        from vllm.exceptions import VLLMValidationError
    except ImportError:
        return (ValueError,)
    return (ValueError, VLLMValidationError)


class _VLLM:
    """One release: its renderer for one template, and its parsers."""

    def __init__(self, template: str) -> None:
        self.template = template
        self.tokenizer = _tokenizer()
        self.config = SimpleNamespace(
            model="m", revision=None, code_revision=None, tokenizer_revision=None,
            trust_remote_code=False, multimodal_config=None, allowed_local_media_path="",
            allowed_media_domains=None, enable_prompt_embeds=False, hf_config=SimpleNamespace(model_type="qwen3_5"),
        )  # fmt: skip

    def content_format(self) -> str:
        from vllm.renderers.hf import resolve_chat_template_content_format

        found = resolve_chat_template_content_format(
            self.template, None, "auto", self.tokenizer, model_config=self.config
        )
        return str(found)

    def render(self, messages: list[Message], **kwargs: Any) -> str:
        """What ``HfRenderer.render_messages`` does up to the prompt's text."""
        from vllm.renderers.hf import safe_apply_chat_template

        parse_chat_messages = _moved(
            "parse_chat_messages",
            "vllm.renderers.chat_utils.chat_message",
            "vllm.renderers.chat_utils",
            "vllm.entrypoints.chat_utils",
        )
        conversation = parse_chat_messages(
            [_as_sent(message) for message in messages],
            self.config,
            content_format=self.content_format(),
        )[0]
        prompt = safe_apply_chat_template(
            self.config,
            self.tokenizer,
            conversation,
            chat_template=self.template,
            tokenize=False,
            **kwargs,
        )
        return str(prompt)

    def request(self, tools: list[Any]) -> Any:
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        question = [{"role": "user", "content": "Q"}]
        return ChatCompletionRequest(model="m", messages=question, tools=tools, tool_choice="auto")

    def reader(self, parser: str, tools: list[Any], thinking: dict[str, Any]) -> _Reader:
        """Return the release's parsers for one answer, put together as its server does."""
        from vllm.parser import ParserManager

        request = self.request(tools)
        made = ParserManager.get_parser(
            tool_parser_name=parser, reasoning_parser_name="qwen3", enable_auto_tools=True
        )
        if hasattr(made, "parse"):
            both = made(self.tokenizer, request.tools, chat_template_kwargs=thinking)
            return _Both(both.adjust_request(request), both)
        reasoning = ParserManager.get_reasoning_parser("qwen3")(
            self.tokenizer, chat_template_kwargs=thinking
        )
        kind = ParserManager.get_tool_parser(parser, enable_auto_tools=True)
        try:
            tool = kind(self.tokenizer, request.tools)
        except TypeError:  # up to 0.17 the tools come with each call only
            tool = kind(self.tokenizer)
        return _Apart(tool.adjust_request(request), reasoning, tool)


def _as_sent(message: Message) -> Message:
    """Copy a message, the arguments of its calls as the text that clients send."""
    copied: Message = json.loads(json.dumps(message))
    for call in copied.get("tool_calls") or ():
        if not isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return copied


class _Reader(Protocol):
    """How a server reads one answer, whole or in pieces: reasoning, content, calls."""

    def whole(self, text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
        """Read an answer that is there at once."""

    def piece(self, text: str, ids: list[int], prompt: list[int], *, last: bool) -> Any:
        """Read the next piece of a streamed one, and return vLLM's delta message, if any."""


class _Both:
    """From 0.23 one object does it all."""

    def __init__(self, request: Any, parser: Any) -> None:
        self.request, self.parser = request, parser

    def whole(self, text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
        if hasattr(self.parser, "set_prompt_token_ids"):
            self.parser.set_prompt_token_ids(prompt)
        taken = inspect.signature(self.parser.parse).parameters
        more = {"model_output_token_ids": ids} if "model_output_token_ids" in taken else {}
        reasoning, content, calls = self.parser.parse(
            text, self.request, enable_auto_tools=True, **more
        )
        return _answer(reasoning, content, calls or [])

    def piece(self, text: str, ids: list[int], prompt: list[int], *, last: bool) -> Any:
        return self.parser.parse_delta(text, ids, self.request, prompt, finished=last)


class _Apart:
    """Up to 0.22: the steps that the chat completion server of those releases takes itself."""

    def __init__(self, request: Any, reasoning: Any, tool: Any) -> None:
        self.request, self.reasoning, self.tool = request, reasoning, tool
        self.text, self.ids = "", list[int]()
        self.reasoned = self.calling = False

    def whole(self, text: str, ids: list[int], prompt: list[int]) -> dict[str, Any]:
        del ids, prompt
        reasoning, content = self.reasoning.extract_reasoning(text, self.request)
        found = self.tool.extract_tool_calls(content or "", self.request)
        calls = [call.function for call in found.tool_calls]
        return _answer(reasoning, found.content if found.tools_called else content, calls)

    def piece(self, text: str, ids: list[int], prompt: list[int], *, last: bool) -> Any:
        del last
        before, before_ids = self.text, self.ids
        now, now_ids, delta = before + text, before_ids + ids, None
        if not self.reasoned and self.reasoning.is_reasoning_end(prompt):
            self.reasoned, now_ids = True, ids
        elif not self.reasoned:
            delta = self.reasoning.extract_reasoning_streaming(
                before, now, text, before_ids, now_ids, ids
            )
            if self.reasoning.is_reasoning_end(ids):
                self.reasoned = True
                now_ids = self.reasoning.extract_content_ids(ids)
                now = (delta.content if delta else None) or ""
                if delta:
                    delta.content = None
        if self.reasoned:
            thought = delta.reasoning if delta else None
            if not self.calling:
                self.calling, before, before_ids, text, ids = True, "", [], now, now_ids
            delta = self.tool.extract_tool_calls_streaming(
                before, now, text, before_ids, now_ids, ids, self.request
            )
            if thought and delta is None:
                delta = SimpleNamespace(reasoning=thought, content=None, tool_calls=[])
            elif thought:
                delta.reasoning = thought
        self.text, self.ids = now, now_ids
        return delta


def _answer(reasoning: str | None, content: str | None, calls: list[Any]) -> dict[str, Any]:
    return {
        "reasoning": reasoning or "",
        "content": content or "",
        "calls": [{"name": call.name, "arguments": _json(call.arguments)} for call in calls],
    }


def _json(arguments: str | None) -> Any:
    """Read the arguments of a call; text that is none comes back as text, for the test to see."""
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


def _streamed(reader: _Reader, vllm: _VLLM, ids: list[int], prompt: list[int], size: int) -> Any:
    reasoning = content = ""
    calls: dict[int, SimpleNamespace] = {}
    pieces = list(_pieces(vllm.tokenizer, ids, size))
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
    return _answer(reasoning, content, [calls[index] for index in sorted(calls)])


def _message(answer: dict[str, Any]) -> Message:
    """Return what a client keeps of an answer."""
    calls = [
        {
            "id": f"c{i}",
            "type": "function",
            "function": call,
        }
        for i, call in enumerate(answer["calls"])
    ]
    message: Message = {"role": "assistant", "content": answer["content"]}
    if answer["reasoning"]:
        message["reasoning"] = answer["reasoning"]
    return message | ({"tool_calls": calls} if calls else {})


def _written(prompt: str, history: str) -> str:
    """Return what the model wrote behind ``prompt``, so that its turn reads as in ``history``."""
    if history.startswith(prompt):
        written = history[len(prompt) :]
    else:  # the turn shows no reasoning: the model closed at once what the prompt opened
        start = prompt.removesuffix("<think>\n")
        assert history.startswith(start), (prompt, history)
        written = "</think>\n\n" + history[len(start) :]
    return written.removesuffix(f"{END}\n")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Answer a case: ``template``, ``conversations``, ``parsers`` and sizes of ``pieces``."""
    import vllm as package

    _pretend_pictures()
    vllm = _VLLM(case["template"])
    found: dict[str, Any] = {"vllm": package.__file__, "format": vllm.content_format()}
    found["conversations"] = {
        slug: _conversation(vllm, conversation, case["parsers"], case["pieces"])
        for slug, conversation in case["conversations"].items()
    }
    return found


def _conversation(
    vllm: _VLLM, conversation: dict[str, Any], parsers: list[str], sizes: list[int]
) -> dict[str, Any]:
    messages = conversation["messages"]
    try:
        prompt = vllm.render(
            messages,
            tools=conversation.get("tools"),
            add_generation_prompt=conversation["add_generation_prompt"],
            **conversation["kwargs"],
        )
    except _refusal() as error:
        return {"error": str(error)}
    turns = [
        _turn(vllm, conversation, i, parsers, sizes)
        for i, message in enumerate(messages)
        if message["role"] == "assistant"
    ]
    return {"prompt": prompt, "turns": turns}


def _turn(
    vllm: _VLLM, conversation: dict[str, Any], i: int, parsers: list[str], sizes: list[int]
) -> dict[str, Any]:
    """Have message ``i`` written by the model, read, and sent back by a client."""
    before, kwargs = conversation["messages"][:i], conversation["kwargs"]
    shared = {"tools": conversation.get("tools"), **kwargs}
    shared.pop("continue_final_message", None)
    prompt = vllm.render(before, add_generation_prompt=True, **shared)

    def history(message: Message) -> str:
        """The prompt of the next round up to the end of the answer."""
        text = vllm.render([*before, message, RESULT], add_generation_prompt=False, **shared)
        assert text.endswith(RESULT_TURN), text
        return text.removesuffix(RESULT_TURN)

    shown = history(conversation["messages"][i])
    if not kwargs.get("enable_thinking", True) and not shown.startswith(prompt):
        kwargs = kwargs | {"enable_thinking": True}  # as it was when this turn was written
        prompt = vllm.render(before, add_generation_prompt=True, **shared | kwargs)
    written = _written(prompt, shown)
    prompt_ids = vllm.tokenizer.encode(prompt)
    ids = [*vllm.tokenizer.encode(written), vllm.tokenizer.eos_token_id]
    read = {}
    for parser in parsers:

        def new(parser: str = parser) -> _Reader:
            return vllm.reader(parser, conversation["reader_tools"], kwargs)

        answers = {"whole": new().whole(written, ids, prompt_ids)}
        for size in sizes:
            answers[str(size)] = _streamed(new(), vllm, ids, prompt_ids, size)
        for answer in answers.values():
            try:
                again = history(_message(answer))
            except _refusal() as error:
                again = f"refused: {error}"
            answer["again"] = True if again == shown else again
        read[parser] = answers
    return {"written": written, "read": read}


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    sys.stdout.write(
        "ANSWER " + json.dumps({name: answer(case) for name, case in cases.items()}) + "\n"
    )
