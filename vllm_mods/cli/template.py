"""``vllm-mods template``."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from vllm_mods.base.errors import ManifestError, NotRendered, UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.cli import answers, manner, named_files, options, shown
from vllm_mods.cli.listing import readable, told
from vllm_mods.cli.manner import option
from vllm_mods.library.catalog import Library
from vllm_mods.report import template as report
from vllm_mods.templates import check as checking
from vllm_mods.templates import conversation, official, rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.parser_process import open_release
from vllm_mods.templates.source import Template, conversations, open_in_tree, open_template

_IN_TREE = "vllm-mods template check examples/tool_chat_template_hermes.jinja --in sdist:FILE"
_complete = options.completer(Library.template_names)


def _argument(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.argument(name, metavar=name.upper(), shell_complete=_complete)


_conversations = option(
    "--conversations NAME|DIR",
    "Those of this template, or in this folder [those beside the template].",
    "others",
    shell_complete=_complete,
)


@click.group(name="template")
def command() -> None:
    """Render chat templates, and hold them against conversations.

    TEMPLATE is the name of one in a library, or a file. It is rendered as vLLM does, by
    Jinja's sandbox, in a process that can open no file and has 20 seconds and 1 GiB.
    """


@command.command(name="list")
@options.libraries
@manner.json_output
def list_() -> int:
    """List the chat templates, bundled ones and those of --library."""
    library = options.open_library()
    faults: list[ManifestError] = []
    found = readable(library.template_names(), lambda name: open_template(library, name), faults)
    answers.answer(report.list_data(found, faults), report.list_text(found))
    return told(faults)


@command.command(name="check")
@click.argument("templates", nargs=-1, metavar="[TEMPLATE]...", shell_complete=_complete)
@_conversations
@option(
    "--parsers", "Run the parsers of --target, fenced in: do they read what the template writes?"
)
@option("--target TREE", "The vLLM for --parsers: a folder, pypi:VERSION, …")
@option("--tool-call-parser NAME", "This one [template.toml's; all].", "tool")
@option("--reasoning-parser NAME", "The same for reasoning.", "reasoner")
@option(
    "--in TREE",
    "TEMPLATE is a path in there: sdist:FILE, pypi:VERSION, an absolute one in image:REF, …",
    "place",
)
@options.libraries
@manner.offline
@manner.json_output
def check(
    templates: tuple[str, ...],
    others: str | None,
    *,
    parsers: bool,
    target: str | None,
    tool: str | None,
    reasoner: str | None,
    place: str | None,
) -> int:
    """Tell whether templates make the prompts that they should; all of them without TEMPLATE.

    Also which content format each vLLM takes a template for, which arguments it reads, and
    whether its template.toml says so. Exit code 1 if anything is not as it should be.
    """
    if parsers != (target is not None) or ((tool or reasoner) and not parsers):
        raise UsageError(
            "--parsers runs code of --target: both or neither",
            hint="vllm-mods template check TEMPLATE --parsers --target pypi:VERSION",
        )
    library = options.open_library()
    given = conversations(library, others) if others is not None else None
    if place is not None and not templates:
        raise UsageError("--in is for a TEMPLATE in it, and none is named", hint=_IN_TREE)
    opened = [
        open_template(library, name) if place is None else _in_tree(place, name)
        for name in templates or library.template_names()
    ]
    release = open_release(options.open_tree(target)) if target else None
    found = [
        checking.check(
            one, one.conversations if given is None else given, release, (tool, reasoner)
        )
        for one in opened
    ]
    return answers.answer(
        report.checked_data(found), report.checked_text(found), ok=all(one.ok for one in found)
    )


@command.command(name="render")
@_argument("template")
@click.argument("messages")
@option(
    "--chat-template-kwargs JSON",
    "Arguments of the template, as in a request and for `vllm serve`.",
    "kwargs",
)
@option("--no-generation-prompt", "Do not begin the answer.")
@options.libraries
@manner.json_output
def render(template: str, messages: str, kwargs: str | None, *, no_generation_prompt: bool) -> int:
    """Print the prompt that a template makes of MESSAGES.

    MESSAGES is a file, or - for stdin: a list of messages, or the body of a request to
    /v1/chat/completions; or the name of a conversation beside the template. A message's
    content reaches the template as it stands there.
    """
    opened = open_template(options.open_library(), template)
    asked = _asked(opened, messages)
    asked = asked._replace(
        kwargs={**asked.kwargs, **_kwargs(kwargs)},
        add_generation_prompt=asked.add_generation_prompt and not no_generation_prompt,
    )
    answer = rendering.render(opened.data, opened.path, (asked,))
    for name in sorted(asked.kwargs.keys() - set(answer.variables)):
        answers.note(f"the template does not read `{name}`, and vLLM drops it without a word")
    (found,) = answer.rendered
    if found.prompt is None:
        raise NotRendered(f"{rendering.place(opened.path, found.line)}: {found.error}")
    return _print_text({"template": opened.name}, "prompt", found.prompt)


@command.command(name="diff")
@_argument("old")
@_argument("new")
@_conversations
@options.libraries
@manner.json_output
def diff(old: str, new: str, others: str | None) -> int:
    """Show how the prompts of two templates differ, and what each keeps of the cache.

    For the conversations beside either of them, or those of --conversations; without any, for
    those that `template check` asks of every template. Exit code 1 if any differs.
    """
    library = options.open_library()
    sides = open_template(library, old), open_template(library, new)
    if others is not None:
        given = conversations(library, others)
    else:
        beside = {one.name: one for side in sides for one in side.conversations}
        given = tuple(beside[name] for name in sorted(beside))
    first, second = (_readable(checking.check(one, given)) for one in sides)
    before, after = first.prompts, second.prompts
    rows = [(name, before[name], after[name]) for name in before if name in after]
    different = report.differences((old, new), rows)
    count = f"{len(rows)} conversation{'s' * (len(rows) != 1)}"
    said = f"{len(different)} of {count} differ" if different else f"{count}: the same prompts"
    return answers.answer(
        report.diff_data(first, second, rows),
        "\n".join((*different, report.compared(first, second), said)),
        ok=not different,
    )


@command.command(name="patch")
@_argument("template")
@options.libraries
@manner.json_output
def patch(template: str) -> int:
    """Print a model's own template with its worst faults mended, and the rest of it as it was.

    For those who take no rewritten one: a few lines of Qwen3.5's, 3.6's and 3.8's own text are
    changed, each exactly where it stands, or nothing is. TEMPLATE is the model's folder or its file.
    """
    library = options.open_library()
    opened = open_template(library, template)
    found = official.patched(library, opened)
    if found.was_in:
        answers.note(f"{opened.path} has {found.patch} already")
    text = found.data.decode("utf-8", "surrogateescape")
    said = {"template": opened.name, "patch": found.patch, "was_in": found.was_in}
    return _print_text(said, "text", text)


def _print_text(said: dict[str, Any], key: str, text: str) -> int:
    """Print a text as the file that it is, or under a key of the answer."""
    if not manner.as_json():
        shown.file(text)
    return answers.answer({**said, key: text}, None)


def _in_tree(place: str, named: str) -> Template:
    """Read a template in a tree; an absolute path is one of an image."""
    folder = os.path.dirname(named.rstrip("/"))
    workspace = folder if os.path.isabs(named) else None
    return open_in_tree(options.open_tree(place, workspace=workspace), named)


def _readable(found: checking.Checked) -> checking.Checked:
    if found.answer is None:
        raise NotRendered(found.findings[0].message)
    return found


def _asked(template: Template, messages: str) -> Conversation:
    for one in template.conversations:
        if one.name == messages:
            return one
    try:
        with named_files.opened(messages) as file:
            raw = file.read()
    except UsageError as error:
        beside = " and no conversation beside the template" if template.conversations else ""
        raise UsageError(
            f"{error.message}{beside}", hint=f"vllm-mods template render {template.name} FILE"
        ) from error
    return conversation.request(raw, "stdin" if messages == "-" else messages)


def _kwargs(text: str | None) -> dict[str, Any]:
    example = """--chat-template-kwargs '{"enable_thinking": false}'"""
    try:
        read = json_of(text) if text is not None else {}
    except ValueError as error:
        raise UsageError(f"--chat-template-kwargs: not JSON: {error}", hint=example) from error
    if not isinstance(read, dict):
        raise UsageError("--chat-template-kwargs: expected an object", hint=example)
    return read
