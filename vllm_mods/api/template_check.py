"""Chat templates: whether they make the prompts that they should, what they make, and how two differ."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import load_readable
from vllm_mods.base.errors import ManifestError, NotRendered, UsageError
from vllm_mods.library.catalog import Library
from vllm_mods.templates import check as checking, client_table, rendering
from vllm_mods.templates.conversation import Conversation
from vllm_mods.templates.parser_process import open_release
from vllm_mods.templates.source import Template, conversations, open_in_tree, open_template

_IN_TREE = "vllm-mods template check examples/tool_chat_template_hermes.jinja --in sdist:FILE"


def template_check(
    library: Library,
    names: Sequence[str] = (),
    *,
    conversations_of: str | None = None,
    parsers_of: str | None = None,
    parsers: tuple[str | None, str | None] = (None, None),
    inside: str | None = None,
    access: Access | None = None,
) -> tuple[checking.TemplateChecked, ...]:
    """Render chat templates, as vLLM does and fenced in, and check what comes out.

    ``names`` are templates of the library (without any, all of them) or files; with ``inside``, a tree as
    ``open_tree`` takes it, paths in there. ``conversations_of`` is a template or a folder whose conversations
    are rendered, without it those beside each template. ``parsers_of`` is a tree of which the parsers read
    answers back: those for tool calls and for reasoning that ``parsers`` names, or all that are meant.

    Returns a ``TemplateChecked`` for each: ``ok``, and its findings. Raises ``UsageError`` for a template that
    there is not, ``ManifestError`` for what is wrong beside one.

    >>> begin = "{{ 'assistant: ' if add_generation_prompt }}"
    >>> turns = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}"
    >>> _ = Path("plain.jinja").write_text(turns + begin)
    >>> (checked,) = vm.template_check(vm.Library(), ["plain.jinja"])
    >>> checked.template.name, checked.ok
    ('plain.jinja', True)
    """
    access = access or Access()
    if inside is not None and not names:
        raise UsageError("--in TREE needs a TEMPLATE, a path in TREE", hint=_IN_TREE)
    others = None if conversations_of is None else conversations(library, conversations_of)
    templates = [
        open_template(library, name) if inside is None else _open_inside(inside, name, access)
        for name in names or library.template_names()
    ]
    release = None if parsers_of is None else open_release(access.open(parsers_of))
    asked = [(one, one.conversations if others is None else others) for one in templates]
    return tuple(checking.check(template, talks, release, parsers) for template, talks in asked)


def list_templates(library: Library) -> tuple[tuple[Template, ...], tuple[ManifestError, ...]]:
    """Return the chat templates of a library, and why others cannot be read."""
    templates, faults = load_readable(
        library.template_names(), lambda name: open_template(library, name)
    )
    return tuple(templates.values()), tuple(faults)


def template_clients(
    library: Library, names: Sequence[str] = ()
) -> dict[str, client_table.ClientTable]:
    """Return the table of clients of each template by its name, of all if none is named: it has the rows of its text alone.

    Raises ``UsageError`` for a template that there is not.
    """
    tables = {}
    for name in names or library.template_names():
        template = open_template(library, name)
        table = client_table.read(library, template)
        tables[template.name] = table._replace(rows=table.of(template.name, template.data))
    return tables


def _open_inside(place: str, name: str, access: Access) -> Template:
    """Read a template in a tree; an absolute path is one of an image."""
    folder = os.path.dirname(name.rstrip("/"))
    workspace = folder if os.path.isabs(name) else None
    return open_in_tree(access.open(place, workspace=workspace), name)


def render_template(
    template: Template, conversation: Conversation, kwargs: Mapping[str, Any]
) -> tuple[str, list[str]]:
    """Return the prompt that an opened template makes of a conversation, with more ``kwargs``.

    The second are those that it does not read, and vLLM drops. Raises ``NotRendered`` for one that makes none.
    """
    asked = conversation._replace(kwargs={**conversation.kwargs, **kwargs})
    answer = rendering.render(template, (asked,))
    (rendered,) = answer.rendered
    if rendered.prompt is None:
        raise NotRendered(f"{rendering.place(template.path, rendered.line)}: {rendered.error}")
    return rendered.prompt, sorted(asked.kwargs.keys() - set(answer.variables))


def compare_templates(
    library: Library, old: str, new: str, conversations_of: str | None = None
) -> tuple[checking.TemplateChecked, checking.TemplateChecked]:
    """Render the same conversations with two templates: those beside either, or of ``conversations_of``.

    Raises ``NotRendered`` for a template that cannot be read.
    """
    sides = open_template(library, old), open_template(library, new)
    if conversations_of is not None:
        cases = conversations(library, conversations_of)
    else:
        beside = {one.name: one for side in sides for one in side.conversations}
        cases = tuple(beside[name] for name in sorted(beside))
    first, second = (checking.check(side, cases) for side in sides)
    for checked in (first, second):
        if checked.answer is None:
            raise NotRendered(checked.findings[0].message)
    return first, second
