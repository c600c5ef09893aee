"""Elements of the brackets of one statement, of which two sides changed different ones. Pure.

An element has a key as a statement has: a keyword argument its name, an entry of a dict its key, a parameter
its name, any other its text. Each is merged with its namesake; words outside of brackets are never merged.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vllm_mods.formats.syntax_tree import with_defaults
from vllm_mods.porting import layout
from vllm_mods.porting.layout import BothChangedError, Side, Splice

_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


class _Element(NamedTuple):
    """An element from ``first`` to ``last``; ``value`` is what may be merged in it."""

    key: str
    first: ast.AST
    last: ast.AST
    value: ast.AST | None = None

    @property
    def dump(self) -> str:
        return f"{_dump(self.first)} {_dump(self.last)}"


_Bracket = dict[str, _Element]


class _Pair(NamedTuple):
    """The mod's statement, and the target's, whose text is edited."""

    mine: Side
    target: Side
    back: bool


def merge(base: Side, ours: Side, theirs: Side, *, back: bool) -> bytes:
    """Do to the target's statement what the mod does to the elements of its brackets.

    With ``back`` nothing is asked of the neighbours of what is added: it has gone in before.
    Raises ``BothChangedError`` where both sides changed one element, or anything else, or if a comment would be lost.
    """
    pair = _Pair(ours, theirs, back)
    merged = layout.edit_text(theirs, _node(base.node, ours.node, theirs.node, pair))
    b, o, t, m = (layout.comments(one) for one in (base.text, ours.text, theirs.text, merged))
    if m - t != o - b or t - m != b - o:
        raise BothChangedError
    return merged


def _dump(node: object) -> str:
    return ast.dump(node) if isinstance(node, ast.AST) else repr(node)


def _node(base: ast.AST, ours: ast.AST, theirs: ast.AST, pair: _Pair) -> Iterator[Splice]:
    """Yield the edits of the target's text for what the mod changed within a node."""
    before, after, now = map(_dump, (base, ours, theirs))
    if after in {before, now}:
        return
    if now == before and isinstance(theirs, ast.expr):
        spans = pair.target.span(theirs, theirs), pair.mine.span(ours, ours)
        yield layout.replace(pair.target, spans[0], pair.mine, spans[1])
        return
    if type(base) is not type(ours) or type(base) is not type(theirs):
        raise BothChangedError
    names, brackets = zip(*map(_bracket_of, (base, ours, theirs)), strict=True)
    if len(set(names)) > 1:
        raise BothChangedError
    within = len(set(map(_dumps, brackets))) > 1
    beside = [
        sides
        for sides in _beside(*(list(_children(one)) for one in (base, ours, theirs)))
        if len(set(map(_dump, sides))) > 1
    ]
    if len(beside) + within > 1 and not isinstance(base, _FUNCTION):
        raise BothChangedError  # as in an expression: nothing says that both go together
    for old, new, other in beside:
        if not all(isinstance(one, ast.AST) for one in (old, new, other)):
            if _dump(new) in {_dump(old), _dump(other)}:
                continue
            raise BothChangedError
        yield from _node(old, new, other, pair)  # type: ignore[arg-type]
    if within:
        b, o, t = brackets
        yield from _bracket(b, o, t, pair)


def _dumps(bracket: _Bracket) -> tuple[tuple[str, str], ...]:
    return tuple((key, one.dump) for key, one in bracket.items())


def _beside(*sides: list[object]) -> Iterator[tuple[object, object, object]]:
    if len({len(side) for side in sides}) > 1:
        raise BothChangedError
    yield from zip(*sides, strict=True)


def _children(node: ast.AST) -> Iterator[object]:
    """Yield what a node holds beside its brackets and its body."""
    bracket, _ = _bracket_of(node)
    for name, value in ast.iter_fields(node):
        if name == bracket or (isinstance(node, ast.stmt) and name == "body"):
            continue
        if (name, type(node)) in {("keywords", ast.Call), ("values", ast.Dict)}:
            continue
        yield from value if isinstance(value, list) else [value]


def _bracket_of(node: ast.AST) -> tuple[str, _Bracket]:
    """Return the field that holds a node's bracket, and its elements by key. Raises ``BothChangedError`` for two of one key."""
    field, items = "", list[_Element]()
    if isinstance(node, ast.Call):
        field = "args"
        items = [
            *(_Element(f"{n}", one, one, one) for n, one in enumerate(node.args)),
            *(_Element(one.arg or f"**{_dump(one)}", one, one, one.value) for one in node.keywords),
        ]
    elif isinstance(node, ast.Import | ast.ImportFrom):
        field, items = "names", [_Element(_dump(one), one, one) for one in node.names]
    elif isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        if None in node.keys:
            raise BothChangedError  # what is unpacked may have any key
        field, items = "keys", [_Element(_dump(key), key or one, one, one) for key, one in pairs]
    elif isinstance(node, ast.List | ast.Set):
        field, items = "elts", [_Element(_dump(one), one, one) for one in node.elts]
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        field, items = "slice", [_Element(_dump(one), one, one) for one in node.slice.elts]
    elif isinstance(node, _FUNCTION):
        field, items = "args", list(_parameters(node.args))
    bracket = {one.key: one for one in items}
    if len(bracket) < len(items):
        raise BothChangedError
    return field, bracket


def _parameters(node: ast.arguments) -> Iterator[_Element]:
    for param, default in with_defaults(node):
        yield _Element(param.arg, param, default or param)
    if node.vararg is not None:
        yield _Element(f"*{node.vararg.arg}", node.vararg, node.vararg)
    for param, default in zip(node.kwonlyargs, node.kw_defaults, strict=True):
        yield _Element(f"* {param.arg}", param, default or param)
    if node.kwarg is not None:
        yield _Element(f"**{node.kwarg.arg}", node.kwarg, node.kwarg)


def _bracket(base: _Bracket, ours: _Bracket, theirs: _Bracket, pair: _Pair) -> Iterator[Splice]:
    """Yield the edits for what the mod adds, takes out and changes in a bracket."""
    layout.check_order(base, ours, theirs)
    _check_places(base, ours, theirs)
    order = list(theirs)
    spans = {key: pair.target.span(one.first, one.last) for key, one in theirs.items()}
    for key, old in base.items():
        new, now = ours.get(key), theirs.get(key)
        if new is not None and now is not None:
            yield from _element(old, new, now, pair)
        elif any(kept is not None and kept.dump != old.dump for kept in (new, now)):
            raise BothChangedError  # one took out what the other changed
        elif now is not None:
            n = order.index(key)
            beside = [spans[order[k]] if 0 <= k < len(order) else None for k in (n - 1, n + 1)]
            yield layout.remove(pair.target, spans[key], *beside)
    wanted = (key for key in ours if key in base or key not in theirs)
    for before, behind, keys in layout.added(base, wanted):
        group = [ours[key] for key in keys]
        after = _anchor(base, order, (before, behind), group, back=pair.back)
        at = spans[after] if after is not None else None
        first = spans[order[0]] if order else None
        new_spans = [pair.mine.span(one.first, one.last) for one in group]
        yield from layout.insert(pair.target, at, first, pair.mine, new_spans)


def _check_places(base: _Bracket, ours: _Bracket, theirs: _Bracket) -> None:
    """Raise ``BothChangedError`` if both sides change positional elements, unless both change the same one."""
    sides = [
        {k: one.dump for k, one in side.items() if k.isdigit()} for side in (base, ours, theirs)
    ]
    mine, their = ({k for k in sides[0] if side.get(k) != sides[0][k]} for side in sides[1:])
    if sides[1].keys() != sides[0].keys() or (
        mine and (their or len(sides[2]) != len(sides[0])) and (mine != their or len(mine) > 1)
    ):
        raise BothChangedError


def _element(old: _Element, new: _Element, now: _Element, pair: _Pair) -> Iterator[Splice]:
    """Merge an element that all three have."""
    if new.dump in {old.dump, now.dump}:
        return
    if now.dump == old.dump:
        spans = pair.target.span(now.first, now.last), pair.mine.span(new.first, new.last)
        yield layout.replace(pair.target, spans[0], pair.mine, spans[1])
    elif old.value is not None and new.value is not None and now.value is not None:
        yield from _node(old.value, new.value, now.value, pair)
    else:
        raise BothChangedError


def _anchor(
    base: _Bracket,
    order: list[str],
    neighbours: tuple[str | None, str | None],
    group: Sequence[_Element],
    *,
    back: bool,
) -> str | None:
    """Find the element of the target that a group belongs behind, between two old neighbours; None for before its first."""
    before, after = neighbours
    named = group[0].value is not None or not isinstance(group[0].first, ast.expr)
    if not back and not named and not {before, after} & {*order}:
        raise BothChangedError  # both neighbours are gone
    if before is None or before in order:
        at = order.index(before) if before is not None else -1
        end = next((n for n in range(at + 1, len(order)) if order[n] in base), len(order))
    elif after is None or after in order:
        end = order.index(after) if after is not None else len(order)
    else:
        raise BothChangedError
    between = end and order[end - 1] not in base
    if between and any(isinstance(one.first, ast.arg) and "*" not in one.key for one in group):
        raise BothChangedError  # parameters that are told by their place
    return order[end - 1] if end else None
