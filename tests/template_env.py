"""The bundled chat templates, rendered in this process; and releases' own detection of formats."""

from __future__ import annotations

import ast
import json
import logging
import os
import tomllib
from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import jinja2.meta
import jinja2.nodes
import qwen_calls

from vllm_mods.library.mod_folder import data_root
from vllm_mods.templates.sandbox import environment, rust_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Message = dict[str, Any]


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


def expected_calls(name: str, slug: str) -> list[dict[str, Any]]:
    """Return the calls that a conversation of a bundled template has to read back as."""
    place = os.path.join(os.path.dirname(__file__), "templates", "expected_calls.json")
    with open(place, encoding="utf-8") as file:
        calls: list[dict[str, Any]] = json.load(file).get(name, {}).get(slug, [])
    return calls


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


def render_by_minijinja(name: str, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
    """Render as vLLM's Rust frontend does."""

    return rust_environment(source(name)).render_template("", messages=messages, **variables)


def undeclared(text: str) -> set[str]:
    """Return the variables that a template takes from outside: the kwargs that vLLM lets through."""
    env = environment()
    return jinja2.meta.find_undeclared_variables(env.parse(text))


def calls_like(prompt: str, expected: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return all calls of a prompt's assistant turns, typed by the ``expected`` arguments."""
    like = [qwen_calls.ToolCall(one["name"], one["arguments"]) for one in expected]
    return [call._asdict() for call in qwen_calls.read(prompt, like)]


def detector(renderer: bytes, *, loud: bool = True) -> Callable[[str], str]:
    """Cut the content format detection out of a release's ``vllm/renderers/hf.py``.

    The release's own functions run, with jinja2 alone; only the compilation of the template, for
    which vLLM goes through transformers, is done here. ``loud`` has a detection that breaks down fail.
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
        "logger": _Loud() if loud else logging.getLogger(__name__),
    }
    exec(compile(cut, "vllm/renderers/hf.py", "exec"), names)  # noqa: S102
    detect: Callable[..., str] = names["_detect_content_format"]
    return lambda text: detect(text, default="string")


class _Loud:
    """vLLM logs a failed detection and goes on with a default; a test has to hear of it."""

    def exception(self, message: str, *_: Any) -> NoReturn:
        raise AssertionError(message)
