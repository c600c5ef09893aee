"""A recipe's YAML with the line of each key, and which keys are there twice.

PyYAML is imported in this room and for what starts containers. It is also what the launchers of recipes read
them with, so a value here is the value there (``1e3`` is text, ``on`` is true).
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from vllm_mods.base import limits

# More than this is no recipe: a few aliases can stand for billions of values.
_ENDLESS = 1 << 30
_HALF = "[\ud800-\udfff]"
_PLAIN = {
    yaml.MappingNode: {"map"},
    yaml.SequenceNode: {"seq"},
    yaml.ScalarNode: {"str", "int", "float", "bool", "null", "timestamp"},
}


class Document(NamedTuple):
    """A mapping, and the 1-based line of each key path (``defaults.port``, ``mods[0]``).

    ``overridden`` has the line of a key that is there again further down: there PyYAML takes the value from.
    """

    value: dict[str, Any]
    lines: dict[str, int]
    overridden: Mapping[str, int] = {}


class YamlError(ValueError):
    """Text that is no YAML, or not a mapping of plain values."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(f"line {line}: {why}")


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a block where YAML can hold it so."""


_TEXT = "tag:yaml.org,2002:str"
_Dumper.add_representer(
    str, lambda own, text: own.represent_scalar(_TEXT, text, style="|" if "\n" in text else None)
)


def load(text: str) -> Document:
    """Read a mapping. Raises ``YamlError``."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode):
            raise YamlError(1, "this is not a mapping of keys to values")  # noqa: TRY301
        overridden: dict[str, int] = {}
        lines = dict(_lines(text, root, overridden))
        value = yaml.safe_load(text)
    except YamlError:
        raise
    except RecursionError as error:
        raise YamlError(1, "not a recipe: nested too deeply") from error
    except (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, ValueError) as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        at = mark.index if mark else getattr(error, "position", 0)
        why = getattr(error, "problem", None) or getattr(error, "reason", None)
        why = why or "it has a date or another value that does not exist; put text in quotes"
        raise YamlError(_line(text, at), f"not YAML: {why}") from error
    return Document(value, lines, overridden)


def dump(value: Mapping[str, Any]) -> str:
    """Write a mapping, its keys in their order."""
    text: str = yaml.dump(
        dict(value), Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_ENDLESS
    )
    return text


def _line(text: str, index: int) -> int:
    """Count lines as editors do; PyYAML's own count takes other characters for line ends too."""
    return text.count("\n", 0, index) + 1


def _lines(
    text: str, root: yaml.MappingNode, overridden: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield each key path with its line, and note those that are overridden. Raises ``YamlError`` for what a recipe cannot hold."""
    pending: list[tuple[str, yaml.Node, int]] = [("", root, 0)]
    count = 0
    while pending:
        at, node, depth = pending.pop()
        count += 1
        line = _line(text, node.start_mark.index)
        if depth > limits.NESTING:
            raise YamlError(line, "nested too deeply")
        if count > limits.RECIPE_VALUES:
            raise YamlError(1, f"not a recipe: it has more than {limits.RECIPE_VALUES}")
        if node.tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN[type(node)]:
            raise YamlError(line, f"{node.tag} is not a plain value")
        if isinstance(node, yaml.ScalarNode) and re.search(_HALF, node.value):
            raise YamlError(line, "half of a surrogate pair, which text cannot contain")
        for path, inner, inner_line in _inside(text, at, node, overridden):
            yield path, inner_line
            pending.append((path, inner, depth + 1))


def _inside(
    text: str, at: str, node: yaml.Node, overridden: dict[str, int]
) -> Iterator[tuple[str, yaml.Node, int]]:
    """Yield each entry of a list, and each key of a mapping, as a path, with its value and its line."""
    if isinstance(node, yaml.SequenceNode):
        for i, inner in enumerate(node.value):
            yield f"{at}[{i}]", inner, _line(text, inner.start_mark.index)
    if not isinstance(node, yaml.MappingNode):
        return
    entries: dict[str, tuple[yaml.Node, int]] = {}
    for key, inner in node.value:
        line = _line(text, key.start_mark.index)
        if key.tag != _TEXT or not isinstance(key.value, str):
            shown = key.value if isinstance(key, yaml.ScalarNode) else f"a {key.id}"
            raise YamlError(line, f"a key must be text, and quoted if it looks like more: {shown}")
        path = f"{at}.{key.value}" if at else key.value
        if path in entries:
            overridden[path] = entries[path][1]
        entries[path] = inner, line
    yield from ((path, *entry) for path, entry in entries.items())
