"""What a plan asked of a tree, in order: as long as a tree answers alike, the plan is the same.

A plan is a function of the mods and of what it reads. Two trees that give the same answers to
the questions asked of the one make the same plan, whatever else differs between them: this is what
a build system keeps as the dependencies of a target. Since each question follows from the answers
before it, a tree that is held against a list is asked nothing that its own plan would not ask.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.tree import Tree, TreeView

# How many answers are kept one by one; a search through a whole tree asks thousands, and those
# beyond are kept as one digest.
_SINGLE = 96
_Given = TypeVar("_Given")

Question = tuple[str, str, str]
"""A kind (``read``, ``paths``, ``folders``, ``package``, ``platform``, ``released``), what was asked for, and the answer as a short text."""


class Recorder(TreeView):
    """A tree that remembers what it was asked and what it said.

    ``failure`` is the first error of the tree: what was planned after one is good for nothing else.
    """

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self._asked: dict[tuple[str, str], str] = {}
        self.failure: TreeError | None = None

    def _noted(self, kind: str, what: str, ask: Callable[[], _Given]) -> _Given:
        """Return what the tree says, and note it."""
        try:
            answer = ask()
        except TreeError as error:
            self.failure = self.failure or error
            raise
        self._asked.setdefault((kind, what), _TOLD[kind](answer))
        return answer

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        return self._noted("read", path, lambda: self.below.read(path))

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths below a folder."""
        return self._noted("paths", under, lambda: tuple(self.below.paths(under)))

    def load(self, paths: Collection[str]) -> None:
        """Have the files here; what is read of them is asked."""
        self.below.load(paths)

    def layers(self) -> tuple[Tree, Mapping[str, bytes | None]]:
        """Return the tree below, all of whose Python is asked for with that."""
        for path in self.paths("vllm"):
            known = self.below.digest(path) if path.endswith((".py", ".pyi")) else ""
            if known is None:
                self.read(path)
            elif known:
                self._asked.setdefault(("read", path), _short(known))
        return self.below.layers()

    def folders(self) -> Collection[str]:
        """Return the folders in the site root that the tree knows."""
        return self._noted("folders", "", lambda: tuple(self.below.folders()))

    def package(self, name: str) -> str | None:
        """Return the version of another distribution."""
        return self._noted("package", name, lambda: self.below.package(name))

    @property
    def platform(self) -> str | None:
        """What the tree is built for."""
        return self._noted("platform", "", lambda: self.below.platform)

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask whether these bytes were shipped; they are those that ``path`` was read with."""
        return self._noted("released", path, lambda: self.below.is_released(path, data))

    @property
    def packages(self) -> dict[str, str]:
        """The other distributions that were asked for and are there, with their versions."""
        asked = self._asked.items()
        return {what: said for (kind, what), said in asked if kind == "package" and said}

    def questions(self) -> tuple[Question, ...]:
        """Return what was asked, with the answers, in the order in which it was asked."""
        return tuple((kind, what, said) for (kind, what), said in self._asked.items())


def pack(asked: tuple[Question, ...]) -> dict[str, Any]:
    """Return questions as what JSON can hold, in less space than one answer each."""
    rest = asked[_SINGLE:]
    return {
        "one": [list(question) for question in asked[:_SINGLE]],
        "more": [list(question[:2]) for question in rest],
        "digest": _fold(said for _, _, said in rest),
    }


def holds(packed: dict[str, Any], tree: Tree) -> bool:
    """Tell whether a tree answers as the one did that ``packed`` was asked of.

    Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what ``pack`` did not make.
    """
    try:
        if any(_ask(tree, kind, what) != said for kind, what, said in packed["one"]):
            return False
        rest = _fold(_ask(tree, kind, what) for kind, what in packed["more"])
        return rest == str(packed["digest"])
    except TreeError:
        return False  # the plan will meet the same error, and has the words for it


def _ask(tree: Tree, kind: str, what: str) -> str:
    known = tree.digest(what) if kind == "read" else None
    return _short(known) if known is not None else _TOLD[kind](_ASKED[kind](tree, what))


def _released(tree: Tree, path: str) -> bool | None:
    data = tree.read(path)
    return None if data is None else tree.is_released(path, data)


def _listing(paths: Iterable[str]) -> str:
    return _fold(sorted(paths))


def _fold(texts: Iterable[str]) -> str:
    return _short(sha256("\n".join(texts).encode("utf-8", "surrogateescape")))


def _short(digest: str | None) -> str:
    """Return half of a sha256: 128 bits are enough to tell files apart."""
    return "" if digest is None else digest[:32]


_ASKED: dict[str, Callable[[Tree, str], Any]] = {
    "read": lambda tree, path: tree.read(path),
    "paths": lambda tree, under: tree.paths(under),
    "folders": lambda tree, _: tree.folders(),
    "package": lambda tree, name: tree.package(name),
    "platform": lambda tree, _: tree.platform,
    "released": _released,
}
"""How a tree is asked, by the kind of a question."""
_TOLD: dict[str, Callable[[Any], str]] = {
    "read": lambda data: _short(sha256(data)),
    "paths": _listing,
    "folders": _listing,
    "package": lambda version: version or "",
    "platform": lambda name: name or "",
    "released": str,
}
"""What it says, as a short text."""
