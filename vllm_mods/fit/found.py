"""What a name means in a tree: something defined there, a module, or something outside."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.fit.shapes import Class, Function, Value


class Symbol(NamedTuple):
    """What a name means: something defined at ``path``, a module, or something ``external``.

    With none of these it is a value of which no more is known.
    """

    path: str = ""
    binding: Function | Class | Value | None = None
    module: str | None = None
    external: str | None = None

    @property
    def cls(self) -> Class:
        """The class that was found. Raises ``TypeError`` if it is something else."""
        if not isinstance(self.binding, Class):
            raise TypeError(f"{self.binding!r} in {self.path} is not a class")
        return self.binding


class Lookup(NamedTuple):
    """``exists`` is yes, no, or ``None`` for "can't tell", of which ``why`` says the reason."""

    exists: bool | None
    found: tuple[Symbol, ...] = ()
    why: str = ""


class Lineage(NamedTuple):
    """A class with its bases in the tree, nearest first, and the names of those outside."""

    classes: tuple[Symbol, ...]
    outside: tuple[str, ...]
    torch: bool

    def owner(self, name: str) -> tuple[Symbol, tuple[Function, ...]] | None:
        """Return the first class that defines a method, and its definitions."""
        for found in self.classes:
            if name in found.cls.methods:
                return found, found.cls.methods[name]
        return None
