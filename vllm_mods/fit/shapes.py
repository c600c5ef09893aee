"""What fit knows of a Python module: its names, signatures and classes, without its code.

A summary is derived from the bytes of one file alone, so that the same file in
forty releases is read once. Names are kept as the file writes them;
:mod:`vllm_mods.fit.world` says what they mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    """Return the words of a table that is written as running text."""
    return frozenset(text.split())


# How much of a signature a message shows: a finding has at most three lines.
_LONG = 72


class Function(NamedTuple):
    """A function or method. ``decorators`` are dotted names, ``"?"`` where there is none.

    Every default of a parameter is ``...``.
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    decorators: tuple[str, ...]
    asynchronous: bool

    @property
    def marks(self) -> frozenset[str]:
        """The last words of the decorators."""
        return frozenset(decorator.rpartition(".")[2] for decorator in self.decorators)

    def text(self) -> str:
        """Return the parameters as a person writes them, without annotations; many are cut short."""
        # unchecked: a file that Python refuses may have two of one name
        signature = Signature(self.parameters, __validate_parameters__=False)
        text = str(signature).replace("=Ellipsis", "=…")
        return text if len(text) <= _LONG else f"{text[: text.rindex(', ', 0, _LONG)]}, …)"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Class:
    """A class. ``attributes`` is every name that an instance may have from this class's code.

    ``dynamic`` says that there may be more. ``fields`` are the annotated names, as a
    dataclass reads them, each with whether it is required.
    """

    name: str
    line: int
    end: int
    bases: tuple[str, ...]
    decorators: tuple[str, ...]
    metaclass: str | None
    methods: Mapping[str, tuple[Function, ...]]
    attributes: frozenset[str]
    fields: Mapping[str, bool]
    nested: Mapping[str, Class]
    dynamic: bool


class Import(NamedTuple):
    """A name bound by an import. ``name`` is ``None`` for ``import module [as …]``.

    ``whole`` is true where the bound name is the module's first component.
    """

    level: int
    module: str
    name: str | None
    line: int
    whole: bool = False
    typing_only: bool = False


class Value(NamedTuple):
    """A name bound to something else, maybe the ``alias`` of a dotted name."""

    line: int
    alias: str | None = None
    typing_only: bool = False


Binding = Function | Class | Import | Value


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Module:
    """A module. ``lazy`` is true where it has a ``__getattr__``."""

    names: Mapping[str, tuple[Binding, ...]]
    stars: tuple[Import, ...]
    exports: frozenset[str] | None
    lazy: bool
    dynamic: bool
