"""What a patch takes away or narrows, and where else the tree mentions it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.fit.binding import implementations, stands_in, unbound
from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.families import classes_in
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.search import files_mentioning
from vllm_mods.fit.shapes import Function, Module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm_mods.fit.world import World

# A method name that more files than this mention is followed only where its class is named too.
_COMMON = 40


class Trace(NamedTuple):
    """A word whose lines are to be judged. A file also has to mention one of ``context``."""

    word: str
    path: str
    context: frozenset[str] = frozenset()
    always: bool = False


def traces(before: World, after: World, path: str) -> Iterator[Trace]:
    """Compare the definitions of a file before and after."""
    old = before.module(path)
    if old is None:
        return
    new = after.module(path)
    if new is None:
        # A deleted module: whoever names it, and whoever names what was in it.
        stem = path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")[2]
        yield Trace(word=stem, path=path)
    for name in old.names:
        if (
            new is None
            or name not in new.names
            or _narrowed(_functions(old, name), _functions(new, name), methods=False)
        ):
            yield Trace(word=name, path=path)
    if new is not None:
        yield from _of_classes(before, after, path)


def _functions(module: Module, name: str) -> tuple[Function, ...]:
    return implementations([b for b in module.names[name] if isinstance(b, Function)])


def _narrowed(old: tuple[Function, ...], new: tuple[Function, ...], *, methods: bool) -> bool:
    """Tell whether some call that bound before may not bind now."""
    if not old:
        return False
    if len(old) != 1 or len(new) != 1:
        return old != new
    if old[0].decorators != new[0].decorators:
        return True
    if methods:
        return not stands_in(unbound(old[0]), unbound(new[0]))
    return not stands_in(old[0].parameters, new[0].parameters)


def _of_classes(before: World, after: World, path: str) -> Iterator[Trace]:
    now = dict(classes_in(after, path))
    for name, was in classes_in(before, path):
        found = now.get(name)
        if found is None:
            continue
        old, new = was.cls, found.cls
        context = frozenset((new.name,))
        made, makes = constructor(before, was), constructor(after, found)
        if not made.why and (
            makes.why or not stands_in(made.parameters or (), makes.parameters or ())
        ):
            yield Trace(word=new.name, path=path)
            yield Trace(word="__init__", path=path, context=context, always=True)
        for method, functions in old.methods.items():
            if method == "__init__":
                continue
            mine = implementations(new.methods.get(method, ()))
            if _narrowed(implementations(functions), mine, methods=True):
                yield Trace(word=method, path=path, context=context)
        gone = old.attributes - new.attributes
        if old.bases != new.bases:
            gone |= (
                attributes(before, lineage(before, was))[0]
                - attributes(after, lineage(after, found))[0]
            )
        for attribute in gone:
            yield Trace(word=attribute, path=path, context=context, always=True)


def mentions(
    world: World, found: Iterable[Trace], near: tuple[str, ...]
) -> dict[str, frozenset[int]]:
    """Return the lines of each file that mention what is traced."""
    by_word: dict[str, list[Trace]] = {}
    for trace in found:
        by_word.setdefault(trace.word, []).append(trace)
    if not by_word:
        return {}
    words = frozenset(word.encode() for word in by_word)
    files: dict[str, frozenset[str]] = {}
    counts: dict[str, int] = {}
    contexts = frozenset(c for several in by_word.values() for t in several for c in t.context)
    sought = words | {c.encode() for c in contexts}
    for path, data in files_mentioning(world, words, near):
        held = frozenset(w.decode() for w in sought.intersection(_WORDS.findall(data)))
        if held & by_word.keys():
            files[path] = held
            for word in held & by_word.keys():
                counts[word] = counts.get(word, 0) + 1
    result: dict[str, frozenset[int]] = {}
    for path, held in files.items():
        wanted = {
            word
            for word in held & by_word.keys()
            if any(_applies(t, held, path, counts[word]) for t in by_word[word])
        }
        if wanted:
            lines = _lines(world.read(path) or b"", wanted)
            if lines:
                result[path] = lines
    return result


_WORDS = re.compile(rb"[A-Za-z_]\w*")


def _applies(trace: Trace, held: frozenset[str], path: str, count: int) -> bool:
    if trace.path == path or not trace.context:
        return True
    if not trace.always and count <= _COMMON:
        return True
    return not trace.context.isdisjoint(held)


def _lines(data: bytes, words: set[str]) -> frozenset[int]:
    # Judging costs by the line, so a line has to hold a whole word.
    wanted = {word.encode() for word in words}
    first = re.compile(b"|".join(re.escape(word) for word in sorted(wanted)))
    return frozenset(
        number
        for number, text in enumerate(data.splitlines(), 1)
        if first.search(text) and not wanted.isdisjoint(_WORDS.findall(text))
    )
