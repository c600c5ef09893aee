"""What a patch adds and nothing reaches: hooks that nobody calls, files that nobody imports."""

import re
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.hierarchy import TORCH_MODULE, lineage
from vllm_mods.fit.problems import Problem, Problems, nearest
from vllm_mods.fit.search import classes_in, files_mentioning, is_composed, python_files, subclasses
from vllm_mods.fit.shapes import Class, Function, Symbol
from vllm_mods.fit.users import without_texts
from vllm_mods.fit.world import World, module_stem

# What frameworks call by a name of their own making.
_CALLED = re.compile(r"__\w+__|(?:visit|test|do|on|handle|validate|serialize|check)_\w+")


def dead_problems(before: World, after: World, path: str, origin: World | None) -> Problems:
    """Judge what is new in a file: notes, and errors for what was a hook at the ``origin``, where the patch was written."""
    gone: list[Problem] = []
    # An origin of which only a part can be had decides nothing.
    with suppress(TreeError):
        gone = [] if origin is None else list(gone_hooks(before, after, origin, path))
    yield from gone
    if before.read(path) is None:
        yield from _file(after, path)
    scopes = {problem.scope for problem in gone}
    yield from (p for p in _unnamed(before, after, path) if p.scope not in scopes)


class _Added(NamedTuple):
    """A method that the patch adds to a class, and none of those ``above``, which its bases have."""

    scope: str
    function: Function
    symbol: Symbol
    above: frozenset[str]
    to_new_class: bool


def _added(before: World, after: World, path: str) -> Iterator[_Added]:
    old = dict(classes_in(before, path))
    for name, symbol in classes_in(after, path):
        was = old[name].cls.methods if name in old else {}
        above = frozenset(m for one in lineage(after, symbol).classes[1:] for m in one.cls.methods)
        for method, functions in symbol.cls.methods.items():
            if method not in was and method not in above:
                yield _Added(f"{name}.{method}", functions[0], symbol, above, name not in old)


def _unnamed(before: World, after: World, path: str) -> Problems:
    """Yield the added methods that nothing names and no base defines."""
    for new in _added(before, after, path):
        line, method = lineage(after, new.symbol), new.function.name
        if (
            line.outside
            or (new.to_new_class and len(line.classes) == 1)
            or new.function.decorators
            or _CALLED.fullmatch(method)
            or (line.torch and method in TORCH_MODULE)
            or _is_named(after, method, path)
            or any(method in other.cls.attributes for other in subclasses(after, new.symbol))
        ):
            continue
        near = nearest(method, new.above)
        is_misspelt = _is_misspelt_hook(after, new)
        why = f"{near}, a hook with the same parameters" if is_misspelt else near
        message = f"nothing calls {new.scope}, and no base class defines it{why}"
        yield _problem(path, new, message, Level.ERROR if is_misspelt else Level.NOTE)


def _is_misspelt_hook(world: World, new: _Added) -> bool:
    """Tell whether an added method is to be a hook of nearly its name: it takes the same, others override that, and no code puts its name together."""
    hook = "".join(get_close_matches(new.function.name, new.above, 1, 0.8))
    line = lineage(world, new.symbol)
    owner = line.owner(hook)
    if owner is None or hook in new.symbol.cls.attributes:
        return False
    takes, *theirs = ([one.name for one in f.unbound] for f in (new.function, *owner[1]))
    others = *line.classes, *subclasses(world, owner[0])
    times = sum(hook in one.cls.methods for one in others)
    return takes in theirs and times > 1 and not is_composed(world, new.function.name)


def gone_hooks(before: World, after: World, origin: World, path: str) -> Problems:
    """Yield the added methods that overrode one where the patch was written, and override none here."""
    for new in _added(before, after, path):
        method = new.function.name
        bases = lineage(after, new.symbol).classes[1:]
        symbols = [one for base in bases for one in origin.lookup(base.path, base.cls.name).symbols]
        lines = [lineage(origin, one) for one in symbols if isinstance(one.binding, Class)]
        owners = [owned[0] for line in lines if (owned := line.owner(method))]
        if not owners or method.startswith("__"):
            continue
        owner = owners[0]
        known = {m for other in lineage(origin, owner).classes for m in other.cls.methods}
        version = origin.tree.version or "the release it was written for"
        instead = nearest(method, new.above - known) or nearest(method, new.above)
        called = _is_named(after, method, path)
        text = f"{new.scope} overrides {owner.cls.name}.{method} in {version}, but no base class defines it"
        message = f"{text} here{'' if called else ', and nothing calls it'}{instead}"
        yield _problem(path, new, message, Level.NOTE if called else Level.ERROR)


def _problem(path: str, new: _Added, message: str, level: Level) -> Problem:
    place, method = (path, new.function.line, new.scope), new.function.name
    return Problem(FindingCode.FIT_DEAD, *place, message, (new.scope,), method, level)


def _is_named(world: World, word: str, path: str) -> bool:
    """Tell whether a name stands anywhere but in the one definition, and what it does first."""
    find = re.compile(rb"(?<!super\(\)\.)\b%b\b" % re.escape(word.encode()))
    if len(find.findall(without_texts(world.read(path) or b""))) > 1:
        return True
    # One file that has it is enough: what a patch adds, its own files use, else what stands nearest.
    near = *world.files, path.rpartition("/")[0]
    files = sorted(python_files(world), key=lambda other: not other.startswith(near))
    return any(find.search(world.glance(other) or b"") for other in files if other != path)


def _file(world: World, path: str) -> Problems:
    stem = module_stem(path)
    if not path.startswith("vllm/") or stem == "__main__":
        return
    word = re.compile(rb"\b%b\b" % re.escape(stem.encode()))
    files = files_mentioning(world, (stem,))
    if not any(other != path and word.search(data) for other, data in files):
        message = "the patch adds this file, but nothing in the tree imports it"
        yield Problem(FindingCode.FIT_DEAD, path, 1, "", message, (path,), level=Level.NOTE)
