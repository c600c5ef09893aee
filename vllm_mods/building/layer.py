"""The tar of a layer: what is new, what a whiteout hides, and every folder on the way. Pure.

The folders are part of it, with the mode, owner and time that the base has for them: an engine that meets a
file in a layer without its folders makes /root or /tmp anew as it thinks fit. Each path is where it leads in
the base, since a folder that takes the place of a symbolic link (``/lib``) breaks the image.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from vllm_mods.base.errors import Refused
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images.model import DIR, Base, resolve

WHITEOUT = ".wh."


def entries(
    base: Base, nodes: Iterable[TarEntry], gone: Iterable[str], *, epoch: int
) -> tuple[TarEntry, ...]:
    """Return what a layer on ``base`` holds, sorted by path.

    ``nodes`` are new files and folders; one without an owner gets that of what lies there in the base, else of
    the folder around it. ``gone`` are paths of the base to be hidden. ``epoch`` is the time of the whiteouts, and of
    folders that ``nodes`` need and nobody has. Raises ``Refused`` for a path that leads through a file.
    """
    builder = _LayerTar(base, epoch)
    # Outer folders first: whoever is in one asks for its owner.
    for node in sorted(nodes, key=lambda node: (node.data is not None, node.path)):
        builder.add(node)
    for path in gone:
        builder.hide(path)
    # by parts, so that a folder comes right before what is in it
    return tuple(sorted(builder.entries.values(), key=lambda entry: entry.path.split("/")))


@dataclass
class _LayerTar:
    base: Base
    epoch: int
    entries: dict[str, TarEntry] = field(default_factory=dict)

    def add(self, node: TarEntry) -> None:
        if any(part.startswith(WHITEOUT) for part in node.path.split("/")):
            why = f"/{node.path} marks a deleted file in a layer, so no file in an image can have that name; nothing was built"
            raise Refused(why, hint="remove the path from the mod")
        folder, name = os.path.split(node.path)
        folder = self.folder(resolve(self.base, folder))
        path = os.path.join(folder, name)
        below = self.base.entry(path)
        owner = node.owner or ((below.uid, below.gid) if below else self.owner(folder))
        self.entries[path] = node._replace(path=path, owner=owner)

    def hide(self, path: str) -> None:
        folder, name = os.path.split(path)
        folder = self.folder(resolve(self.base, folder))
        hidden = os.path.join(folder, f"{WHITEOUT}{name}")
        self.entries[hidden] = TarEntry(hidden, b"", 0, mtime=self.epoch)

    def folder(self, path: str) -> str:
        """Add a resolved folder and all around it, and return its path."""
        if not path or path in self.entries:
            return path
        parent = self.folder(os.path.dirname(path))
        below = self.base.entry(path)
        if below is None:
            entry = TarEntry(path, None, 0o755, self.epoch, self.owner(parent))
        elif below.kind == DIR:
            entry = TarEntry(path, None, below.mode, below.mtime, (below.uid, below.gid))
        else:
            why = f"{self.base.reference}: /{path} is a {below.kind}, but the mod needs a folder there; nothing was built"
            raise Refused(why, hint="remove the path from the mod, or build on another base")
        self.entries[path] = entry
        return path

    def owner(self, folder: str) -> tuple[int, int]:
        entry = self.entries.get(folder)
        return (entry and entry.owner) or (0, 0)
