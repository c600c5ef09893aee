"""Mods that are named by where they lie: a folder with a ``mod.toml``, or a patch alone."""

import os
import re

from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod
from vllm_mods.library import mod_folder, reading
from vllm_mods.library.catalog import Library

_OF_PATCH = """
schema = 1
name = "{name}"
version = "0"
summary = "A patch without a mod.toml"
license = "LicenseRef-unknown"

[[variant]]
id = "patch"
vllm = ">=0"
patches = ["one.patch"]
"""


def load(path: str, library: Library) -> tuple[Mod, ...]:
    """Read the mod at a place, behind those of the library that it requires.

    A patch is taken for every vLLM. Raises ``UsageError`` where there is none, ``ManifestError`` for a faulty one.
    """
    place = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(place):
        return (_of_patch(path, place),)
    if not os.path.isfile(os.path.join(place, mod_folder.MANIFEST)):
        raise UsageError(
            f"{path} is a folder without a {mod_folder.MANIFEST}",
            hint="name the folder of a mod, or a .patch file",
        )
    mod = mod_folder.load_mod(place, library.roots)
    return (*library.select(mod.requires), mod)


def _of_patch(path: str, place: str) -> Mod:
    data = reading.read(place, None)
    if data is None:
        raise UsageError(f"{path}: no such file or folder", hint="vllm-mods list")
    name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(path).rpartition(".")[0].lower()).strip("-")
    name = name if name[:1].isalpha() else f"patch-{name}".strip("-")
    manifest = _OF_PATCH.format(name=name).encode()
    mod = mod_folder.load_files(name, {mod_folder.MANIFEST: manifest, "one.patch": data})
    variant = mod.variants[0]
    patches = tuple(patch._replace(source=path, root="") for patch in variant.patches)
    return mod._replace(directory="", variants=(variant._replace(patches=patches),))
