# mypy: disable-error-code="import-not-found, misc"
"""Render conversations with the vLLM on PYTHONPATH, and have its own parsers read them back.

usage: python template_round_trip.py CASES   (a JSON object; what a case holds: ``answer``)

vLLM's own functions are called in its own order: detection of the content format, its reading of
messages and tools, its call of the template; then, for each assistant message, its reasoning and
tool parsers (``vllm_mods.templates.answers``) on what the model must have written for the history to look as it does. What is stood
in for: the tokenizer (one token per byte, and the tags that Qwen's has as tokens), the download of
pictures, and the model's processor, which would count them. Prints one JSON object.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from types import SimpleNamespace
from typing import Any

from vllm_mods.templates.answers import AnswerReader, read_streamed, reader

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


def _as_sent(message: Message) -> Message:
    """Copy a message, the arguments of its calls as the text that clients send."""
    copied: Message = json.loads(json.dumps(message))
    for call in copied.get("tool_calls") or ():
        if not isinstance(call["function"]["arguments"], str):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
    return copied


def _message(answer: dict[str, Any]) -> Message:
    """Return what a client keeps of an answer."""
    calls = [
        {"id": f"c{i}", "type": "function", "function": call}
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

        def new(parser: str = parser) -> AnswerReader:
            tools = conversation["reader_tools"]
            return reader(vllm.tokenizer, parser, "qwen3", tools, kwargs)

        answers = {"whole": new().whole(written, ids, prompt_ids)}
        for size in sizes:
            answers[str(size)] = read_streamed(new(), vllm.tokenizer, ids, prompt_ids, size)
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
