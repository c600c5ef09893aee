"""An image that is a folder, and what a container would see of a layer on it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vllm_mods.images.model import DIR, FILE, LINK, OTHER, Blob, Descriptor, ImageEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@dataclass
class FolderBase:
    """A ``Base`` over a folder; ``owners`` are those that the folder itself cannot have."""

    root: Path
    reference: str = "folder:base"
    where: str = "oci-layout"
    settings: dict[str, Any] = field(default_factory=dict)
    owners: dict[str, tuple[int, int]] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    manifest: bytes | None = None
    manifest_digest: str | None = None
    layers: tuple[Descriptor, ...] | None = (Descriptor(_LAYER, "sha256:" + "b" * 64, 7),)
    blobs: tuple[Blob, ...] = ()
    diff_ids: tuple[str, ...] = ("sha256:" + "a" * 64,)
    closed: bool = False
    config: bytes = field(init=False)
    config_digest: str = field(init=False)

    def __post_init__(self) -> None:
        self.configure(self.settings)

    def configure(self, settings: dict[str, Any]) -> None:
        """Say what a container takes from the image."""
        raw = {
            "architecture": "amd64",
            "os": "linux",
            "config": settings,
            "rootfs": {"type": "layers", "diff_ids": list(self.diff_ids)},
        }
        self.config = json.dumps(raw, sort_keys=True, separators=(",", ":")).encode()
        self.config_digest = f"sha256:{hashlib.sha256(self.config).hexdigest()}"

    def look(self, path: str) -> ImageEntry | None:
        return self.entry(path)

    def entry(self, path: str) -> ImageEntry | None:
        place = self.root
        for part in path.split("/")[:-1]:
            place /= part
            if place.is_symlink():
                return None
        place = self.root / path
        try:
            info = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        kind = OTHER
        for is_one, name in ((stat.S_ISREG, FILE), (stat.S_ISDIR, DIR), (stat.S_ISLNK, LINK)):
            if is_one(info.st_mode):
                kind = name
        uid, gid = self.owners.get(path, (info.st_uid, info.st_gid))
        return ImageEntry(
            path=path,
            kind=kind,
            mode=self.modes.get(path, stat.S_IMODE(info.st_mode)),
            uid=uid,
            gid=gid,
            mtime=int(info.st_mtime),
            target=os.readlink(place) if kind == LINK else "",
            size=info.st_size if kind == FILE else 0,
        )

    def read(self, path: str) -> bytes | None:
        entry = self.entry(path)
        return (self.root / path).read_bytes() if entry and entry.kind == FILE else None

    def paths(self, under: str) -> Iterator[ImageEntry]:
        for folder, folders, files in os.walk(self.root / under):
            for name in (*folders, *files):
                entry = self.entry(os.path.relpath(os.path.join(folder, name), self.root))
                assert entry is not None
                yield entry

    def close(self) -> None:
        self.closed = True


def lay(layer: bytes, root: Path) -> None:
    """Put a layer over a folder as an engine does: whiteouts first, then what is new."""
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        members = archive.getmembers()
        for member in members:
            folder, name = os.path.split(member.name)
            if name.startswith(".wh."):
                hidden = root / folder / name[4:]
                shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
        for member in members:
            if os.path.basename(member.name).startswith(".wh."):
                continue
            place = root / member.name
            if member.isdir():
                place.mkdir(exist_ok=True)
            else:
                file = archive.extractfile(member)
                assert file is not None
                place.unlink(missing_ok=True)
                place.write_bytes(file.read())
            place.chmod(member.mode)
        for member in reversed(members):
            place = root / member.name
            if place.exists():
                os.utime(place, (member.mtime, member.mtime))
