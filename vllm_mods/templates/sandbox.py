"""The process in which chat templates are rendered: a sandbox, within limits of the kernel.

vLLM has two engines: transformers' Jinja, and minijinja in its Rust frontend
(``VLLM_USE_RUST_FRONTEND=1``, from 0.22 on).

``rendering`` starts it. A line is written for the template and one for each conversation, as soon as it is
known. After ``fence.lock`` the process can compute and write these lines, so that whatever gets out of Jinja's
sandbox has nothing to do it with.
"""

import importlib
import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox
import minijinja
from jinja2.parser import Parser

from vllm_mods.templates import fence, formats

_MOST_OF_ERROR = 2000
_TURN = timedelta(seconds=61)
"""How long a message takes where time goes by: another second and another minute."""
_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(?=\s*[-+]?%\})")
_LATER = (
    *("encodings.unicode_escape", "html", "jinja2.constants", "jinja2.debug"),
    *("minijinja._internal", "pprint", "textwrap"),
)
"""Imported by the engines and MarkupSafe when a template first needs it: behind the fence it would be too late."""


class _Generation(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}``, which marks text and changes none."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002  (transformers' signature)
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


class _Clock:
    """What time it is for templates: now, or the ``moment`` that it is set to."""

    moment: datetime | None = None

    def strftime_now(self, format: str) -> str:  # noqa: A002  (transformers' signature)
        return (self.moment or datetime.now()).strftime(format)  # noqa: DTZ005


_CLOCK = _Clock()


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Return the environment of transformers' ``apply_chat_template``, which vLLM calls."""
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise_exception
    env.globals["strftime_now"] = _CLOCK.strftime_now
    return env


def rust_environment(template: str) -> minijinja.Environment:
    """Return the environment of vLLM's Rust frontend, with the template called ``""``.

    What is done to its text is what ``load_chat_template`` and ``rewrite_generation_blocks`` do to a file
    (``rust/src/chat/src/renderer/hf`` in vLLM's sdist).
    """
    text = template.strip().replace("\\n", "\n")
    named = {"": _GENERATION.sub(r"\1\2with", text)}
    env = minijinja.Environment(
        templates=named, trim_blocks=True, lstrip_blocks=True, pycompat=True
    )
    env.add_filter("tojson", _tojson)
    env.add_global("raise_exception", _raise_exception)
    env.add_global("strftime_now", _CLOCK.strftime_now)
    return env


def main() -> None:
    """Answer the case on stdin."""
    fence.serve(_load, _answer)


def _load() -> list[str]:
    environment()
    for name in _LATER:
        importlib.import_module(name)
    time.localtime()  # reads the time zone
    return []


def _answer(case: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield what the template is, and what became of each job."""
    env = environment()
    try:
        tree = env.parse(case["template"])
        template = env.from_string(case["template"])
        uses = [*tree.find_all((jinja2.nodes.Filter, jinja2.nodes.Test))]
        asks_first = bool({"filter", "test"} & {use.name for use in uses})
        for use in uses:
            # of one in a branch, Jinja itself says so only when it gets there
            known = env.tests if isinstance(use, jinja2.nodes.Test) else env.filters
            if not asks_first and use.name not in known:
                what = type(use).__name__.lower()
                yield {"error": f"No {what} named {use.name!r}.", "line": use.lineno}
                return
        yield {
            "variables": sorted(jinja2.meta.find_undeclared_variables(tree)),
            "own": sorted(_own_variables(tree)),
            "formats": formats.detect_formats(tree),
        }
    except Exception as error:  # noqa: BLE001  (whatever it is, the template has it)
        yield _describe(error)
        return
    noon = datetime.now().replace(hour=12, minute=0, second=0)  # noqa: DTZ005
    left = case["letters"]
    for job in case["jobs"]:
        if case["later"]:
            _CLOCK.moment = noon + _TURN * len(job["messages"])
        try:
            engine = rust_environment(case["template"]) if case["rust"] else template
            prompt = _render(engine, job)
            if len(prompt) > left:
                raise jinja2.TemplateRuntimeError(  # noqa: TRY301  (one of its faults like others)
                    f"its prompts have more than {case['letters']:,} letters"
                )
            left -= len(prompt)
            answer = {"prompt": prompt}
        except BaseException as error:  # noqa: BLE001  (a panic of minijinja is no Exception)
            answer = _describe(error)
        yield answer


def _own_variables(tree: jinja2.nodes.Template) -> set[str]:
    """Return the variables that a template sets and never asks whether they were given."""
    macros = ((one, {arg.name for arg in one.args}) for one in tree.find_all(jinja2.nodes.Macro))
    uses = ((use, args) for macro, args in macros for use in macro.find_all(jinja2.nodes.Name))
    parameters = {id(use) for use, args in uses if use.name in args}
    tests = tree.find_all((jinja2.nodes.Test, jinja2.nodes.Filter))
    nodes = (one.node for one in tests if one.name in {"defined", "undefined", "none", "default"})
    names = (one for one in nodes if isinstance(one, jinja2.nodes.Name))
    asked = {one.name for one in names if id(one) not in parameters}
    return {one.name for one in tree.find_all(jinja2.nodes.Name) if one.ctx == "store"} - asked


def _render(engine: jinja2.Template | minijinja.Environment, job: Mapping[str, Any]) -> str:
    given = {
        "messages": job["messages"],
        "tools": job["tools"],
        "documents": None,
        "add_generation_prompt": job["add_generation_prompt"],
        **job["kwargs"],
    }
    if isinstance(engine, minijinja.Environment):
        stated = {name: value for name, value in given.items() if value is not None}
        prompt = engine.render_template("", **stated)
    else:
        prompt = engine.render(given)
    prompt.encode()  # half of a character is no text, and a tokenizer takes none
    return prompt


def _describe(error: BaseException) -> dict[str, Any]:
    """Return what went wrong, and the innermost line of the template it was in."""
    if isinstance(error, minijinja.TemplateError):
        return {"error": error.message.split("\n")[0][:_MOST_OF_ERROR], "line": error.line}
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    ours = isinstance(error, jinja2.TemplateError)
    text = str(error) if ours else f"{type(error).__name__}: {error}".removesuffix(": ")
    whole = text[:_MOST_OF_ERROR].encode("utf-8", "replace").decode()
    return {"error": whole, "line": line, "refused": type(error) is jinja2.TemplateError}
