"""What the mod adds to a list, dict, call, import or `Literal` of a statement that the target changed too. Pure."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from vllm_mods.porting.suites import BothChangedError, KeyedStatement, added, check_order

_BEHIND = re.compile(rb"[ \t]*(,?)[ \t]*(?:#[^\n]*)?(\r?\n)")

_Element = tuple[Any, ...]
"""The nodes of an element, such as the key and the value of a dict."""


def add(base: KeyedStatement, ours: KeyedStatement, theirs: KeyedStatement, *, back: bool) -> bytes:
    """Return the target's statement with the elements that the mod adds to one bracket, beside the same neighbour.

    Elements that the target added there stand before them. With ``back`` they may stand at the end without one.
    Raises ``BothChangedError`` where the mod does anything else to the statement, where both neighbours are gone, and
    for an element of several lines.
    """
    nodes = _find(base.node, ours.node, theirs.node)
    old, mine, now = ({_key(element): element for element in _elements(node)} for node in nodes)
    check_order(old, mine, now)
    (before, after, new), *more = added(old, mine)
    if more or not now or not now.keys().isdisjoint(new) or _comments(ours) != _comments(base):
        raise BothChangedError
    texts = [b"".join(ours.text)[slice(*_span(ours, mine[key]))] for key in new]
    if any(b"\n" in text for text in texts):
        raise BothChangedError
    order = list(now)
    if before is None or before in now:
        at = 0 if before is None else order.index(before) + 1
        while at < len(order) and order[at] not in old:
            at += 1
    elif after in now:
        at = order.index(after)
    elif back:
        at = len(order)
    else:
        raise BothChangedError
    return _insert(theirs, now[order[max(at - 1, 0)]], texts, behind=at > 0)


def _find(*place: ast.AST) -> tuple[ast.AST, ...]:
    """Find the bracket to which the mod adds, in the base, the mod and the target. Raises ``BothChangedError`` where it changes anything else.

    What stands beside elements on the way there has to be in the target as it was: what is called, say.
    """
    if len({type(node) for node in place}) > 1:
        raise BothChangedError
    old, mine, now = (_children(node) for node in place)
    changed = [key for key in old if mine.get(key, ("",))[0] != old[key][0]]
    beside = [key for key in old if isinstance(key, int) and key not in changed]
    if any(now.get(key) is None or now[key][0] != old[key][0] for key in beside):
        raise BothChangedError
    if mine.keys() != old.keys():
        if changed or not all(isinstance(key, tuple) for key in mine.keys() - old.keys()):
            raise BothChangedError
        return place
    if len(changed) != 1 or changed[0] not in now:
        raise BothChangedError
    return _find(*(children[changed[0]][1] for children in (old, mine, now)))


def _children(node: ast.AST) -> dict[object, tuple[str, ast.AST]]:
    """Return what is in a node, as text and as a node: elements of its bracket by their keys, all else by numbers."""
    elements = _elements(node)
    keyed: dict[object, tuple[str, ast.AST]]
    keyed = {_key(element): (ast.dump(element[-1]), element[-1]) for element in elements}
    if len(keyed) < len(elements):
        raise BothChangedError  # two of one key
    held = [part for element in elements for part in element]
    if elements and isinstance(node, ast.Subscript):
        held.append(node.slice)
    others = [child for child in ast.iter_child_nodes(node) if child not in held]
    plain = [value for _, value in ast.iter_fields(node) if not isinstance(value, ast.AST | list)]
    numbered = [(repr(plain), ast.Pass()), *((ast.dump(child), child) for child in others)]
    return {**keyed, **dict(enumerate(numbered))}


def _elements(node: ast.AST) -> Sequence[_Element]:
    match node:
        case ast.Call(keywords=rows) | ast.Import(names=rows) | ast.ImportFrom(names=rows):
            return [(row,) for row in rows]
        case ast.List(elts=rows) | ast.Set(elts=rows) | ast.Subscript(slice=ast.Tuple(elts=rows)):
            return [(row,) for row in rows]
        case ast.Dict() if None not in node.keys:  # what is unpacked may have any key
            return list(zip(node.keys, node.values, strict=True))
    return []


def _key(element: _Element) -> tuple[str, ...]:
    """Return what tells an element from others: a keyword's name, a dict's key, the text of any other."""
    first = element[0]
    return (first.arg if isinstance(first, ast.keyword) and first.arg else ast.dump(first),)


def _comments(statement: KeyedStatement) -> list[bytes]:
    """Return what stands behind each first `#` of a line, in a string too."""
    return sorted(line.partition(b"#")[2] for line in statement.text if b"#" in line)


def _span(statement: KeyedStatement, element: _Element) -> tuple[int, int]:
    """Return from where to where an element stands in a statement's text, in bytes."""
    first, last = element[0], element[-1]
    above = (statement.text[: line - statement.start] for line in (first.lineno, last.end_lineno))
    start, end = (sum(map(len, lines)) for lines in above)
    return start + first.col_offset, end + last.end_col_offset


def _insert(
    statement: KeyedStatement, neighbour: _Element, new: Sequence[bytes], *, behind: bool
) -> bytes:
    """Put elements beside one: on lines of their own if it has one, else in its line."""
    text = b"".join(statement.text)
    start, end = _span(statement, neighbour)
    line = text.rfind(b"\n", 0, start) + 1
    tail = _BEHIND.match(text, end)
    if tail is None or text[line:start].strip():
        if behind:
            return text[:end] + b"".join(b", " + element for element in new) + text[end:]
        return text[:start] + b"".join(element + b", " for element in new) + text[start:]
    rows = b"".join(text[line:start] + element + b"," + tail[2] for element in new)
    if not behind:
        above = statement.text[neighbour[0].lineno - statement.start - 1]
        if above.lstrip().startswith(b"#"):
            raise BothChangedError  # a comment on the element below it
        return text[:line] + rows + text[line:]
    comma = b"" if tail[1] else b","
    return text[:end] + comma + text[end : tail.end()] + rows + text[tail.end() :]
