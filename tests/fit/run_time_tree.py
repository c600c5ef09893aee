"""A small vLLM that calls what is its own, for code that replaces it at run time."""

from __future__ import annotations

from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange, Finding, Level
from vllm_mods.fit import fit

FILES = {
    "vllm/__init__.py": b'__version__ = "0.20.0"\n',
    "vllm/a.py": b"""from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    SMALL = 1
    LARGE = 2


@dataclass(frozen=True)
class Options:
    depth: int = 1


class Store(ABC):
    @abstractmethod
    def load(self, name): ...

    @abstractmethod
    def save(self, name, data): ...


class Worker:
    limit = 3

    def __init__(self):
        self.x = 1

    def run(self, a):
        return a

    def step(self, batch, *, dry=False):
        return batch, len(batch)

    async def fetch(self, key):
        return key

    @property
    def size(self):
        return self.x

    @staticmethod
    def parse(text):
        return text.split()

    @classmethod
    def make(cls, name):
        return cls()


class Fast(Worker):
    pass


def helper(a):
    return a


def split(text):
    return text[:1], text[1:]


def inside(text):
    first, rest = split(text)
    return helper(first), rest
""",
    "vllm/engine.py": b"""import vllm.a as a
from vllm.a import Options, Worker


class Engine:
    def __init__(self):
        self.worker = Worker()
        self.options = Options()

    def loop(self, batch):
        result, count = self.worker.step(batch, dry=True)
        return self.worker.run(result), count, self.worker.size + 1, self.worker.limit

    def words(self, text):
        return self.worker.parse(text) + a.helper(text)

    def other(self):
        return Worker.make("other"), a.Worker()

    async def get(self, key):
        return await self.worker.fetch(key)
""",
    "vllm/use.py": b"""import functools
import vllm.a as a
from vllm.a import Fast, Kind, Options, Store, Worker, helper
from vllm.engine import Engine
""",
}


def errors(added: str) -> list[Finding]:
    """Return what the fit says no to where text is added to the last file."""
    tree, before = MemoryTree(FILES), FILES["vllm/use.py"]
    change = FileChange("vllm/use.py", before, before + added.encode())
    return [one for one in fit((change,), tree).findings if one.level is Level.ERROR]
