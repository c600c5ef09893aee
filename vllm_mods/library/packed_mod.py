"""A mod as one file, for the tree it went into: bytes ↔ ``Mod``. Pure.

Taking one mod out while others stay means planning those again, perhaps years later and
without the library they came from. One file, since every file of a transaction costs a sync.
"""

import json

from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Mod
from vllm_mods.base.tree import Tree
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.receipt import kept
from vllm_mods.library import mod_folder

SCHEMA = 1


def pack(mod: Mod) -> bytes:
    """Return every file of a mod as JSON: text by its name from the mod's folder."""
    files = files_of(mod).items()
    texts = {name: data.decode("utf-8", "surrogateescape") for name, data in files}
    raw = {"schema": SCHEMA, "files": texts}
    return (json.dumps(raw, indent=0, sort_keys=True) + "\n").encode()


def files_of(mod: Mod) -> dict[str, bytes]:
    """Return a mod's manifest, its lock if it has one, and the files that the manifest names, by their names."""
    files = {mod_folder.MANIFEST: mod.manifest}
    if mod.lock is not None:
        files[mod_folder.LOCK] = mod.lock
    files |= {file.source: file.data for file in mod.files}
    for variant in mod.variants:
        every = (variant.patches, variant.overlay, variant.templates, variant.binary, variant.fetch)
        for group in every:
            files |= {file.source: file.data for file in group}
    return files


def unpack(data: bytes, where: str, name: str) -> Mod:
    """Read what ``pack`` wrote. Raises ``Refused`` if it is something else."""
    try:
        raw = json_of(data)
        texts = {SCHEMA: raw["files"]}[raw["schema"]]
        files = {source: text.encode("utf-8", "surrogateescape") for source, text in texts.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{where}: not a stored mod: {error!r}; nothing was changed"
        hint = "`vllm-mods revert` without a mod name does not need this file"
        raise Refused(why, hint=hint) from error
    return mod_folder.load_files(name, files)


def kept_mod(tree: Tree, name: str) -> Mod | None:
    """Read a mod as it was when it went into a tree, None where the tree has not kept it."""
    path = kept(name)
    raw = tree.read(path)
    return None if raw is None else unpack(raw, f"{tree.spec}: {path}", name)
