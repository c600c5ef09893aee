"""Images of vLLM releases as launchers have them: the release's Python files, a shell with its programs, stand-ins for torch.

Nothing is pulled: the programs are this machine's, the release comes from the index.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import packaging
from making_images import File, Image, Link, Thing, layer
from real_engines import SITE, VERSION, base, libraries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from real_engines import Engine

PROGRAMS = (
    *(
        "awk",
        "basename",
        "bash",
        "cat",
        "chmod",
        "cp",
        "diff",
        "dirname",
        "env",
        "find",
        "git",
        "grep",
    ),
    *("head", "install", "ls", "mkdir", "mv", "patch", "perl", "rm", "rmdir", "sed", "sh", "sleep"),
    *("sort", "tail", "tee", "touch", "tr", "true", "wc", "xargs", "cmp"),
)
ANYTHING = '''\
"""Modules in which every name is there."""

import importlib.machinery
import sys
import types


NAMES = {"torch", "numpy", "regex", "psutil", "typing_extensions"}


class Anything(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")

    def __call__(self, *given, **_named):
        return given[0] if given and callable(given[0]) else self

    def __mro_entries__(self, _bases):
        return (object,)

    def __getitem__(self, _key):
        return self

    def __iter__(self):
        return iter(())

    def __or__(self, _other):
        return self

    def __hash__(self):
        return hash(self.__name__)

    def __setitem__(self, _key, _value):
        pass

    __ror__ = __or__
    __eq__ = object.__eq__


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        known = name.partition(".")[0] in NAMES
        return importlib.machinery.ModuleSpec(name, Finder, is_package=True) if known else None

    @staticmethod
    def create_module(spec):
        return Anything(spec.name)

    @staticmethod
    def exec_module(module):
        pass


sys.meta_path.append(Finder)
'''
STAND_IN = """\
from anything import Anything

__version__ = "%s"


def __getattr__(name):
    if name.startswith("__") and name.endswith("__"):
        raise AttributeError(name)
    return Anything(f"{__name__}.{name}")
"""
BESIDE = {
    "anything.py": ANYTHING,
    "numpy/__init__.py": STAND_IN % "2.2.0",
    "torch/__init__.py": STAND_IN % "2.9.0",
    "torch-2.9.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.9.0\n",
    "transformers/__init__.py": '__version__ = "4.57.0"\n',
    "transformers/configuration_utils.py": '"""Stands in."""\n\nLIMIT = 1\n',
    "transformers-4.57.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: transformers\nVersion: 4.57.0\n",
}


def _packaging() -> dict[str, bytes]:
    folder = Path(packaging.__path__[0])
    return {path.name: path.read_bytes() for path in folder.glob("*.py")}


def shell_layer() -> bytes:
    """Return a layer with a shell and the programs that scripts call."""
    found = {name: shutil.which(name) for name in PROGRAMS}
    things: dict[str, Thing] = {
        f"usr/bin/{name}": File(Path(path).resolve().read_bytes(), 0o755)
        for name, path in found.items()
        if path is not None
    }
    binaries = [str(Path(path).resolve()) for path in found.values() if path is not None]
    for library in libraries(binaries):
        place = library.lstrip("/")
        place = place if place.startswith("usr/") else f"usr/{place}"
        things[place] = File(Path(library).read_bytes(), 0o755)
    things["usr/bin/python3"] = Link(f"/usr/local/bin/python{VERSION}")
    things["bin"] = Link("usr/bin")
    # what it would install is there: nothing has a network
    things["usr/bin/pip"] = File(b"#!/bin/sh\nexit 0\n", 0o755)
    return layer(things)


def release_image(python: bytes, shell: bytes, version: str, files: Mapping[str, bytes]) -> Image:
    """Return the image of a release; its name is ``localhost/vllm:VERSION``."""
    metadata = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n"
    site: dict[str, Thing] = dict(files)
    site |= {path: text.encode() for path, text in BESIDE.items()}
    site[f"vllm-{version}.dist-info/METADATA"] = metadata.encode()
    about = f"__version__ = version = {version!r}\n__version_tuple__ = {(*version.split('.'),)!r}\n"
    site["vllm/_version.py"] = about.encode()
    site |= {f"packaging/{name}": data for name, data in _packaging().items()}
    made = base(python, site, f"localhost/vllm:{version}")
    made.layers.insert(1, shell)
    return made


def ran(engine: Engine, image: str, name: str, folder: Path) -> tuple[int, dict[str, bytes | None]]:
    """Run a mod's folder in an image as launchers do, by the engine alone: its exit code, and what it left changed.

    That is what the container has beside the image, by path: below site-packages, else absolute.
    """
    home = f"/workspace/mods/{name}"
    environ = {
        "WORKSPACE_DIR": "/workspace",
        "PYTHON_ROOT": f"/{SITE}",
        "VLLM_SITE_PACKAGES": f"/{SITE}",
        "VLLM_PACKAGE_DIR": f"/{SITE}/vllm",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    words = [word for pair in environ.items() for word in ("--env", "=".join(pair))]
    run = f"cd {home} && chmod +x run.sh && ./run.sh"
    container = engine(
        *("create", "--network", "none", *words, "--entrypoint", "bash", image, "-c", run)
    )
    try:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.add(folder, home.lstrip("/"))
        _talk(engine, "cp", "-", f"{container}:/", given=packed.getvalue())
        engine("start", "--attach", container, check=False)
        code = int(engine("inspect", "--format", "{{.State.ExitCode}}", container))
        changes = [row.split(" ", 1) for row in engine("diff", container).splitlines()]
        left = {}
        for kind, path in changes:
            if path.startswith(home) or path.endswith((".pyc", ".orig")):
                continue  # the folder itself, bytecode, and what patch leaves behind
            data = None if kind == "D" else _file(engine, container, path)
            if kind == "D" or data is not None:
                left[path.removeprefix(f"/{SITE}/")] = data
        return code, left
    finally:
        engine("rm", "-f", container)


def _file(engine: Engine, container: str, path: str) -> bytes | None:
    """Return what a file of a container has, None for a folder."""
    packed = _talk(engine, "cp", f"{container}:{path}", "-")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        member = archive.next()
        data = archive.extractfile(member) if member is not None else None
        return data.read() if data is not None else None


def _talk(engine: Engine, *words: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        [engine.tool, *words],
        env={**os.environ, **engine.environ},
        input=given,
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout
