"""What a patch takes away or narrows, and where else the tree mentions it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from vllm_mods.fit.constructors import constructor
from vllm_mods.fit.hierarchy import attributes, lineage
from vllm_mods.fit.search import candidates, classes_in, files_mentioning, subclasses
from vllm_mods.fit.shapes import Function, Module
from vllm_mods.fit.signatures import implementations, stands_in, unbound
from vllm_mods.fit.world import World, module_stem

# A method name that more files than this mention is followed only where its class is named too.
_COMMON = 40
# Looked for first: stars are rare, and the other expression is slow over a whole tree.
_STARRED = re.compile(rb"import +\*")
_STAR = re.compile(rb"\bfrom +(?:[\w.]*\.)?(\w+) +import +\*")
_WORDS = re.compile(rb"[A-Za-z_]\w*")


class Trace(NamedTuple):
    """A word whose lines are to be judged. A file also has to mention one of ``context``.

    ``called`` leaves the lines where the word is called, ``within`` the files.
    """

    word: str
    path: str
    context: frozenset[str] = frozenset()
    always: bool = False
    called: bool = False
    within: frozenset[str] | None = None


def traces(before: World, after: World, path: str) -> Iterator[Trace]:
    """Compare the definitions of a file before and after."""
    old = before.module(path)
    if old is None:
        return
    new = after.module(path)
    if new is None:
        # A deleted module: whoever names it, and whoever names what was in it.
        yield Trace(word=module_stem(path), path=path)
    for name in old.names:
        if new is None or name not in new.names:
            # Others get at it by naming the module, or one that imports all of it.
            yield Trace(word=name, path=path, context=_stems(after, path), always=True)
        elif _narrows(_functions(old, name), _functions(new, name)):
            yield Trace(word=name, path=path)
    if new is not None:
        yield from _of_classes(before, after, path)


def _stems(world: World, path: str) -> frozenset[str]:
    """Return the last words of the modules through which others get at a module's names."""
    if world.stars is None:
        texts = ((p, world.glance(p) or b"") for p in candidates(world, (path,))[0])
        world.stars = [
            (module_stem(p), source.decode())
            for p, text in texts
            if _STARRED.search(text)
            for source in _STAR.findall(text)
        ]
    stems = {module_stem(path)}
    for _ in world.stars:
        stems |= {through for through, source in world.stars if source in stems}
    return frozenset(stems)


def _functions(module: Module, name: str) -> tuple[Function, ...]:
    return implementations([b for b in module.names[name] if isinstance(b, Function)])


def _narrows(old: tuple[Function, ...], new: tuple[Function, ...], *, method: bool = False) -> bool:
    """Tell whether some call that bound before may not bind now."""
    if not old or len(old) != 1 or len(new) != 1:
        return bool(old) and old != new
    if old[0].decorators != new[0].decorators:
        return True
    was, now = (unbound(f) if method else f.parameters for f in (old[0], new[0]))
    return not stands_in(was, now)


def _of_classes(before: World, after: World, path: str) -> Iterator[Trace]:
    now = dict(classes_in(after, path))
    for name, was in classes_in(before, path):
        symbol = now.get(name)
        if symbol is None:
            continue
        old, new = was.cls, symbol.cls
        context = frozenset((new.name,))
        old_call, new_call = constructor(before, was), constructor(after, symbol)
        stays = not new_call.why and stands_in(old_call.parameters or (), new_call.parameters or ())
        if not old_call.why and not stays:
            yield Trace(word=new.name, path=path, called=True)
            heirs = frozenset(heir.path for heir in subclasses(after, symbol))
            yield Trace(word="__init__", path=path, within=heirs)
        for method, functions in old.methods.items():
            if method == "__init__":
                continue
            mine = implementations(new.methods.get(method, ()))
            if _narrows(implementations(functions), mine, method=True):
                yield Trace(word=method, path=path, context=context)
        gone = old.attributes - new.attributes
        if old.bases != new.bases:
            had, _ = attributes(before, lineage(before, was))
            gone |= had - attributes(after, lineage(after, symbol))[0]
        for attribute in gone:
            yield Trace(word=attribute, path=path, context=context, always=True)


def mentions(
    world: World, traces: Iterable[Trace], near: tuple[str, ...]
) -> dict[str, frozenset[int]]:
    """Return the lines of each file that mention what is traced."""
    by_word: dict[str, list[Trace]] = {}
    for trace in traces:
        by_word.setdefault(trace.word, []).append(trace)
    if not by_word:
        return {}
    words = frozenset(word.encode() for word in by_word)
    sought = words.union(
        c.encode() for several in by_word.values() for t in several for c in t.context
    )
    files: dict[str, frozenset[str]] = {}
    counts: Counter[str] = Counter()
    for path, data in files_mentioning(world, by_word, near):
        held = frozenset(w.decode() for w in sought.intersection(_WORDS.findall(data)))
        files[path] = held
        counts.update(held & by_word.keys())
    result: dict[str, frozenset[int]] = {}
    for path, held in files.items():
        wanted = [
            trace
            for word in held & by_word.keys()
            for trace in by_word[word]
            if _applies(trace, held, path, counts[word])
        ]
        plain = {trace.word for trace in wanted if not trace.called}
        called = {trace.word for trace in wanted} - plain
        lines = _lines(world.read(path) or b"", plain, called) if wanted else None
        if lines:
            result[path] = lines
    return result


def _applies(trace: Trace, held: frozenset[str], path: str, count: int) -> bool:
    if trace.within is not None:
        return path in trace.within
    if trace.path == path or not trace.context:
        return True
    if not trace.always and count <= _COMMON:
        return True
    if trace.path.endswith("/__init__.py") and path.startswith(trace.path[: -len("__init__.py")]):
        return True  # ``from . import X`` does not name it
    return not trace.context.isdisjoint(held)


def _lines(data: bytes, words: set[str], called: set[str]) -> frozenset[int]:
    # Judging costs by the line, so a line has to hold a whole word.
    texts = [rf"\b{re.escape(word)}\b" for word in sorted(words)]
    texts += [rf"\b{re.escape(word)}\s*[(\[]" for word in sorted(called)]
    pattern = re.compile("|".join(texts).encode())
    return frozenset(n for n, text in enumerate(data.splitlines(), 1) if pattern.search(text))
