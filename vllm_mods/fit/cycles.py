"""Cycles of imports that a patch closes: names asked of a module that has not come to them yet.

Modules are read as text, for what stands at their left margin: imports and what binds names. What
stands indented (``try``, ``if``) may bind anything it mentions, and imports nothing.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Level
from vllm_mods.fit.problems import Problem, Problems
from vllm_mods.fit.world import World, absolute

_IMPORT = re.compile(
    rb"^(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]*(?:\((?P<several>[^)]*)\)|(?P<names>[^\n]*))"
    rb"|import[ \t]+(?P<whole>[^\n#]+))",
    re.MULTILINE,
)
_COMMENT = re.compile(rb"#[^\n]*")
# A text over several lines may have anything at its margin, and names what nobody has bound, as a line of comment may.
_TEXT = re.compile(rb"\"\"\".*?(?:\"\"\"|\Z)|'''.*?(?:'''|\Z)|(?m:^)[ \t]*#[^\n]*", re.DOTALL)


class _LoadStep(NamedTuple):
    """An import at the left margin; ``names`` are those asked of the module, none for ``import x``."""

    start: int
    module: str
    names: tuple[str, ...]


class _Stuck(NamedTuple):
    """An import that fails: where, of what, and the files of the cycle, each imported by the one before it."""

    path: str
    line: int
    name: str
    module: str
    cycle: tuple[str, ...]


def cycle_problems(before: World, after: World, path: str, lines: frozenset[int]) -> Problems:
    """Judge the imports at the margin of some lines of a file."""
    data = after.read(path) or b""
    rows = {step.start: data.count(b"\n", 0, step.start) + 1 for step in load_steps(data, path)}
    if lines.isdisjoint(rows.values()):
        return
    loading = Loading(after)
    stuck = loading.load(path)
    if stuck is None or path not in stuck.cycle or rows[loading.at[path]] not in lines:
        return
    if Loading(before).load(path) is not None:
        return
    here = stuck.cycle.index(path)
    way = stuck.cycle[here + 1 :] + stuck.cycle[:here]
    after.consulted.update(way)
    always = all(Loading(after).load(other) is not None for other in way)
    asked = f"{stuck.path}:{stuck.line} imports {stuck.name} from {stuck.module}"
    yield Problem(
        FindingCode.FIT_IMPORT,
        path,
        rows[loading.at[path]],
        scope="",
        message=f"a cycle of imports ({' -> '.join((path, *way))}): {asked}, which has not defined that name yet{'' if always else ' if this file is imported first'}",
        key=("cycle", path, way[0]),
        token=stuck.module.rpartition(".")[2],
        level=Level.ERROR if always else Level.NOTE,
    )


@lru_cache(maxsize=4096)
def load_steps(data: bytes, path: str) -> tuple[_LoadStep, ...]:
    """Return the imports of a file that stand at its margin."""
    steps: list[_LoadStep] = []
    last = max((match.end() for match in _IMPORT.finditer(data)), default=0)
    for match in _IMPORT.finditer(_blank_texts(data[:last])):
        if match["whole"]:
            steps += (_LoadStep(match.start(), one, ()) for one in _names(match["whole"]))
            continue
        module = match["module"].decode()
        target = absolute(path, len(module) - len(module.lstrip(".")), module.lstrip("."))
        asked = _names(match["several"] or match["names"] or b"")
        steps.append(_LoadStep(match.start(), target, tuple(asked)))
    return tuple(steps)


def _blank_texts(data: bytes) -> bytes:
    return _TEXT.sub(lambda match: re.sub(rb"[^\n]", b" ", match[0]), data)


def _names(text: bytes) -> Iterator[str]:
    for part in _COMMENT.sub(b"", text).split(b","):
        name = part.split(b" as ")[0].strip().decode(errors="replace")
        if name:
            yield name


def _file(world: World, dotted: str) -> str | None:
    """Return the path of a module of the tree, a folder's ``__init__.py`` included."""
    path = world.locate(dotted).module
    return path if path is not None and path.endswith(".py") else None


class Loading:
    """Loads modules as Python does, as far as their margins say; ``at`` are those that it has come to."""

    def __init__(self, world: World) -> None:
        self.world = world
        # How far each module has come; ``-1`` for one that is done.
        self.at: dict[str, int] = {}

    def load(self, path: str) -> _Stuck | None:
        """Load a file and the packages around it; return the first import that fails."""
        if path in self.at:
            return None
        parts = path.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            package = "/".join((*parts[:depth], "__init__.py"))
            stuck = None if package == path else self._load_file(package)
            if stuck is not None:
                return stuck
        return self._load_file(path)

    def _load_file(self, path: str) -> _Stuck | None:
        data = self.world.glance(path)
        if path in self.at or data is None:
            return None
        self.at[path] = 0
        for step in load_steps(data, path):
            self.at[path] = step.start
            target = _file(self.world, step.module)
            stuck = None if target is None else self.load(target)
            for name in step.names if stuck is None else ():
                stuck = stuck or self._name(path, data, step, target, name)
            if stuck is not None:
                return stuck
        self.at[path] = -1
        return None

    def _name(
        self, path: str, data: bytes, step: _LoadStep, target: str | None, name: str
    ) -> _Stuck | None:
        done = target is None or self.at.get(target, -1) < 0
        if name == "*" or (done and not (target or "__init__.py").endswith("__init__.py")):
            return None
        below = _file(self.world, f"{step.module}.{name}")
        if target is None or done:
            return None if below is None or self._binds(target, name) else self.load(below)
        source = _blank_texts(self.world.glance(target) or b"")
        word = re.compile(rb"(?m)\b%b\b|^from[^\n]*import[ \t]*\*" % re.escape(name.encode()))
        if word.search(source[: self.at[target]]) or b"__getattr__" in source:
            return None
        if below is not None:
            return self.load(below)
        # Whether it is there at all, others ask.
        if not word.search(source[self.at[target] :]):
            return None
        loading = [one for one, at in self.at.items() if at >= 0]
        cycle = tuple(loading[loading.index(target) :])
        return _Stuck(path, data.count(b"\n", 0, step.start) + 1, name, step.module, cycle)

    def _binds(self, target: str | None, name: str) -> bool:
        module = None if target is None else self.world.module(target)
        return module is not None and name in module.names
