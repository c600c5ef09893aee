"""A plugin of our own, the vLLM that it was made for, and the next one, which breaks it in every way that is looked for."""

from __future__ import annotations

import io
import tarfile
import zipfile
from textwrap import dedent
from typing import TYPE_CHECKING

from memory_tree import MemoryTree

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD = {
    "vllm/__init__.py": "",
    "vllm/loader.py": """
        from abc import ABC, abstractmethod


        def fetch(name):
            return name


        class Loader(ABC):
            limit = 1

            @abstractmethod
            def load(self, name): ...

            def close(self):
                return self.limit

            def place(self, config, tensors, sizes):
                return tensors

            def size(self, name):
                return len(name)


        class Engine:
            def run(self, loader: Loader):
                loader.load("a")
                loader.close()
                return loader.size("a")

            def shape(self, config, tensors, sizes):
                return tensors

            def begin(self):
                self.shape(1, {}, [])
                self.stop()

            def stop(self):
                return 1


        def start(loader: Loader):
            loader.place(1, {}, [])
            return fetch("a")
    """,
    "vllm/names.py": "def old_name(): ...\n\n\ndef kept(a): ...\n",
}
NEW = {
    **OLD,
    "vllm/loader.py": OLD["vllm/loader.py"]
    .replace("            limit = 1\n", "")
    .replace("return self.limit", "return 1")
    .replace("def size(self, name):", "def size(self, name, *, kind):")
    .replace('loader.size("a")', 'loader.size("a", kind=1)')
    .replace("config, tensors, sizes", "tensors, sizes")
    .replace("(1, {}, [])", "({}, [])")
    .replace("def stop(self)", "def halt(self)")
    .replace("self.stop()", "self.halt()")
    .replace(
        "def close(self):",
        "@abstractmethod\n            def unload(self): ...\n\n            def shut(self):",
    )
    .replace("loader.close()", "loader.shut()"),
    "vllm/names.py": "def new_name(): ...\n\n\ndef kept(a, b): ...\n",
}
PLUGIN = """
    from vllm.loader import Engine, Loader
    from vllm.names import kept, old_name


    class Fast(Loader):
        def load(self, name):
            return self.limit

        def close(self):
            return 2

        def place(self, config, tensors, sizes=()):
            return config

        def size(self, name):
            return 0


    def shape(self, config, tensors, *rest):
        return tensors


    def stop(self):
        return 2


    def register():
        Engine.shape = shape
        Engine.stop = stop
        kept(1)
        return Fast()
"""
METADATA = "Metadata-Version: 2.4\nName: fast-plugin\nVersion: 1.2\nRequires-Dist: vllm==0.18.0\n"
ENTRIES = "[vllm.general_plugins]\nfast = fast_plugin:register\n\n[console_scripts]\nx = y:z\n"
WHEEL = {
    "fast_plugin/__init__.py": PLUGIN,
    "fast_plugin.pth": "import fast_plugin\n",
    "fast_plugin-1.2.dist-info/METADATA": METADATA,
    "fast_plugin-1.2.dist-info/entry_points.txt": ENTRIES,
}


def tree_of(files: Mapping[str, str], version: str) -> MemoryTree:
    return MemoryTree({path: dedent(text).encode() for path, text in files.items()}, version)


def wheel_of(files: Mapping[str, str]) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, dedent(text))
    return held.getvalue()


def sdist_of(files: Mapping[str, str]) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as archive:
        for path, text in files.items():
            info = tarfile.TarInfo(f"fast-plugin-1.2/{path}")
            info.size = len(data := dedent(text).encode())
            archive.addfile(info, io.BytesIO(data))
    return held.getvalue()
