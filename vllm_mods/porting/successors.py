"""What has another name, or another place, since the base of a port, by upstream's own diff of its callers.

A name that the mod uses and the target has not got is followed where upstream's callers of the same thing show
exactly one other that was not there before, each in code that is the same but for it; nothing is guessed from
likeness of names. Only lines that the mod adds are edited, at the place of the name alone.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base.model import FileChange, Finding
from vllm_mods.base.tree import Tree
from vllm_mods.fit.attributes import missing
from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.infer import Inference
from vllm_mods.fit.lines import added_lines
from vllm_mods.fit.search import classes_in
from vllm_mods.fit.shapes import Class, Function, Kind, Parameter
from vllm_mods.fit.signatures import unbound
from vllm_mods.fit.symbols import Symbol, Thing
from vllm_mods.fit.walk import CodeScope, walk
from vllm_mods.fit.world import SummaryCache, World
from vllm_mods.formats import syntax_tree
from vllm_mods.porting import callers, imports
from vllm_mods.porting.callers import Caller, FailingLine, Worlds
from vllm_mods.porting.repair import NAMED, Repair


class _Definition(NamedTuple):
    """A function or class, as both trees can be asked for it; ``owner`` is the class of a method."""

    path: str
    owner: str
    name: str


class Renaming(NamedTuple):
    """A name at the end of a line's column ``end`` (in bytes) that is another one by now."""

    line: int
    end: int
    old: str
    new: str


def follow(
    cuts: Sequence[FileChange], findings: Sequence[Finding], base: Tree, target: Tree
) -> Repair:
    """Let what the mod adds follow what upstream renamed or moved.

    Raises ``TreeError`` for a tree that cannot be read.
    """
    cache = SummaryCache()
    now = World(target, {}, cache)
    sides = Worlds(
        World(base, {}, cache),
        now,
        World(target, {cut.path: cut.after for cut in cuts}, cache, dict(now.texts)),
    )
    done = [_file(sides, cut, findings) for cut in cuts]
    notes = dict.fromkeys(text for _, texts in done for text in texts)
    return Repair(tuple(cut for cut, _ in done), tuple(notes))


def _file(
    sides: Worlds, cut: FileChange, findings: Sequence[Finding]
) -> tuple[FileChange, tuple[str, ...]]:
    own = [one for one in findings if one.path == cut.path and one.line and one.level == "error"]
    tree = syntax_tree.module(cut.after) if cut.after is not None and own else None
    if tree is None or cut.after is None or not _is_utf8(cut.after):
        return cut, ()
    added = added_lines(cut.before, cut.after)
    repairs: list[str | Renaming | imports.Move] = []
    for finding in own:
        find = _FINDERS.get(finding.code)
        if find is not None and finding.line is not None and finding.line in added:
            repairs += find(sides, FailingLine(cut.path, tree, finding.line, added))
    data = _rename(cut.after, {one for one in repairs if isinstance(one, Renaming)})
    moves = [one for one in repairs if isinstance(one, imports.Move)]
    data = imports.move(data, moves, added)
    notes = tuple(one for one in repairs if isinstance(one, str))
    return cut._replace(after=data), notes if data != cut.after else ()


def _is_utf8(data: bytes) -> bool:
    """Tell whether columns in bytes are those of the file: it is UTF-8, without a mark at its beginning."""
    try:
        return syntax_tree.decoded(data).encode() == data
    except (SyntaxError, UnicodeDecodeError):
        return False


def _rename(data: bytes, edits: Iterable[Renaming]) -> bytes:
    """Put the other names in; where the old one does not stand, nothing is changed."""
    lines = data.splitlines(keepends=True)
    for edit in sorted(edits, reverse=True):
        row, old = lines[edit.line - 1], edit.old.encode()
        if row[edit.end - len(old) : edit.end] == old:
            lines[edit.line - 1] = row[: edit.end - len(old)] + edit.new.encode() + row[edit.end :]
    return b"".join(lines)


# --- members


def _members(sides: Worlds, spot: FailingLine) -> Iterator[str | Renaming]:
    """Rename what the mod reads on something of a class that has it under another name by now."""
    inference = Inference(sides.after, spot.path)
    read = [
        (site.node, _owner(inference, site.node, site.scope))
        for site in walk(spot.tree, spot.added)
        if isinstance(site.node, ast.Attribute) and site.node.end_lineno in spot.added
    ]
    for node, owner in read:
        new = _member(sides, owner, node.attr) if owner and node.end_lineno == spot.line else None
        if owner is None or new is None:
            continue
        yield f"{node.attr} of {owner.name} is {new[0]} by now, as {new[1]} has it"
        for other, its in read:
            if (other.attr, its) == (node.attr, owner):
                line, end = other.end_lineno or 0, other.end_col_offset or 0
                yield Renaming(line, end, node.attr, new[0])


def _owner(inference: Inference, node: ast.Attribute, scope: CodeScope) -> _Definition | None:
    """Return the class on which an attribute is read that it has not got."""
    things = inference.infer(node.value, scope)
    if len(things) != 1 or things[0].kind not in {"instance", "class", "super"}:
        return None
    absent = missing(inference.world, things[0], node.attr)
    return None if absent is None else _of_class(things[0].symbol)


def _of_class(symbol: Symbol) -> _Definition:
    return _Definition(symbol.path, "", symbol.cls.name)


def _member(sides: Worlds, owner: _Definition, old: str) -> tuple[str, str] | None:
    """Return what a class has in place of a member, and the file that shows it."""
    then, here = (_class(world, owner) for world in (sides.before, sides.now))
    if then is None or here is None:
        return None
    had, has = (
        attributes(world, lineage(world, one))[0]
        for world, one in ((sides.before, then), (sides.now, here))
    )
    if old not in had or old in has:
        return None
    shown_by: dict[str, str] = {}
    for caller in sides.callers(old, owner.path):
        used = _uses(sides, caller, owner, old)
        if not used:
            continue
        was, now = callers.pieces(caller.was), callers.pieces(caller.now)
        ways = {new: callers.shown(was, now, _reading(used, old, new)) for new in has - had}
        whole = {new: one for new, one in ways.items() if one.whole}
        if not whole:
            return None  # upstream does something else there, or with something else
        reads = {place for place, is_read in used.items() if is_read}
        shown_by |= {new: caller.path for new, one in whole.items() if one.proven & reads}
    if len(shown_by) != 1:
        return None
    ((new, path),) = shown_by.items()
    method, other = then.cls.methods.get(old), here.cls.methods.get(new)
    places = [Symbol(owner.path, one[-1]) for one in (method, other) if one]
    if len(places) == 1 or (
        places and not imports.alike(sides.before, places[0], sides.now, places[1])
    ):
        return None
    return new, path


def _uses(sides: Worlds, caller: Caller, owner: _Definition, old: str) -> dict[callers.Span, bool]:
    """Return where a caller uses a member of a class, and whether it reads it there."""
    inference = Inference(sides.before, caller.path)
    return {
        callers.span(node): isinstance(node.ctx, ast.Load)
        for node, scope in callers.sites(caller.was, ast.Attribute)
        if node.attr == old and _is_of(inference, node.value, scope, owner)
    }


def _reading(places: Collection[callers.Span], old: str, new: str) -> callers.Edit:
    """Return an edit that uses another member in some places."""

    def edit(piece: ast.AST) -> set[callers.Span]:
        nodes = [one for one in ast.walk(piece) if isinstance(one, ast.Attribute)]
        mine = [one for one in nodes if one.attr == old and callers.span(one) in places]
        for node in mine:
            node.attr = new
        return {callers.span(one) for one in mine}

    return edit


def _class(world: World, owner: _Definition) -> Symbol | None:
    classes = [one for _, one in classes_in(world, owner.path) if one.cls.name == owner.name]
    return classes[0] if len(classes) == 1 else None


def _is_of(inference: Inference, value: ast.expr, scope: CodeScope, owner: _Definition) -> bool:
    things = inference.infer(value, scope)
    return bool(things) and all(
        thing.kind in {"instance", "class", "super"}
        and owner in map(_of_class, lineage(inference.world, thing.symbol).classes)
        for thing in things
    )


# --- keywords


def _keywords(sides: Worlds, spot: FailingLine) -> Iterator[str | Renaming]:
    """Rename the keywords of calls to what takes them under another name by now."""
    inference = Inference(sides.after, spot.path)
    given = [
        (one, site.node.lineno, what)
        for site in walk(spot.tree, spot.added)
        if isinstance(site.node, ast.Call)
        and (what := _callee(inference, site.node, site.scope)) is not None
        for one in site.node.keywords
        if one.lineno in spot.added
    ]
    for keyword, line, what in given:
        old = keyword.arg
        new = _keyword(sides, what, old) if old is not None and line == spot.line else None
        if old is None or new is None:
            continue
        name = f"{what.owner}.{what.name}".lstrip(".")
        yield f"{old}= of {name} is {new[0]}= by now, as {new[1]} has it"
        for other, _, its in given:
            if (other.arg, its) == (old, what):
                end = other.col_offset + len(old.encode())
                yield Renaming(other.lineno, end, old, new[0])


def _callee(inference: Inference, node: ast.Call, scope: CodeScope) -> _Definition | None:
    things = inference.infer(node.func, scope)
    return _definition(things[0]) if len(things) == 1 else None


def _definition(thing: Thing) -> _Definition | None:
    if thing.kind == "class":
        return _of_class(thing.symbol)
    if thing.kind != "function":
        return None
    owner = thing.owner.cls.name if thing.owner is not None else ""
    return _Definition(thing.symbol.path, owner, thing.function.name)


def _parameters(world: World, what: _Definition) -> tuple[Parameter, ...]:
    """Return what a definition takes, nothing where there are several of it or any keyword does."""
    parameters: tuple[Parameter, ...] = ()
    if what.owner:
        owner = _class(world, what._replace(owner="", name=what.owner))
        methods = owner.cls.methods.get(what.name, ()) if owner is not None else ()
        parameters = unbound(methods[0]) if len(methods) == 1 else ()
    else:
        module = world.module(what.path)
        bindings = module.names.get(what.name, ()) if module is not None else ()
        if len(bindings) == 1 and isinstance(bindings[0], Function):
            parameters = bindings[0].parameters
        elif len(bindings) == 1 and isinstance(bindings[0], Class):
            parameters = constructor(world, Symbol(what.path, bindings[0])).parameters or ()
    return () if any(one.kind is Kind.DOUBLE_STAR for one in parameters) else parameters


def _keyword(sides: Worlds, what: _Definition, old: str) -> tuple[str, str] | None:
    """Return what a definition takes in place of a keyword, and the file that shows it."""
    had, has = (
        {one.name: one for one in _parameters(world, what) if one.kind in NAMED}
        for world in (sides.before, sides.now)
    )
    if old not in had or old in has:
        return None
    same = {name for name, one in has.items() if one == had[old]._replace(name=name)}
    shown_by: dict[str, str] = {}
    for caller in sides.callers(old, what.path):
        was, now = (
            [
                (node, scope)
                for node, scope in callers.sites(tree, ast.Call)
                if _callee(Inference(world, caller.path), node, scope) == what
            ]
            for world, tree in ((sides.before, caller.was), (sides.now, caller.now))
        )
        for name in {scope.name for _, scope in was}:
            mine, its = ([n for n, scope in side if scope.name == name] for side in (was, now))
            for new in _renamings(mine, its, old, same - had.keys()):
                if new is None:
                    return None
                shown_by.setdefault(new, caller.path)
    return next(iter(shown_by.items())) if len(shown_by) == 1 else None


def _renamings(
    was: Sequence[ast.Call], now: Sequence[ast.Call], old: str, names: set[str]
) -> Iterator[str | None]:
    """Yield the names under which calls of one function pass the same value; None where one passes another."""
    if len(was) != len(now):
        if now and any(one.arg == old for call in was for one in call.keywords):
            yield None
        return
    for before, after in zip(was, now, strict=True):
        mine, its = (
            {one.arg: ast.dump(one.value) for one in call.keywords} for call in (before, after)
        )
        if old in mine:
            same = [name for name in names if its.get(name) == mine[old]]
            yield same[0] if len(same) == 1 else None


_FINDERS = {"fit-import": imports.moves, "fit-attribute": _members, "fit-call": _keywords}
