"""Calls of a module's name that miss what a plugin puts in its place: they have the old one from elsewhere, or since before."""

import re
from collections.abc import Iterator, Set as AbstractSet
from itertools import pairwise
from typing import NamedTuple

from vllm_mods.base.model import Level
from vllm_mods.fit.calls import MethodCall, calls_of
from vllm_mods.fit.cycles import Loading, load_steps
from vllm_mods.fit.run_time import Write
from vllm_mods.fit.search import files_mentioning, meant_in
from vllm_mods.fit.shapes import Class, Function, Import
from vllm_mods.fit.signatures import dotted
from vllm_mods.fit.walk import local_names
from vllm_mods.fit.world import World, absolute, remembered

_HOPS = 12


class Replaced(NamedTuple):
    """A ``name`` of a ``module`` in one vLLM, and all that a plugin replaces there, by module or class and name."""

    world: World
    module: str
    name: str
    names: AbstractSet[tuple[str, str]]


class _Way(NamedTuple):
    """A call of a name, the modules that import it on its way there, and the one that has the old one at its end, ``""`` for the new one."""

    call: MethodCall
    copies: tuple[str, ...]
    end: str

    @property
    def caller(self) -> str:
        return self.call.scope.name or self.call.path


def missed(
    now: Replaced, before: Replaced, write: Write, *, by_vllm: bool
) -> Iterator[tuple[Level, str]]:
    """Yield which call has the old one of a replaced name and had the new one before, and why; a note if it may have had it.

    ``by_vllm`` says that nothing but vLLM starts the plugin, as a general one.
    """
    paths = [path for path, _ in files_mentioning(now.world, (now.name,))]
    new = _copiers(now, paths) - _copiers(before, paths)
    sources = {now.world.locate(source).module or "" for _, source in new}
    ways = [
        way for way in _ways(now, sources.union(path for path, _ in new)) if way.copies or way.end
    ]
    files = {before.module, *(way.call.path for way in ways)} if ways else set[str]()
    met = {way.caller: not way.copies for way in _ways(before, files) if not way.end}
    for way in (way for way in ways if way.caller in met):
        where = f"the call in {way.call.path}:{way.call.node.lineno} has the old one"
        is_sure = met[way.caller]
        if way.end:
            yield Level.ERROR if is_sure else Level.NOTE, f"{where}, of {way.end}"
        elif is_sure:
            above = None if [*write.scope.in_function()] else write.node.lineno - 1
            loaded = _loaded(now.world, write.path, above, by_vllm=by_vllm)
            early = (one for one in way.copies if one in loaded)
            yield from ((Level.ERROR, f"{where}: {one} has imported it before") for one in early)


def _copiers(of: Replaced, paths: list[str]) -> AbstractSet[tuple[str, str]]:
    """Return which of some files import a name, each with the module that it is taken from."""
    return {
        (path, step.module)
        for path in paths
        for step in load_steps(of.world.glance(path) or b"", path)
        if of.name in step.names
    }


def _ways(of: Replaced, files: AbstractSet[str]) -> Iterator[_Way]:
    """Yield the calls of a name in some files that may run, as far as it is known what they get."""
    meant = of.world.lookup(of.module, of.name).symbols
    for call in calls_of(of.world, of.name, rb"\b", frozenset(files)) if files else ():
        chain, text = call.scope.name.split("."), dotted(call.node.func) or ""
        around = {(call.path, chain[0]), *pairwise(chain)}
        is_replaced = not of.names.isdisjoint(around)  # and does not run
        if is_replaced or meant_in(of.world, call.path, call.scope, text) != meant:
            continue
        path, copies = _read_from(of.world, call, text.rpartition(".")[0], of.name), list[str]()
        while path and len(copies) < _HOPS:
            if (path, of.name) in of.names:
                yield _Way(call, tuple(copies), "")
                break
            summary = of.world.module(path)
            match summary.names.get(of.name) if summary else None:
                case (Import(name=of.name, typing_only=False) as taken,):
                    copies.append(path)
                    path = of.world.locate(absolute(path, taken.level, taken.module)).module
                case (Function() | Class(),):
                    yield _Way(call, tuple(copies), path)
                    break
                case _:
                    break


def _read_from(world: World, call: MethodCall, owner: str, name: str) -> str | None:
    """Return the module of which a call reads the name that it calls, when it runs."""
    bound = next(
        (b for s in call.scope.in_function() if (b := local_names(s.node).get(name))), None
    )
    if owner:
        modules = [one.module for one in meant_in(world, call.path, call.scope, owner)]
    elif bound:
        imports = [one for one in bound if isinstance(one, Import) and one.name == name]
        modules = [world.locate(absolute(call.path, i.level, i.module)).module for i in imports]
    else:
        modules = [call.path]
    return modules[0] if len(modules) == 1 else None


@remembered
def _loaded(world: World, path: str, above: int | None, *, by_vllm: bool) -> AbstractSet[str]:
    """Return modules that are imported for certain by some lines ``above`` in a file, and by vLLM wherever it loads plugins."""
    lines = (world.glance(path) or b"").splitlines(keepends=True)
    files = {**world.files, path: b"".join(lines[:above])}
    loading = Loading(World(world.tree, files, world.cache, world.texts))
    # what is around the file may only have begun
    around = {f"{path[: at.start()]}/__init__.py" for at in re.finditer("/", path)} - {path}
    loading.at.update(dict.fromkeys(around, -1))
    loading.load(path)
    loaders = []
    for caller in {one.path for one in calls_of(world, "load_general_plugins", rb"\b")}:
        if by_vllm and caller not in world.files:
            loaders.append(Loading(world))
            loaders[-1].load(caller)
    of_all = [{*loader.at} for loader in loaders] or [set[str]()]
    return loading.at.keys() | set.intersection(*of_all)
