"""Mods that are named by where they lie: a folder with a ``mod.toml``, or a patch alone."""

import os
import re
import shlex

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import Mod, PatchFile, Variant
from vllm_mods.library import mod_folder, reading
from vllm_mods.library.catalog import Library


def load(path: str, library: Library) -> tuple[Mod, ...]:
    """Read the mod at a place, behind those of the library that it requires.

    A patch is taken for every vLLM. Raises ``UsageError`` where there is none, ``ManifestError`` for a faulty one.
    """
    place = os.path.abspath(os.path.expanduser(path))
    if not os.path.isdir(place):
        return (_of_patch(path, place),)
    if not os.path.isfile(os.path.join(place, mod_folder.MANIFEST)):
        why = f"{path} is a folder without a {mod_folder.MANIFEST}"
        raise UsageError(why, hint="name the folder of a mod, or a .patch file")
    mod = mod_folder.load_mod(place, library.roots)
    return (*library.select(mod.requires), mod)


def _of_patch(path: str, place: str) -> Mod:
    data = reading.read(place, None)
    if data is None:
        why = f"{path}: no such file or folder"
        hint = (
            f"ls -la {os.path.dirname(place)}  # `vllm-mods list` shows the mods that have a name"
        )
        raise UsageError(why, hint=hint)
    return Mod(
        _name(path),
        version="0",
        summary="A patch without a mod.toml",
        license="LicenseRef-unknown",
        directory="",
        digest=sha256(data),
        variants=(Variant("patch", ">=0", patches=(PatchFile(path, data),)),),
    )


def naming(path: str, made_on: str = "auto") -> str:
    """Return how a patch alone, ``made_on`` a tree, or a folder, comes to be a mod that every command takes by its name."""
    place, name = os.path.split(os.path.normpath(path))
    library, patches = os.path.split(place)
    if not os.path.isdir(os.path.expanduser(path)):
        name = _name(path)
        return f"vllm-mods new {name} --from-diff {shlex.quote(path)} --tree {made_on} --library mods  # makes a mod of the patch; then give {name} --library mods instead of the file"
    if patches == "patches":
        return f"vllm-mods apply {name} --library {shlex.quote(library or '.')}"
    return f"move it to LIBRARY/patches/{name}, then give {name} --library LIBRARY instead"


def _name(path: str) -> str:
    name = re.sub(r"[^a-z0-9]+", "-", os.path.basename(path).rpartition(".")[0].lower()).strip("-")
    return name if name[:1].isalpha() else f"patch-{name}".strip("-")
