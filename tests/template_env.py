"""Render a chat template as vLLM does, and read the result back.

The environment repeats what transformers sets up for a chat template; the reader is a small
parser of the wire format that shares nothing with the template.
"""

from __future__ import annotations

import ast
import json
import os
import re
import tomllib
from collections import deque
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox

from vllm_mods.library import data_root

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jinja2.parser import Parser

Message = dict[str, Any]


class _Generation(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}``, which marks text and changes none."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Return the environment of transformers' ``apply_chat_template``."""

    def tojson(
        value: Any,
        ensure_ascii: bool = False,  # noqa: FBT001, FBT002  (transformers' signature)
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,  # noqa: FBT001, FBT002
    ) -> str:
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def strftime_now(format: str) -> str:  # noqa: A002  (transformers' signature)
        return datetime.now().strftime(format)  # noqa: DTZ005

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = strftime_now
    return env


def template_folder(name: str) -> str:
    """Return the folder of a bundled template."""
    return os.path.join(data_root(), "templates", name)


def source(name: str) -> str:
    """Return the text of a bundled template."""
    with open(os.path.join(template_folder(name), "template.jinja"), encoding="utf-8") as file:
        return file.read()


def manifest(name: str) -> dict[str, Any]:
    """Return the ``template.toml`` of a bundled template."""
    with open(os.path.join(template_folder(name), "template.toml"), "rb") as file:
        return tomllib.load(file)


def conversations(name: str) -> dict[str, dict[str, Any]]:
    """Return the conversations that lie beside a bundled template, by the names of their files."""
    folder = os.path.join(template_folder(name), "conversations")
    found = {}
    for file_name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, file_name), encoding="utf-8") as file:
            found[file_name.removesuffix(".json")] = json.load(file)
    return found


@cache
def _compiled(name: str) -> jinja2.Template:
    return environment().from_string(source(name))


def render(
    name: str,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    add_generation_prompt: bool = False,
    **kwargs: Any,
) -> str:
    """Render a conversation with a bundled template."""
    return _compiled(name).render(
        messages=messages,
        tools=tools,
        documents=None,
        add_generation_prompt=add_generation_prompt,
        **kwargs,
    )


def undeclared(text: str) -> set[str]:
    """Return the variables that a template takes from outside: the kwargs that vLLM lets through."""
    env = environment()
    return jinja2.meta.find_undeclared_variables(env.parse(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One turn of a prompt; ``closed`` tells whether it ended with ``<|im_end|>``."""

    role: str
    text: str
    closed: bool

    @property
    def reasoning(self) -> str | None:
        """What stands in the think block at the start, ``None`` if there is no such block."""
        match = re.match(r"<think>\n(.*?)\n</think>\n\n", self.text, re.DOTALL)
        return match[1] if match else None

    @property
    def answer(self) -> str:
        """The text behind the think block and in front of the calls."""
        rest = re.sub(r"\A<think>\n.*?\n</think>\n\n", "", self.text, flags=re.DOTALL)
        return rest.split("<tool_call>", 1)[0]


def turns(prompt: str) -> tuple[Turn, ...]:
    """Split a prompt into turns. Fails on anything that lies between two turns."""
    found = []
    position = 0
    turn = re.compile(r"<\|im_start\|>(\w+)\n(.*?)(<\|im_end\|>\n|\Z)", re.DOTALL)
    while position < len(prompt):
        match = turn.match(prompt, position)
        assert match, f"stray text between turns: {prompt[position : position + 80]!r}"
        assert "<|im_start|>" not in match[2], f"a turn within a turn: {match[2][:200]!r}"
        found.append(Turn(role=match[1], text=match[2], closed=bool(match[3])))
        position = match.end()
    return tuple(found)


_CALL_TAG = re.compile(r"</?(tool_call|function|parameter)\b[=>]")


def raw_calls(text: str) -> list[tuple[str, dict[str, str]]]:
    """Read the calls of a turn: names, and parameter values as they are written.

    Reads line by line, and so is stricter than vLLM's parsers: each tag has its own line.
    """
    calls: list[tuple[str, dict[str, str]]] = []
    parameter: str | None = None
    value: list[str] = []
    inside = False
    for line in text.split("\n"):
        if parameter is not None:
            if line == "</parameter>":
                calls[-1][1][parameter] = "\n".join(value)
                parameter, value = None, []
            else:
                # vLLM's parsers would take it for real in the middle of a line too.
                assert not _CALL_TAG.search(line), f"a tag within a value: {line!r}"
                value.append(line)
        elif line == "<tool_call>":
            assert not inside, "a call within a call"
            inside = True
        elif line == "</tool_call>":
            assert inside, "a call ends that did not begin"
            inside = False
        elif inside and (match := re.fullmatch(r"<function=([^>]+)>", line)):
            calls.append((match[1], {}))
        elif inside and (match := re.fullmatch(r"<parameter=([^>]+)>", line)):
            parameter = match[1]
        else:
            assert not inside or line == "</function>", f"stray line in a call: {line!r}"
    assert parameter is None, f"the parameter {parameter} never ends"
    assert not inside, "the last call never ends"
    return calls


def calls_like(prompt: str, expected: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all calls of a prompt's assistant turns, typed by the ``expected`` arguments.

    The format does not tell ``5`` from ``"5"``: a tool's schema does. Here the expected value
    stands in for the schema.
    """
    found = [
        call for turn in turns(prompt) if turn.role == "assistant" for call in raw_calls(turn.text)
    ]
    result = []
    for i, (name, written) in enumerate(found):
        like = expected[i]["arguments"] if i < len(expected) else {}
        result.append(
            {
                "name": name,
                "arguments": {
                    key: text if isinstance(like.get(key, ""), str) else json.loads(text)
                    for key, text in written.items()
                },
            }
        )
    return result


def detector(renderer: bytes) -> Callable[[str], str]:
    """Cut the content format detection out of a release's ``vllm/renderers/hf.py``.

    The release's own functions run, with jinja2 alone; only the compilation of the template, for
    which vLLM goes through transformers, is done here.
    """
    wanted = {"_detect_content_format", "_attr_dotted_name"}
    module = ast.parse(renderer)
    functions = [
        node
        for node in module.body
        if isinstance(node, ast.FunctionDef)
        and (node.name in wanted or node.name.startswith(("_is_", "_iter_nodes_")))
    ]
    for function in functions:
        function.decorator_list = []
    assert wanted - {"_attr_dotted_name"} <= {function.name for function in functions}
    future = ast.ImportFrom(module="__future__", names=[ast.alias("annotations")], level=0)
    cut = ast.fix_missing_locations(ast.Module(body=[future, *functions], type_ignores=[]))
    names: dict[str, Any] = {
        "jinja2": jinja2,
        "deque": deque,
        "_try_extract_ast": lambda text: environment().parse(text),
        "logger": _Loud(),
    }
    exec(compile(cut, "vllm/renderers/hf.py", "exec"), names)  # noqa: S102
    detect: Callable[..., str] = names["_detect_content_format"]
    return lambda text: detect(text, default="string")


class _Loud:
    """vLLM logs a failed detection and goes on with a default; a test has to hear of it."""

    def exception(self, message: str, *_: Any) -> NoReturn:
        raise AssertionError(message)
