"""Answers read as a release's server reads them: put together of its parsers, whole and in pieces."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.templates import answers

if TYPE_CHECKING:
    from collections.abc import Callable

TOOLS = ({"type": "function"},)


class _Request(SimpleNamespace):
    """What the releases call ChatCompletionRequest."""


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Have modules of vLLM that the release would have."""

    def put(**names: object) -> None:
        for dotted, value in names.items():
            *above, name = dotted.split("__")
            module = ModuleType(".".join(["vllm", *above]))
            setattr(module, name, value)
            monkeypatch.setitem(sys.modules, module.__name__, module)

    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    put(entrypoints__openai__chat_completion__protocol__ChatCompletionRequest=_Request)
    return put


def _calls(*calls: tuple[str | None, str | None]) -> list[SimpleNamespace]:
    return [SimpleNamespace(name=name, arguments=arguments) for name, arguments in calls]


def test_names_are_those_that_are_lazy_and_those_that_are_loaded(
    modules: Callable[..., None],
) -> None:
    modules(
        tool_parsers__ToolParserManager=SimpleNamespace(
            lazy_parsers={"b": 1, "a": 2}, tool_parsers={"c": 3, "a": 4}
        ),
        reasoning__ReasoningParserManager=SimpleNamespace(
            lazy_parsers={"y": 1}, reasoning_parsers={"x": 2}
        ),
    )
    assert answers.names() == (["a", "b", "c"], ["x", "y"])


@pytest.mark.parametrize(
    ("tool", "reasoning", "harmony"),
    [
        ("openai", None, True),
        (None, "openai_gptoss", True),
        ("openai", "openai_gptoss", True),
        ("openai_gptoss", "openai", False),
        (None, None, False),
    ],
)
def test_which_parsers_read_tokens(
    tool: str | None, reasoning: str | None, *, harmony: bool
) -> None:
    assert answers.is_harmony(tool, reasoning) is harmony


class _Plain:
    """A parser from 0.23 on, which does all; it takes no tokens, and finds no calls."""

    def __init__(self, tokenizer: Any, tools: Any, chat_template_kwargs: Any) -> None:
        self.given = (tokenizer, tools, chat_template_kwargs)

    def adjust_request(self, request: Any) -> Any:
        request.adjusted = True
        return request

    def parse(self, text: str, request: Any, *, enable_auto_tools: bool) -> Any:
        assert request.adjusted
        return None, f"{text} {enable_auto_tools}", None

    def parse_delta(self, *given: Any, finished: bool) -> Any:
        return (*given, finished)


class _Parser(_Plain):
    """One that takes the tokens of the prompt and of the answer, and finds a call with them."""

    def set_prompt_token_ids(self, ids: list[int]) -> None:
        self.prompt = ids

    def parse(
        self,
        text: str,
        request: Any,
        *,
        enable_auto_tools: bool,
        model_output_token_ids: tuple[int, ...] | list[int] = (),
    ) -> Any:
        assert (enable_auto_tools, request.adjusted) == (True, True)
        return "thought", text, _calls(("f", str([*self.prompt, *model_output_token_ids])))


def _manager(parser: object, names_asked: dict[str, Any], *, harmony: bool) -> SimpleNamespace:
    def get_parser(*, is_harmony: bool = False, **names: Any) -> object:
        names_asked.update(names, is_harmony=is_harmony)
        return parser

    def get_plain(
        *, tool_parser_name: Any, reasoning_parser_name: Any, enable_auto_tools: Any
    ) -> object:
        names_asked.update(
            tool=tool_parser_name, reasoning=reasoning_parser_name, auto=enable_auto_tools
        )
        return parser

    return SimpleNamespace(get_parser=get_parser if harmony else get_plain)


@pytest.mark.parametrize(("tool", "harmony"), [("hermes", False), ("openai", True)])
def test_one_parser_for_all_is_given_the_request_and_the_names(
    modules: Callable[..., None], tool: str, *, harmony: bool
) -> None:
    names: dict[str, Any] = {}
    modules(parser__ParserManager=_manager(_Parser, names, harmony=True))
    reader: Any = answers.reader("tokenizer", tool, "think", TOOLS, {"a": 1})
    assert names == {
        "tool_parser_name": tool,
        "reasoning_parser_name": "think",
        "enable_auto_tools": True,
        "is_harmony": harmony,
    }
    assert vars(reader.request) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Q"}],
        "tools": list(TOOLS),
        "tool_choice": "auto",
        "chat_template_kwargs": {"a": 1},
        "adjusted": True,
    }
    assert reader.parser.given == ("tokenizer", list(TOOLS), {"a": 1})
    assert reader.whole("text", [3], [1, 2]) == {
        "reasoning": "thought",
        "content": "text",
        "calls": [{"name": "f", "arguments": [1, 2, 3]}],
    }
    for last in (True, False):
        assert reader.piece("text", [3], [1], last=last) == ("text", [3], reader.request, [1], last)


def test_one_parser_that_takes_no_tokens_is_given_none(modules: Callable[..., None]) -> None:
    names: dict[str, Any] = {}
    modules(parser__ParserManager=_manager(_Plain, names, harmony=False))
    reader = answers.reader("tokenizer", "openai", None, (), {})
    assert names == {"tool": "openai", "reasoning": None, "auto": True}
    assert (reader.request.tools, reader.request.tool_choice) == (None, "none")
    assert reader.whole("text", [3], [1]) == {"reasoning": "", "content": "text True", "calls": []}


class _Thinker:
    """A reasoning parser up to 0.22: reasoning ends at the token 9, whose text is ``|``."""

    def __init__(self, tokenizer: Any, chat_template_kwargs: Any) -> None:
        self.given = (tokenizer, chat_template_kwargs)

    def extract_reasoning(self, text: str, request: Any) -> tuple[str | None, str | None]:
        assert request.tools is not False
        thought, closed, content = text.partition("|")
        return (thought, content or None) if closed else (None, text)

    def is_reasoning_end(self, ids: list[int]) -> bool:
        return 9 in ids

    def extract_content_ids(self, ids: list[int]) -> list[int]:
        return ids[ids.index(9) + 1 :]

    def extract_reasoning_streaming(
        self, before: str, now: str, text: str, *numbers: list[int]
    ) -> Any:
        before_ids, now_ids, ids = numbers
        assert before + text == now
        assert before_ids + ids == now_ids
        if text.startswith("?"):
            return None
        thought, closed, content = text.partition("|")
        return SimpleNamespace(
            reasoning=thought or None, content=content if closed else None, tool_calls=[]
        )


class _Caller:
    """A tool parser up to 0.22: ``(name)`` is a call."""

    seen: list[tuple[Any, ...]]

    def __init__(self, tokenizer: Any, tools: Any) -> None:
        self.given = (tokenizer, tools)
        self.seen = []

    def adjust_request(self, request: Any) -> Any:
        request.adjusted = True
        return request

    def extract_tool_calls(self, text: str, request: Any) -> Any:
        assert request.adjusted
        content, opened, name = text.partition("(")
        calls = [SimpleNamespace(function=one) for one in _calls((name[:-1], None))]
        return SimpleNamespace(
            tools_called=bool(opened), content=content or None, tool_calls=calls if opened else []
        )

    def extract_tool_calls_streaming(self, *given: Any) -> Any:
        assert given[-1].adjusted
        self.seen.append(given[:-1])
        text = given[2]
        if "(" not in text:
            return None if text == "!" else SimpleNamespace(content=text, tool_calls=None)
        part = SimpleNamespace(index=0, function=SimpleNamespace(name=text[1:-1], arguments="{}"))
        return SimpleNamespace(content=None, tool_calls=[part], reasoning=None)


class _Early(_Caller):
    """One up to 0.17, which is not given the tools."""

    def __init__(self, tokenizer: Any) -> None:
        super().__init__(tokenizer, "none")


def _apart(
    modules: Callable[..., None],
    tool: str | None,
    reasoning: str | None,
    *,
    caller: type[_Caller] = _Caller,
) -> Any:
    modules(
        parser__ParserManager=SimpleNamespace(get_parser=lambda **names: names.clear()),
        reasoning__ReasoningParserManager=SimpleNamespace(
            get_reasoning_parser={"think": _Thinker}.get
        ),
        tool_parsers__ToolParserManager=SimpleNamespace(get_tool_parser={"call": caller}.get),
    )
    return answers.reader("tokenizer", tool, reasoning, TOOLS, {"a": 1})


def test_parsers_apart_are_made_as_their_release_makes_them(modules: Callable[..., None]) -> None:
    reader = _apart(modules, "call", "think")
    assert reader.reasoning.given == ("tokenizer", {"a": 1})
    assert reader.tool.given == ("tokenizer", list(TOOLS))
    assert reader.request.adjusted
    assert _apart(modules, "call", None, caller=_Early).tool.given == ("tokenizer", "none")
    alone = _apart(modules, None, None)
    assert (alone.tool, alone.reasoning) == (None, None)


def test_a_release_without_parsers_for_all_has_them_apart(
    modules: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(name: str) -> Any:
        if name == "vllm.parser":
            raise ModuleNotFoundError(name)
        return sys.modules[name]

    monkeypatch.setattr(importlib, "import_module", gone)
    modules(tool_parsers__ToolParserManager=SimpleNamespace(get_tool_parser=lambda _: _Caller))
    assert answers.reader("tokenizer", "call", None, (), {}).whole("a(f)", [], []) == {
        "reasoning": "",
        "content": "a",
        "calls": [{"name": "f", "arguments": {}}],
    }


CALL = [{"name": "f", "arguments": {}}]


@pytest.mark.parametrize(
    ("pair", "text", "read"),
    [
        ((None, None), "a|b(f)", ("", "a|b(f)", [])),
        ((None, "think"), "a|b(f)", ("a", "b(f)", [])),
        ((None, "think"), "ab", ("", "ab", [])),
        (("call", None), "a|b(f)", ("", "a|b", CALL)),
        (("call", None), "ab", ("", "ab", [])),
        (("call", "think"), "a|b(f)", ("a", "b", CALL)),
        (("call", "think"), "a|", ("a", "", [])),
        (("call", "think"), "a|(f)", ("a", "", CALL)),
    ],
)
def test_a_whole_answer_goes_through_one_and_then_the_other(
    modules: Callable[..., None],
    pair: tuple[str | None, str | None],
    text: str,
    read: tuple[Any, ...],
) -> None:
    answer = _apart(modules, *pair).whole(text, [], [])
    assert (answer["reasoning"], answer["content"], answer["calls"]) == read


class _Words:
    """A tokenizer whose tokens are numbers with a text each."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        assert skip_special_tokens
        return "".join(self.texts[number] for number in ids)


def _streamed(reader: Any, texts: list[str], size: int, prompt: list[int]) -> dict[str, Any]:
    """Read the texts as pieces; the one with ``|`` in it is the token 9."""
    ids = [9 if "|" in text else n for n, text in enumerate(texts)]
    padded = [*texts, *[""] * (9 - len(texts)), next((t for t in texts if "|" in t), "")]
    return answers.read_streamed(reader, _Words(*padded), ids, prompt, size)


@pytest.mark.parametrize(
    ("pair", "texts", "prompt", "read"),
    [
        ((None, None), ["a", "b"], [], ("", "ab", [])),
        ((None, "think"), ["a", "b|", "c", "d"], [], ("ab", "cd", [])),
        ((None, "think"), ["a", "b|c", "d"], [], ("ab", "cd", [])),
        ((None, "think"), ["a", "b"], [9], ("", "b", [])),
        ((None, "think"), ["?", "a"], [], ("a", "", [])),
        ((None, "think"), ["a", "?|", "c"], [], ("a", "c", [])),
        (("call", "think"), ["a", "?|", "c", "(f)"], [], ("a", "c", CALL)),
        (("call", None), ["a", "(f)", "b"], [], ("", "ab", CALL)),
        (("call", "think"), ["a", "b|", "c", "(f)"], [], ("ab", "c", CALL)),
        (("call", "think"), ["a", "b|!", "c"], [], ("ab", "c", [])),
        (("call", "think"), ["a", "b|(f)"], [], ("ab", "", CALL)),
        (("call", "think"), ["a", "(f)"], [9], ("", "a", CALL)),
        (("call", "think"), ["|(f)", "b"], [], ("", "b", CALL)),
    ],
)
def test_a_streamed_answer_is_what_a_client_would_put_together(
    modules: Callable[..., None],
    pair: tuple[str | None, str | None],
    texts: list[str],
    prompt: list[int],
    read: tuple[Any, ...],
) -> None:
    answer = _streamed(_apart(modules, *pair), texts, 1, prompt)
    assert (answer["reasoning"], answer["content"], answer["calls"]) == read


def test_a_tool_parser_hears_only_what_is_behind_the_reasoning(
    modules: Callable[..., None],
) -> None:
    reader = _apart(modules, "call", "think")
    _streamed(reader, ["a", "b|c", "d"], 1, [])
    assert reader.tool.seen == [("", "c", "c", [], [], []), ("c", "cd", "d", [], [2], [2])]


def test_pieces_have_so_many_tokens_and_the_last_is_said_to_be() -> None:
    heard: list[Any] = []

    class Reader:
        def piece(self, *given: Any, last: bool) -> None:
            heard.append((*given, last))

    words: Any = _Words("a", "\ufffd", "b", "c")
    words.decode = lambda ids, **_: "".join(words.texts[n] for n in ids).replace("\ufffdb", "é")
    nothing = answers.read_streamed(Reader(), words, [0, 1, 2, 3], [7], 2)  # type: ignore[arg-type]
    assert heard == [("a", [0, 1], [7], False), ("éc", [2, 3], [7], True)]
    assert nothing == {"reasoning": "", "content": "", "calls": []}


def test_parts_of_calls_are_put_together_by_their_number() -> None:
    def part(index: int, name: str | None, arguments: str | None) -> SimpleNamespace:
        return SimpleNamespace(
            index=index, function=SimpleNamespace(name=name, arguments=arguments)
        )

    deltas = [
        SimpleNamespace(content="x", tool_calls=[part(1, "g", None), part(0, "f", '{"a"')]),
        SimpleNamespace(content=None, tool_calls=None, reasoning="r"),
        SimpleNamespace(content="", tool_calls=[part(0, None, ": 1}"), part(1, "h", "[")]),
        SimpleNamespace(content="y", tool_calls=[SimpleNamespace(index=1, function=None)]),
    ]
    rest = iter(deltas)
    reader: Any = SimpleNamespace(piece=lambda *_, **__: next(rest))
    read = answers.read_streamed(reader, _Words("a", "b", "c", "d"), [0, 1, 2, 3], [], 1)
    assert read == {
        "reasoning": "r",
        "content": "xy",
        "calls": [{"name": "f", "arguments": {"a": 1}}, {"name": "gh", "arguments": "["}],
    }
