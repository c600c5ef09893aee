"""A small vLLM: enough of it that every check has something to say."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

from memory_tree import MemoryTree

from vllm_mods.base.model import FileChange, Level
from vllm_mods.fit import fit
from vllm_mods.fit.users import changed_names, users
from vllm_mods.fit.world import SummaryCache, World

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vllm_mods.base.model import Finding

BASE = "vllm/model_executor/layers/quantization/base_config.py"
INC = "vllm/model_executor/layers/quantization/inc.py"

FILES = {
    "PKG-INFO": "Metadata-Version: 2.4\nRequires-Python: <3.15,>=3.10\n",
    "vllm/__init__.py": """
        import typing

        MODULE_ATTRS = {"LLM": ".entrypoints.llm:LLM"}

        if not typing.TYPE_CHECKING:

            def __getattr__(name):
                if name in MODULE_ATTRS:
                    return MODULE_ATTRS[name]
                else:
                    raise AttributeError(name)
    """,
    "vllm/logger.py": "def init_logger(name: str): ...\n",
    "vllm/entrypoints/llm.py": "class LLM:\n    def __init__(self, model): self.model = model\n",
    "vllm/config/__init__.py": "from vllm.config.vllm import *\n",
    "vllm/config/vllm.py": """
        from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

        __all__ = ["VllmConfig", "make"]


        class VllmConfig:
            def quantization(self, model, hf_config):
                from vllm.model_executor.layers.quantization import get_config

                quant_config = get_config(model)
                quant_config.maybe_update_config(model, hf_config=hf_config)
                return quant_config


        def make(model, *, seed=0):
            return VllmConfig()


        def hidden(): ...
    """,
    "vllm/model_executor/layers/quantization/__init__.py": """
        from .base_config import QuantizationConfig


        def get_config(model) -> QuantizationConfig: ...
    """,
    BASE: """
        from abc import ABC, abstractmethod


        class QuantizationConfig(ABC):
            def __init__(self):
                super().__init__()
                self.packed_modules_mapping = {}

            @abstractmethod
            def get_name(self): ...

            def maybe_update_config(self, model_name: str, hf_config=None, revision=None):
                pass
    """,
    INC: """
        from dataclasses import dataclass, field
        from typing import TYPE_CHECKING

        from vllm.logger import init_logger
        from vllm.model_executor.layers.quantization.base_config import QuantizationConfig

        if TYPE_CHECKING:
            from vllm.config import VllmConfig

        logger = init_logger(__name__)


        @dataclass
        class Layer:
            name: str
            bits: int = 4
            tags: list = field(default_factory=list)


        class INCConfig(QuantizationConfig):
            def __init__(self, bits: int, group: int = 128):
                super().__init__()
                self.bits = bits
                self.group = group

            def get_name(self):
                return "inc"

            def pick(self, name):
                if name is None:
                    return None
                return Layer(name, self.bits)
    """,
}


def tree_of(files: Mapping[str, str], *, remote: bool = False) -> MemoryTree:
    return MemoryTree(
        {path: dedent(text).lstrip("\n").encode() for path, text in files.items()}, remote=remote
    )


def errors(path: str, *pairs: tuple[str, str], files: Mapping[str, str] = FILES) -> list[Finding]:
    """Replace text in one file of the tree; return what fit says no to."""
    return [f for f in findings(path, *pairs, files=files) if f.level is Level.ERROR]


def findings(
    path: str, *pairs: tuple[str, str], files: Mapping[str, str] = FILES, remote: bool = False
) -> list[Finding]:
    """Replace text in one file of the tree; return everything that fit says."""
    tree = tree_of(files, remote=remote)
    return list(fit((change(tree, path, *pairs),), tree).findings)


def change(tree: MemoryTree, path: str, *pairs: tuple[str, str]) -> FileChange:
    before = tree.files[path]
    after = before.decode()
    for old, new in pairs:
        assert after.count(old) == 1, old
        after = after.replace(old, new)
    return FileChange(path=path, before=before, after=after.encode())


def world_of(files: Mapping[str, str], changes: Mapping[str, str | None] | None = None) -> World:
    """Return a tree with some files changed, as the checks see it."""
    changed = {
        path: None if text is None else dedent(text).lstrip("\n").encode()
        for path, text in (changes or {}).items()
    }
    return World(tree_of(files), changed, SummaryCache())


def users_of(
    before: World, after: World, path: str = "vllm/a.py"
) -> tuple[dict[str, frozenset[int]], frozenset[str]]:
    """Return the lines of other files that use what changes in a file, and the words they are found by."""
    return users(after, changed_names(before, after, path))
