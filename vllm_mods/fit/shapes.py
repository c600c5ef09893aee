"""What fit knows of a Python module: its names, signatures and classes, without its code; and what a name may mean in a tree.

A summary is derived from the bytes of one file alone, so that the same file in forty releases is read once.
Names are kept as the file writes them; :mod:`vllm_mods.fit.world` says what they mean.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, Signature
from typing import NamedTuple


def words(text: str) -> frozenset[str]:
    """Return the words of a table that is written as running text."""
    return frozenset(text.split())


# How much of a signature a message shows: a finding has at most three lines.
_LONG = 72
# Decorators that leave the parameters as they are.
TRANSPARENT = words(
    "staticmethod classmethod abstractmethod overload override final no_type_check inference_mode "
    "no_grad enable_grad lru_cache cache contextmanager asynccontextmanager deprecated "
    "torch_compile_guard assume_constant_result disable "
    "model_validator eager_break_during_capture maybe_transfer_kv_layer"
)
PROPERTIES = words(
    "property cached_property abstractproperty setter getter deleter computed_field "
    "classproperty field_validator validator"
)


class Function(NamedTuple):
    """A function or method. Every default is ``...``, ``"?"`` a decorator without a dotted name, ``returns`` a stated name or tuple."""

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    decorators: tuple[str, ...]
    asynchronous: bool
    returns: str | None = None

    @property
    def marks(self) -> frozenset[str]:
        """The last words of the decorators."""
        return frozenset(decorator.rpartition(".")[2] for decorator in self.decorators)

    @property
    def is_property(self) -> bool:
        """Whether it is read, not called."""
        return not self.marks.isdisjoint(PROPERTIES)

    @property
    def opaque_decorator(self) -> str | None:
        """The first decorator that may change the signature, ``None`` if none may."""
        names = self.decorators
        return next((name for name in names if name.rpartition(".")[2] not in TRANSPARENT), None)

    @property
    def unbound(self) -> tuple[Parameter, ...]:
        """A method's parameters without the receiver."""
        first = self.parameters[:1]
        taken = first and first[0].kind <= Parameter.POSITIONAL_OR_KEYWORD
        return self.parameters[1 if taken and "staticmethod" not in self.marks else 0 :]

    def text(self) -> str:
        """Return the parameters as a person writes them, without annotations; many are cut short."""
        # unchecked: a file that Python refuses may have two of one name
        signature = Signature(self.parameters, __validate_parameters__=False)
        text = str(signature).replace("=Ellipsis", "=…")
        return text if len(text) <= _LONG else f"{text[: text.rindex(', ', 0, _LONG)]}, …)"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Class:
    """A class. ``attributes`` are all names that its code gives an instance, unless ``dynamic``; ``fields`` say of annotated ones whether they are required."""

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
    """A name bound by an import: its ``name`` is ``None`` for ``import module``, ``whole`` is true where the first component is bound."""

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


# --- what a name may mean in a tree

# Classes outside of which the checker is told (``stubs``).
_STATED = words("BaseModel Struct")


def is_standard(dotted: str) -> bool:
    """Tell whether a module, or a name in one, is of the standard library."""
    return dotted.partition(".")[0] in sys.stdlib_module_names


class Symbol(NamedTuple):
    """What a name means: something defined at ``path``, a module, something ``external``, or a value of which no more is known."""

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

    @property
    def unknown(self) -> bool:
        """Whether a base is outside the tree and the checker is told nothing of it."""
        known = (base.rpartition(".")[2] in _STATED or is_standard(base) for base in self.outside)
        return not all(known)

    def owner(self, name: str) -> tuple[Symbol, tuple[Function, ...]] | None:
        """Return the first class that defines a method, and its definitions."""
        owners = (one for one in self.classes if name in one.cls.methods)
        return next(((one, one.cls.methods[name]) for one in owners), None)
