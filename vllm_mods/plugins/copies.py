"""Calls of a module's name that miss what a plugin puts in its place: they have the old one from elsewhere, or since before."""

import re
from collections.abc import Iterator, Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from vllm_mods.fit.calls import calls_of
from vllm_mods.fit.cycles import Loading, load_steps
from vllm_mods.fit.run_time import Write
from vllm_mods.fit.search import files_mentioning, meant_in
from vllm_mods.fit.shapes import Class, Function, Import, Symbol
from vllm_mods.fit.signatures import dotted
from vllm_mods.fit.walk import local_names
from vllm_mods.fit.world import World, absolute, remembered

_HOPS = 12
_ANEW = re.compile(rb"\breload\(|\bsys\.modules\.pop\(|\bdel sys\.modules|\.__code__ =")
_BY_NAME = re.compile(rb"\bsetattr\(.+?, *\w+,")


class Replaced(NamedTuple):
    """A ``name`` of a ``module`` in one vLLM, and all that a plugin replaces there, by module or class and name."""

    world: World
    module: str
    name: str
    names: AbstractSet[tuple[str, str]]


def missed(now: Replaced, before: Replaced, write: Write) -> Iterator[str]:
    """Yield which call has the old one of a replaced name and had the new one before, and why."""
    paths = [path for path, _ in files_mentioning(now.world, (now.name,))]
    new = _copiers(now, paths) - _copiers(before, paths)
    files = {one for path, of in new for one in (path, now.world.locate(of).module or "")}
    ways = [way for way in _ways(now, files) if way[2] or way[3]]
    met = _ways(before, files | {before.module}) if ways else ()
    reached = {caller for caller, _, copies, end in met if not copies and not end}
    above = None if [*write.scope.in_function()] else write.node.lineno - 1
    for _, place, copies, end in (way for way in ways if way[0] in reached):
        loaded = () if end else _loaded(now.world, write.path, above)
        early = (f": {one} imported it before" for one in copies if one in loaded)
        if (why := f", of {end}" if end else next(early, "")) and not _may_be_put(now):
            yield f"the call in {place} still uses the old one{why}"


def _may_be_put(of: Replaced) -> bool:
    """Tell whether a plugin may give others the new one: a helper puts it there, they are loaded anew, the old one gets its code."""
    text = b"\n".join(filter(None, of.world.files.values()))
    quoted = re.search(rb"[\"'.]%b[\"']" % of.name.encode(), text)
    return bool(_ANEW.search(text) or (quoted and _BY_NAME.search(text)))


def _copiers(of: Replaced, paths: list[str]) -> AbstractSet[tuple[str, str]]:
    """Return which of some files import a name, each with the module that it is taken from."""
    texts = ((path, of.world.glance(path) or b"") for path in paths)
    steps = ((path, step) for path, data in texts for step in load_steps(data, path))
    return {(path, step.module) for path, step in steps if of.name in step.names}


def _ways(of: Replaced, files: AbstractSet[str]) -> Iterator[tuple[str, str, list[str], str]]:
    """Yield the calls of a name in some files: who calls, where, which modules import it on its way there, and which has the old one, ``""`` for the new one."""
    world, _, name, names = of
    meant = world.lookup(of.module, name).symbols
    for call in calls_of(world, name, rb"\b", frozenset(files)) if files else ():
        scope, text = call.scope, dotted(call.node.func) or ""
        chain, owner = scope.name.split("."), text.rpartition(".")[0]
        runs = names.isdisjoint({(call.path, chain[0]), *pairwise(chain)})
        is_local = any(name in local_names(one.node) for one in scope.in_function())
        if is_local or not runs or meant_in(world, call.path, scope, text) != meant:
            continue
        read = meant_in(world, call.path, scope, owner) if owner else (Symbol(module=call.path),)
        path, copies = read[0].module if len(read) == 1 else None, list[str]()
        while path and len(copies) < _HOPS:
            summary = world.module(path)
            match summary.names.get(name) if summary and (path, name) not in names else None:
                case (Import(name=of.name, typing_only=False) as taken,):
                    copies.append(path)
                    path = world.locate(absolute(path, taken.level, taken.module)).module
                    continue
                case (Function() | Class(),):
                    yield scope.name or call.path, f"{call.path}:{call.node.lineno}", copies, path
                case None if (path, name) in names:
                    yield scope.name or call.path, f"{call.path}:{call.node.lineno}", copies, ""
            break


@remembered
def _loaded(world: World, path: str, above: int | None) -> AbstractSet[str]:
    """Return modules that are imported for certain by the lines ``above`` one of a file, or by all."""
    lines = (world.glance(path) or b"").splitlines(keepends=True)
    files = {**world.files, path: b"".join(lines[:above])}
    loading = Loading(World(world.tree, files, world.cache, world.texts))
    # what is around the file may only have begun
    around = {f"{path[: at.start()]}/__init__.py" for at in re.finditer("/", path)} - {path}
    loading.at.update(dict.fromkeys(around, -1))
    loading.load(path)
    return loading.at.keys()
