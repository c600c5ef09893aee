"""Runs a Python program as ``python`` does, with each place marked at which it goes over entries (``entry_marks``).

With ``chosen.json`` beside it only some entries of one such place are there; without, what is at each is written to ``points``.
A recording runs this file in its sandbox in place of Python, so that it shares nothing with the package.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import importlib.machinery
import json
import os
import pathlib
import re
import runpy
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

HOME = os.path.dirname(os.path.abspath(__file__))
CHOSEN, POINTS = "chosen.json", "points"
_MOST = 2_000  # how many entries of a place are told of
_TEXTS = 4 << 20  # letters that are kept of a place's entries
_DEEPEST = 5
_OWN = ("/workspace/", "/tmp/", "/root/")  # noqa: S108  (as they are called in there)
_Shape = list[tuple[str, str]]


# --- what runs at a marked place


class _SeenEntries:
    """What this process saw and is to leave out."""

    def __init__(self) -> None:
        self.chosen: dict[str, Any] | None = None
        place = os.path.join(HOME, CHOSEN)
        if os.path.exists(place):
            with open(place, encoding="utf-8") as file:
                self.chosen = json.load(file)
        self.log = None if self.chosen else open(os.path.join(HOME, POINTS), "a", encoding="utf-8")  # noqa: SIM115
        self.points: set[str] = set()
        self.letters: dict[str, int] = {}
        self.module: types.ModuleType | None = None  # so that it stays

    def keeps(self, point: str) -> list[int] | None:
        """Return which entries of a place are to be there, None for all."""
        return self.chosen["keep"] if self.chosen and self.chosen["point"] == point else None

    def write(self, point: str, **more: object) -> None:
        if self.log is not None:
            self.log.write(json.dumps({"point": point, **more}) + "\n")
            self.log.flush()

    def entry(self, point: str, index: int, name: str, value: object) -> None:
        """Note an entry: what it calls itself, and the texts in it."""
        names: _Shape = [("key", name)] if name else []  # of a dict
        texts: list[str] = []
        _look(value, names, texts, 0)
        size = self.letters[point] = self.letters.get(point, 0) + sum(map(len, texts))
        self.write(point, index=index, names=names[:40], texts=texts if size < _TEXTS else [])


def _look(value: object, names: _Shape, texts: list[str], depth: int, place: str = "") -> None:
    """Collect the texts of a value, and those that may be names, each with its place."""
    if len(texts) > _DEEPEST * 40 or depth > _DEEPEST:
        return
    if isinstance(value, str):
        texts.append(value)
        if len(value) <= 80 and "\n" not in value:
            names.append((place, value))
    elif isinstance(value, types.FunctionType | type | types.ModuleType):
        names.append((f"{place}.__name__", value.__name__))
    for key, one in _inner(value):
        _look(one, names, texts, depth + 1, f"{place}.{key}")


def _inner(value: object) -> Iterable[tuple[object, object]]:
    """Return what a value holds, with the names it has there."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple):
        return zip(getattr(value, "_fields", range(len(value))), value, strict=False)
    known = str | pathlib.PurePath | types.FunctionType | type | types.ModuleType
    if isinstance(value, known) or not hasattr(type(value), "__module__"):
        return ()
    keys = [*getattr(value, "__dict__", {}), *getattr(type(value), "__slots__", ())]
    return ((key, getattr(value, str(key), None)) for key in keys)


def _at(point: str, value: Any) -> Any:
    """Return a list, or what a loop goes over, with the entries that are to be there."""
    kept = _SEEN.keeps(point)
    first = point not in _SEEN.points
    _SEEN.points.add(point)
    if kept is not None:
        return _narrowed(value, kept, first=first)
    if _SEEN.log is None:
        return value
    if not first:
        _SEEN.write(point, again=True)
        return value
    if not isinstance(value, dict | list | tuple):
        return _counted(point, value)
    pairs = value.items() if isinstance(value, dict) else (("", one) for one in value)
    for i, (name, one) in zip(range(_MOST), pairs, strict=False):
        _SEEN.entry(point, i, str(name), one)
    return value


def _narrowed(value: Any, kept: list[int], *, first: bool) -> Any:
    """Leave out of a value, for whoever has it, the entries that are not to be there."""
    if isinstance(value, tuple):
        return tuple(one for i, one in enumerate(value) if i in kept)
    if not isinstance(value, dict | list):
        return (one for i, one in enumerate(value) if i in kept)
    if first and isinstance(value, list):
        value[:] = [one for i, one in enumerate(value) if i in kept]
    elif first:
        for key in [key for i, key in enumerate(value) if i not in kept]:
            del value[key]
    return value


def _counted(point: str, value: Iterable[Any]) -> Iterator[Any]:
    for i, one in enumerate(value):
        if i < _MOST:
            named = isinstance(one, tuple) and len(one) == 2 and isinstance(one[0], str)
            _SEEN.entry(point, i, one[0] if named else "", one)
        yield one


def _on(point: str, index: int, line: int) -> bool:
    """Tell whether a call of a row is to be made."""
    kept = _SEEN.keeps(point)
    if kept is not None:
        return index in kept
    key = f"{point}#{index}"
    if _SEEN.log is not None:
        _SEEN.write(point, again=True) if key in _SEEN.points else None
        _SEEN.write(point, index=index, names=[], texts=[], line=line)
        _SEEN.points.add(key)
    return True


def _called_with(point: str, index: int, name: str, function: Callable[..., Any]) -> Any:
    """Return the function of a call, which notes what it is called with."""
    if _SEEN.log is None:
        return function

    def call(*given: Any, **named: Any) -> Any:
        _SEEN.entry(point, index, "", dict([("__name__", name), *enumerate(given), *named.items()]))
        return function(*given, **named)

    return call


# --- as python does


def _compiled(data: Any, path: str) -> types.CodeType:
    tree = ast.parse(data, path)
    place = os.environ.get("VLLM_MODS_LINE", "") if path.startswith("<") else os.path.abspath(path)
    label = re.sub(r"\A/workspace/mods/[^/]+/(?:\./)?", "", place)
    marked = ast.fix_missing_locations(_MARKS.Marker(tree, label).visit(tree))
    return compile(marked, path, "exec", dont_inherit=True)


def _source_to_code(self: Any, data: Any, path: Any, **more: Any) -> types.CodeType:
    if str(path).startswith(_OWN):
        return _compiled(data, str(path))
    return _TO_CODE(self, data, path, **more)


def main() -> None:
    """Run what ``python`` would run with these arguments."""
    flags, words = _flags(sys.argv[1:])
    name = words[0] if words else "-"
    if any(flag in ("-V", "-VV", "-h", "--version", "--help", "-i", "-I") for flag in flags):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])  # noqa: S606
    for marked, function in zip(_MARKS.MARKS, (_at, _on, _called_with), strict=True):
        setattr(builtins, marked, function)
    importlib.machinery.SourceFileLoader.source_to_code = _source_to_code  # type: ignore[method-assign]
    if name == "-m":
        sys.argv = words[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    if name == "-c":
        source: Any = words[1]
        path, sys.argv = "<string>", ["-c", *words[2:]]
    elif name == "-":
        source, path, sys.argv = sys.stdin.buffer.read(), "<stdin>", ["-", *words[1:]]
    else:
        path, sys.argv = name, words
        if os.path.isdir(path):
            sys.path[0] = path
            runpy.run_path(path, run_name="__main__")
            return
        with open(path, "rb") as file:
            source = file.read()
    sys.path[0] = os.path.dirname(os.path.realpath(path)) if name not in ("-c", "-") else ""
    _SEEN.module = sys.modules["__main__"]
    program = types.ModuleType("__main__")
    program.__dict__.update(__file__=path, __builtins__=builtins)
    sys.modules["__main__"] = program
    exec(_compiled(source, path), program.__dict__)  # noqa: S102  (what python does)


def _flags(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the interpreter's own options from what is to be run."""
    rest, flags = [*words], []
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-c", "-m"):
        word = rest.pop(0)
        if word[-1] in "cm" and not word.startswith("--") and len(word) > 2:
            rest.insert(0, f"-{word[-1]}")  # as in -uc
            word = word[:-1]
        flags.append(word)
        if word in ("-X", "-W") and rest:
            flags.append(rest.pop(0))
    return flags, rest


if __name__ == "__main__":
    _SEEN = _SeenEntries()
    _MARKS = importlib.import_module("entry_marks")  # beside it, in the sandbox
    _TO_CODE = importlib.machinery.SourceFileLoader.source_to_code
    main()
