"""A recipe's YAML with what PyYAML would drop: lines, comments, keys that are there twice.

PyYAML is imported in this module only. It is also what the launchers of recipes read them with, so a
value here is the value there (``1e3`` is text, ``on`` is true).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import yaml

from vllm_mods.base import limits

# More than this is no recipe: a few aliases can stand for billions of values.
_ENDLESS = 1 << 30
_BEYOND = r"\\U(?!000|0010)[0-9A-Fa-f]{8}"
_HALF = "[\ud800-\udfff]"


class Comment(NamedTuple):
    """A comment from its ``#`` on; ``at`` is the key path that it stands before or beside."""

    line: int
    at: str
    text: str


class Document(NamedTuple):
    """A mapping, the 1-based line of each key path (``defaults.port``, ``mods[0]``), and comments.

    ``blocks`` are the paths whose text stands as it is, from the line behind the key's on.
    """

    value: dict[str, Any]
    lines: dict[str, int]
    blocks: frozenset[str]
    comments: tuple[Comment, ...]


class YamlFault(NamedTuple):
    """What is wrong with the text, and in which 1-based line."""

    line: int
    why: str
    at: str = ""


class YamlError(ValueError):
    """Text that is no YAML, or not a mapping of plain values; ``faults`` has all that was found."""

    def __init__(self, faults: tuple[YamlFault, ...]) -> None:
        super().__init__("; ".join(fault.why for fault in faults))
        self.faults = faults


def load(text: str) -> Document:
    """Read a mapping. Raises ``YamlError``."""
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        tokens = tuple(yaml.scan(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = _line(text, mark.index) if mark else 1
        fault = YamlFault(line, f"not YAML: {error.problem or error.context}")
        raise YamlError((fault,)) from error
    except yaml.reader.ReaderError as error:
        line = _line(text, error.position)
        raise YamlError((YamlFault(line, f"not YAML: {error.reason}"),)) from error
    except RecursionError as error:
        raise YamlError((YamlFault(1, "not a recipe: nested too deeply"),)) from error
    except (ValueError, OverflowError) as error:  # of `chr`, which knows nothing of lines
        found = re.search(_BEYOND, text)
        line = _line(text, found.start()) if found else 1
        raise YamlError((YamlFault(line, "not YAML: there is no such character"),)) from error
    half = "half of a character, which no text can hold"
    halves = [
        YamlFault(_line(text, token.start_mark.index), half)
        for token in tokens
        if isinstance(token, yaml.ScalarToken) and re.search(_HALF, token.value)
    ]
    if halves:
        raise YamlError(tuple(halves))
    if not isinstance(node, yaml.MappingNode):
        raise YamlError((YamlFault(1, "this is not a mapping of keys to values"),))
    lines, faults = _walk(text, node)
    if faults:
        raise YamlError(tuple(faults))
    value = yaml.safe_load(text)
    styles = ((key.value, getattr(inner, "style", None)) for key, inner in node.value)
    blocks = frozenset(key for key, style in styles if style == "|")
    return Document(value, lines, blocks, tuple(_comments(text, tokens, lines)))


def scalar(value: object) -> str:
    """Write a value on one line, quoted only where it has to be."""
    text = _dumped(value)
    # PyYAML may break lines within text that has line ends, of which it knows more than one
    return text if len(text.splitlines()) == 1 else _dumped(value, style='"', allow_unicode=False)


def _dumped(value: object, *, style: str | None = None, allow_unicode: bool = True) -> str:
    text: str = yaml.safe_dump(
        value,
        default_flow_style=True,
        default_style=style,
        allow_unicode=allow_unicode,
        sort_keys=False,
        width=_ENDLESS,
    )
    return text.removesuffix("\n").removesuffix("\n...")


def block(key: str, text: str) -> str:
    """Write text under a key as lines of their own if YAML can hold it so, else quoted."""
    body = text.rstrip("\n")
    ends = len(text) - len(body)
    chomp = "-" if ends == 0 else "" if ends == 1 else "+"
    indent = "2" if text[:1] in {" ", "\n"} else ""
    lines = [f"  {line}" if line else "" for line in body.split("\n")]
    made = f"{key}: |{indent}{chomp}\n" + "\n".join(lines) + "\n" * max(ends, 1)
    try:
        if yaml.safe_load(made) == {key: text}:
            return made.removesuffix("\n")
    except yaml.YAMLError:
        pass  # there are characters in it that only a quoted text can hold
    return f"{key}: {scalar(text)}"


def _line(text: str, index: int) -> int:
    """Count lines as editors do; PyYAML's own count takes other characters for line ends too."""
    return text.count("\n", 0, index) + 1


def _walk(text: str, root: yaml.MappingNode) -> tuple[dict[str, int], list[YamlFault]]:
    """Find the line of every key path, and what a recipe cannot hold."""
    lines: dict[str, int] = {}
    faults: list[YamlFault] = []
    pending: list[tuple[str, yaml.Node, int]] = [("", root, 0)]
    count = 0
    while pending:
        at, node, depth = pending.pop()
        count += 1
        if depth > limits.NESTING:
            return lines, [YamlFault(_line(text, node.start_mark.index), "nested too deeply")]
        if count > limits.RECIPE_VALUES:
            return lines, [YamlFault(1, f"not a recipe: it has more than {limits.RECIPE_VALUES}")]
        if (why := _unreadable(node)) is not None:
            faults.append(YamlFault(_line(text, node.start_mark.index), why, at))
        elif isinstance(node, yaml.SequenceNode):
            inside = [(f"{at}[{i}]", inner) for i, inner in enumerate(node.value)]
            lines.update((path, _line(text, inner.start_mark.index)) for path, inner in inside)
            pending += [(path, inner, depth + 1) for path, inner in inside]
        elif isinstance(node, yaml.MappingNode):
            keys = _keys(text, at, node, lines, faults)
            pending += [(path, inner, depth + 1) for path, inner in keys]
    return lines, sorted(faults)


def _keys(
    text: str, at: str, node: yaml.MappingNode, lines: dict[str, int], faults: list[YamlFault]
) -> Iterator[tuple[str, yaml.Node]]:
    first: dict[str, int] = {}
    for key, inner in node.value:
        here = _line(text, key.start_mark.index)
        if key.tag == "tag:yaml.org,2002:merge":
            faults.append(YamlFault(here, "write out what `<<` stands for", at))
        elif key.tag != "tag:yaml.org,2002:str":
            shown = repr(key.value) if isinstance(key, yaml.ScalarNode) else f"a {key.id}"
            faults.append(YamlFault(here, f"a key must be text; quote it: {shown}", at))
        else:
            path = f"{at}.{key.value}" if at else key.value
            if key.value in first:
                why = f"the key is in line {first[key.value]} already"
                faults.append(YamlFault(here, why, path))
            first.setdefault(key.value, here)
            lines[path] = here
            yield path, inner


_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    yaml.MappingNode: ("map",),
    yaml.SequenceNode: ("seq",),
    yaml.ScalarNode: ("str", "int", "float", "bool", "null", "timestamp"),
}


def _unreadable(node: yaml.Node) -> str | None:
    """Return why a node is no plain value: another tag, or a date such as 2026-13-45."""
    kind = node.tag.removeprefix(_TAG)
    if not node.tag.startswith(_TAG) or kind not in _PLAIN[type(node)]:
        return f"{node.tag} is no plain value"
    if not isinstance(node, yaml.ScalarNode):
        return None
    loader = yaml.SafeLoader("")
    try:
        loader.construct_object(node)
    except ValueError as error:
        return f"{node.value}: {error}; quote it if it is text"
    except (LookupError, AttributeError):  # a tag that is written out, before what is none of it
        return f"{node.value}: no {kind}; quote it if it is text"
    finally:
        loader.dispose()
    return None


def _comments(text: str, tokens: Iterable[yaml.Token], lines: dict[str, int]) -> Iterator[Comment]:
    """Yield what stands between the tokens, and behind the `|` of a block."""
    places = sorted((line, path) for path, line in lines.items())
    last = 0
    for token in tokens:
        gap = text[last : token.start_mark.index]
        yield from _in_gap(gap, _line(text, last), places)
        last = max(last, token.end_mark.index)
        if isinstance(token, yaml.ScalarToken) and token.style in {"|", ">"}:
            header = text[token.start_mark.index : last].split("\n", 1)[0]
            yield from _in_gap(header, _line(text, token.start_mark.index), places)
    yield from _in_gap(text[last:], _line(text, last), places)


def _in_gap(gap: str, line: int, places: list[tuple[int, str]]) -> Iterator[Comment]:
    for i, part in enumerate(gap.split("\n")):
        found = part.find("#")
        if found >= 0:
            at = next((path for there, path in places if there >= line + i), "")
            yield Comment(line + i, at, part[found:].rstrip())
