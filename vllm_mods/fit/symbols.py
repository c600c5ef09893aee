"""What a name or an expression may mean in a tree: something defined there, a module, or something outside."""

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

    @property
    def where(self) -> str:
        """The place of a definition, for a message."""
        return f"{self.path}:{self.binding.line if self.binding else 1}"

    @property
    def text(self) -> str:
        """The class and its place, for a message."""
        return f"{self.cls.name} ({self.where})"


class Lookup(NamedTuple):
    """``exists`` is yes, no, or ``None`` for "can't tell", of which ``why`` says the reason."""

    exists: bool | None
    symbols: tuple[Symbol, ...] = ()
    why: str = ""

    @property
    def module(self) -> str | None:
        """The path of the module that was found, ``None`` for anything else."""
        return self.symbols[0].module if self.exists else None


class Lineage(NamedTuple):
    """A class with its bases in the tree, nearest first, and the names of those outside."""

    classes: tuple[Symbol, ...]
    outside: tuple[str, ...]
    torch: bool

    @property
    def bases(self) -> set[str]:
        """What the classes have as bases, without the modules that the code names."""
        return {base.rpartition(".")[2] for one in self.classes for base in one.cls.bases}

    def owner(self, name: str) -> tuple[Symbol, tuple[Function, ...]] | None:
        """Return the first class that defines a method, and its definitions."""
        for symbol in self.classes:
            if name in symbol.cls.methods:
                return symbol, symbol.cls.methods[name]
        return None


class Thing(NamedTuple):
    """One possibility of what an expression is, as :mod:`vllm_mods.fit.infer` says.

    ``kind`` is ``module``, ``class``, ``instance``, ``function``, ``coroutine``, ``super`` or ``unknown``.
    ``exact`` means that no subclass can stand there; ``bound`` that the receiver is passed;
    ``owner`` is the class a method was found in, ``on`` the class it was looked up on.
    """

    kind: str
    symbol: Symbol = Symbol()
    exact: bool = False
    bound: bool = False
    owner: Symbol | None = None
    on: Symbol | None = None
    why: str = ""

    @property
    def function(self) -> Function:
        """The function that it is, or that made it. Raises ``TypeError`` if there is none."""
        if not isinstance(self.symbol.binding, Function):
            raise TypeError(f"a {self.kind} is not a function")
        return self.symbol.binding


def unknown(why: str) -> tuple[Thing, ...]:
    """Return the answer that nothing is known, and why."""
    return (Thing(kind="unknown", why=why),)


def outside(name: str) -> Thing:
    """Return something that vLLM does not define: its calls are not for fit to judge."""
    return Thing(kind="unknown", symbol=Symbol(external=name), why=f"{name} is outside the tree")


_BUILTINS = {
    f"builtins.{kind.__name__}()": kind
    for kind in (int, float, bool, str, bytes, list, tuple, dict, set)
}


def builtin(thing: Thing) -> type | None:
    """Return the builtin type that something is an instance of, ``None`` for anything else."""
    return _BUILTINS.get(thing.symbol.external or "")
