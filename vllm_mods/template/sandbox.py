"""The process in which chat templates are rendered: Jinja's sandbox, within limits of the kernel.

``rendering`` starts it. A case comes on stdin, one JSON object; on stdout a line is written for the
template and one for each conversation, as soon as it is known. After ``_fence`` the process can open
no file, no socket and no library, so that whatever gets out of Jinja's sandbox has nothing to do it with.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.sandbox

from vllm_mods.base import limits
from vllm_mods.template import formats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jinja2.parser import Parser

_MOST_OF_ERROR = 2000
_LATER = (
    "encodings.unicode_escape",
    "html",
    "jinja2.constants",
    "jinja2.debug",
    "pprint",
    "textwrap",
)
"""Imported by Jinja and MarkupSafe when a template first needs it: behind the fence it would be too late."""


class _Generation(jinja2.ext.Extension):
    """``{% generation %}…{% endgeneration %}``, which marks text and changes none."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it so)

    def parse(self, parser: Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.Scope(body).set_lineno(line)


def environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """Return the environment of transformers' ``apply_chat_template``, which vLLM calls."""

    def tojson(
        value: Any,  # noqa: ANN401
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


def main() -> None:
    """Answer the case on stdin."""
    case = json.load(sys.stdin)
    env = environment()
    for name in _LATER:
        importlib.import_module(name)
    time.localtime()  # reads the time zone
    _fence(case["seconds"], case["memory"])
    try:
        tree = env.parse(case["template"])
        template = env.from_string(case["template"])
        _say(
            variables=sorted(jinja2.meta.find_undeclared_variables(tree)),
            formats=formats.detected(tree),
        )
    except Exception as error:  # noqa: BLE001  (whatever it is, the template has it)
        _say(**_fault(error))
        return
    for job in case["jobs"]:
        try:
            _say(prompt=_prompt(template, job))
        except Exception as error:  # noqa: BLE001
            _say(**_fault(error))


def _fence(seconds: int, memory: int) -> None:
    for what, most in (
        (resource.RLIMIT_CPU, seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_NOFILE, 3),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(what)[1]
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (least, least))


def _prompt(template: jinja2.Template, job: Mapping[str, Any]) -> str:
    prompt = template.render(
        messages=job["messages"],
        tools=job["tools"],
        documents=None,
        add_generation_prompt=job["add_generation_prompt"],
        **job["kwargs"],
    )
    if len(prompt) > limits.PROMPT:
        raise jinja2.TemplateError(f"the prompt has more than {limits.PROMPT}")
    prompt.encode()  # half of a character is no text, and a tokenizer takes none
    return prompt


def _fault(error: Exception) -> dict[str, Any]:
    """Return what went wrong, and the innermost line of the template it was in."""
    line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    ours = isinstance(error, jinja2.TemplateError)
    text = str(error) if ours else f"{type(error).__name__}: {error}".removesuffix(": ")
    whole = text[:_MOST_OF_ERROR].encode("utf-8", "replace").decode()
    return {"error": whole, "line": line}


def _say(**answer: Any) -> None:  # noqa: ANN401
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
