"""Which content format a release of vLLM detects in a chat template.

vLLM hands a message's content over as text (``string``) or as a list of parts (``openai``), and finds
out which from the template's syntax tree: a template that loops over a message's content wants parts
(``_detect_content_format`` in ``vllm/renderers/hf.py``). What counts as such a loop has changed
three times since 0.15. The rules here are made anew after what those functions do; a test compares the two.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from jinja2 import nodes

from vllm_mods.templates.conversation import OPENAI, STRING


class FormatRules(NamedTuple):
    """What counts as a loop over content, from the release ``since`` on."""

    since: str
    by_name: bool = False
    """A loop over any variable that is called ``content``."""
    macros: bool = False
    """A macro's loop over the parameter that it gets content by; not one over just the name."""
    namespaces: bool = False
    """Messages are followed into attributes of namespaces."""


RULES = (
    FormatRules("0.15"),
    FormatRules("0.22", by_name=True),
    FormatRules("0.30", by_name=True, macros=True),
    FormatRules("0.33", by_name=True, macros=True, namespaces=True),
)


def detect_formats(tree: nodes.Template) -> tuple[tuple[str, str], ...]:
    """Return what releases take a template for: ``(release, format)`` from each on where it is another."""
    changes: list[tuple[str, str]] = []
    for rules in RULES:
        now = content_format(tree, rules)
        if not changes or changes[-1][1] != now:
            changes.append((rules.since, now))
    return tuple(changes)


def content_format(tree: nodes.Template, rules: FormatRules) -> str:
    """Return ``openai`` if a loop goes over a message's content, else ``string``."""
    try:
        loop = next(_loops_over_content(tree, rules), None)
    except _TooMuchError:
        loop = None  # an assertion fails there, and the default is taken
    return STRING if loop is None else OPENAI


class _TooMuchError(Exception):
    """Something is unpacked into several names, which the releases' own functions do not expect."""


def _loops_over_content(tree: nodes.Template, rules: FormatRules) -> Iterator[nodes.For]:
    messages = _names_of_messages(tree, rules)
    loops = list(tree.find_all(nodes.For))
    items = {_loop_variable(loop) for loop in loops if _path(_unwrap(loop.iter), rules) in messages}

    def is_content(node: nodes.Node) -> bool:
        inner = _unwrap(node)
        if isinstance(inner, nodes.Getitem) and isinstance(inner.arg, nodes.Const):
            key = inner.arg.value
        elif isinstance(inner, nodes.Getattr):
            key = inner.attr
        else:
            return False
        return bool(key == "content") and _path(inner.node, rules) in items

    in_macros: dict[int, set[str]] = {}
    for macro in tree.find_all(nodes.Macro) if rules.macros else ():
        filled = _content_parameters(tree, macro, is_content)
        for loop in macro.find_all(nodes.For):
            in_macros[id(loop)] = filled or in_macros.get(id(loop), set())
    for loop in loops:
        name = loop.iter.name if isinstance(loop.iter, nodes.Name) else None
        by_name = rules.by_name and id(loop) not in in_macros and name == "content"
        if is_content(loop.iter) or name in in_macros.get(id(loop), ()) or by_name:
            _loop_variable(loop)
            yield loop


def _content_parameters(
    tree: nodes.Template, macro: nodes.Macro, is_content: Callable[[nodes.Node], bool]
) -> set[str]:
    """Return the parameters of a macro that a call fills with a message's content."""
    names = [argument.name for argument in macro.args]
    filled: set[str] = set()
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and call.node.name == macro.name:
            given = [*zip(names, call.args, strict=False)]
            given += [(one.key, one.value) for one in call.kwargs if one.key in names]
            filled |= {name for name, value in given if is_content(value)}
    return filled


def _names_of_messages(tree: nodes.Template, rules: FormatRules) -> set[str]:
    """Return ``messages`` and whatever all or some of them are assigned to."""
    assignments = list(tree.find_all(nodes.Assign))
    names, pending = {"messages"}, ["messages"]
    while pending:
        name = pending.pop()
        for assignment in assignments:
            new = set(_aliases(assignment, name, rules)) - names
            names |= new
            pending += sorted(new)
    return names


def _aliases(assign: nodes.Assign, name: str, rules: FormatRules) -> Iterator[str]:
    """Return what an assignment gives the value of ``name`` to."""
    target, value = assign.target, assign.node
    if _path(_unwrap(value), rules) == name:
        if isinstance(target, nodes.Name):
            yield target.name
        elif not rules.namespaces:
            raise _TooMuchError
        elif isinstance(target, nodes.NSRef):
            yield f"{target.name}.{target.attr}"
    elif rules.namespaces and isinstance(target, nodes.Name) and isinstance(value, nodes.Call):
        is_namespace = isinstance(value.node, nodes.Name) and value.node.name == "namespace"
        for keyword in value.kwargs if is_namespace else ():
            if _path(_unwrap(keyword.value), rules) == name:
                yield f"{target.name}.{keyword.key}"


def _loop_variable(loop: nodes.For) -> str:
    if not isinstance(loop.target, nodes.Name):
        raise _TooMuchError
    return loop.target.name


def _unwrap(node: nodes.Node) -> nodes.Node:
    """Take off filters, tests and slices: what is left are the same elements."""
    is_slice = isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    inner = getattr(node, "node", None)
    if inner is not None and (is_slice or isinstance(node, nodes.Filter | nodes.Test)):
        return _unwrap(inner)
    return node


def _path(node: nodes.Node, rules: FormatRules) -> str | None:
    """Return the name that is read, dotted for an attribute of a namespace."""
    if isinstance(node, nodes.Name):
        return node.name if node.ctx == "load" else None
    if rules.namespaces and isinstance(node, nodes.Getattr) and (base := _path(node.node, rules)):
        return f"{base}.{node.attr}"
    return None
