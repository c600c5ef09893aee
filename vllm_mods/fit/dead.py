"""What a patch adds and nothing reaches: hooks that nobody calls, files that nobody imports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress

from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Expectation, Level
from vllm_mods.fit.families import classes_in, subclasses
from vllm_mods.fit.hierarchy import TORCH_MODULE, lineage
from vllm_mods.fit.problems import Problem, nearest
from vllm_mods.fit.search import candidates, files_mentioning
from vllm_mods.fit.shapes import Class
from vllm_mods.fit.world import World

# What frameworks call by a name of their own making.
_CALLED = re.compile(r"__\w+__|(?:visit|test|do|on|handle|validate|serialize|check)_\w+")


def dead_problems(
    before: World, after: World, path: str, expects: Iterable[Expectation], origin: World | None
) -> Iterator[Problem]:
    """Judge what is new in a file: notes, and errors for what the mod expects to be a hook.

    ``origin`` is the release that the patch was written for, where it can be had.
    """
    asked = {expect.symbol for expect in expects}
    gone: dict[str, Problem] = {}
    # An origin of which only a part can be had decides nothing.
    with suppress(TreeError):
        gone = {} if origin is None else dict(_gone(before, after, origin, path))
    for scope, problem in gone.items():
        named = {f"{base}.{problem.token}" for base in (scope.rpartition(".")[0], problem.key[2])}
        yield problem._replace(level=Level.NOTE if asked.isdisjoint(named) else Level.ERROR)
    if candidates(after, (path,))[1]:
        if before.read(path) is None:
            yield from _file(after, path)
        yield from (p for p in _unnamed(before, after, path, asked) if p.scope not in gone)


def _unnamed(before: World, after: World, path: str, asked: set[str]) -> Iterator[Problem]:
    """Yield the added methods that nothing names and no base defines."""
    old = dict(classes_in(before, path))
    for name, found in classes_in(after, path):
        was, line = old.get(name), lineage(after, found)
        if line.outside or (was is None and len(line.classes) == 1):
            continue
        for method, functions in found.cls.methods.items():
            if (
                (was and method in was.cls.methods)
                or functions[0].decorators
                or _CALLED.fullmatch(method)
            ):
                continue
            above = {other for one in line.classes[1:] for other in one.cls.methods}
            if method in above or (line.torch and method in TORCH_MODULE):
                continue
            if _named(after, method, path) or any(
                method in other.cls.attributes for other in subclasses(after, found)
            ):
                continue
            scope = f"{name}.{method}"
            yield Problem(
                code="fit-dead",
                key=("fit-dead", scope),
                token=method,
                path=path,
                line=functions[0].line,
                scope=scope,
                message=f"nobody calls {scope}, and no base defines it{nearest(method, above)}",
                level=Level.ERROR if scope in asked else Level.NOTE,
            )


def _gone(before: World, after: World, origin: World, path: str) -> Iterator[tuple[str, Problem]]:
    """Yield the added methods that overrode one where the patch was written, and override none here."""
    old = dict(classes_in(before, path))
    for name, found in classes_in(after, path):
        was, bases = old.get(name), lineage(after, found).classes[1:]
        above = {other for one in bases for other in one.cls.methods}
        added = found.cls.methods.keys() - (was.cls.methods.keys() if was else set()) - above
        for method in sorted(added) if bases else ():
            hooks = [
                (one, owned[0])
                for one in bases
                for there in origin.lookup(one.path, one.cls.name).found
                if isinstance(there.binding, Class)
                and (owned := lineage(origin, there).owner(method))
            ]
            if not hooks or method.startswith("__"):
                continue
            base, owner = hooks[0]
            known = {m for one in lineage(origin, owner).classes for m in one.cls.methods}
            scope = f"{name}.{method}"
            version = origin.tree.version or "the release it was written for"
            instead = nearest(method, above - known) or nearest(method, above)
            called = not candidates(after, (path,))[1] or _named(after, method, path)
            yield (
                scope,
                Problem(
                    code="fit-dead",
                    key=("fit-dead", scope, base.cls.name),
                    token=method,
                    path=path,
                    line=found.cls.methods[method][0].line,
                    scope=scope,
                    message=f"{scope} overrides {owner.cls.name}.{method} in {version}, and no base "
                    f"defines it here{'' if called else ': nobody calls it'}{instead}",
                    level=Level.NOTE,
                ),
            )


def _named(world: World, word: str, path: str) -> bool:
    """Tell whether a name stands anywhere but in the one definition."""
    find = re.compile(rb"\b%b\b" % re.escape(word.encode()))
    # What a patch adds, its own files use, nearly always.
    if len(find.findall(world.read(path) or b"")) > 1:
        return True
    if any(find.search(data or b"") for other, data in world.files.items() if other != path):
        return True
    # What stands nearest is read first: one file that has it is enough.
    folder = path.rpartition("/")[0]
    files = sorted(candidates(world, (path,))[0], key=lambda other: not other.startswith(folder))
    return any(find.search(world.glance(other) or b"") for other in files if other != path)


def _file(world: World, path: str) -> Iterator[Problem]:
    stem = path.removesuffix("/__init__.py").removesuffix(".py").rpartition("/")[2]
    if not path.startswith("vllm/") or stem == "__main__":
        return
    word = re.compile(rb"\b%b\b" % re.escape(stem.encode()))
    files = files_mentioning(world, frozenset((stem.encode(),)), (path,))
    if not any(other != path and word.search(data) for other, data in files):
        yield Problem(
            code="fit-dead",
            key=("fit-dead", path),
            token="",
            path=path,
            line=1,
            scope="",
            message="the patch brings this file, and nothing of the tree imports it",
            level=Level.NOTE,
        )
