"""What a name or an expression may mean in a tree: something defined there, a module, or something outside."""

from typing import NamedTuple

from vllm_mods.fit.shapes import Class, Function, Value, words

# Classes outside of which the checker is told (``stubs``).
_STATED = words("BaseModel Struct")


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

    @property
    def unknown(self) -> bool:
        """Whether a base is outside the tree and nothing is known of it."""
        return any(base.rpartition(".")[2] not in _STATED for base in self.outside)

    def owner(self, name: str) -> tuple[Symbol, tuple[Function, ...]] | None:
        """Return the first class that defines a method, and its definitions."""
        owners = (one for one in self.classes if name in one.cls.methods)
        return next(((one, one.cls.methods[name]) for one in owners), None)
