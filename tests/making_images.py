"""Images made in Python: layers from dicts, and the forms in which they are stored."""

from __future__ import annotations

import gzip
import hashlib
import importlib
import io
import json
import os
import platform
import sys
import tarfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

OLD = 1_500_000_000
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
LAYER = "application/vnd.oci.image.layer.v1.tar"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"


class Link(NamedTuple):
    target: str
    hard: bool = False


class Folder(NamedTuple):
    mode: int = 0o755
    uid: int = 0


class File(NamedTuple):
    data: bytes
    mode: int = 0o644
    uid: int = 0


Thing = bytes | Link | Folder | File


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def layer(things: Mapping[str, Thing]) -> bytes:
    """Return a tar, with every parent folder in it."""
    whole: dict[str, Thing] = {}
    for path in sorted(things):
        for parent in reversed(list(_parents(path))):
            whole.setdefault(parent, Folder())
        whole[path] = things[path]
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for path, thing in whole.items():
            info = tarfile.TarInfo(path)
            info.mtime = OLD
            if isinstance(thing, Link):
                info.type = tarfile.LNKTYPE if thing.hard else tarfile.SYMTYPE
                info.linkname, info.mode = thing.target, 0o777
                archive.addfile(info)
            elif isinstance(thing, Folder):
                info.type, info.mode = tarfile.DIRTYPE, thing.mode
                info.uid = info.gid = thing.uid
                archive.addfile(info)
            else:
                file = File(thing) if isinstance(thing, bytes) else thing
                info.size, info.mode = len(file.data), file.mode
                info.uid = info.gid = file.uid
                archive.addfile(info, io.BytesIO(file.data))
    return stream.getvalue()


def _parents(path: str) -> Sequence[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


@dataclass
class Image:
    """Layers (plain tars, the lowest first) and settings (``Env`` and so on)."""

    layers: list[bytes]
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = "localhost/base:latest"

    @property
    def config(self) -> bytes:
        return json.dumps(
            {
                "architecture": ARCHITECTURE,
                "os": "linux",
                "created": "2017-07-14T02:40:00Z",
                "config": self.settings,
                "rootfs": {"type": "layers", "diff_ids": [digest(one) for one in self.layers]},
                "history": [{"created_by": f"layer {n}"} for n, _ in enumerate(self.layers)],
            }
        ).encode()

    def blobs(self, packing: str = "") -> tuple[bytes, dict[str, bytes]]:
        """Return the manifest and every blob by digest; ``packing`` is ``""``, ``gzip``, ``zstd``."""
        packed = [_packed(one, packing) for one in self.layers]
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": _descriptor(CONFIG, self.config),
                "layers": [
                    _descriptor(LAYER + (f"+{packing}" if packing else ""), one) for one in packed
                ],
            }
        ).encode()
        return manifest, {digest(one): one for one in (manifest, self.config, *packed)}

    def index(self, manifest: bytes) -> bytes:
        tag = self.name.rpartition(":")[2]
        entry = _descriptor(MANIFEST, manifest)
        entry["annotations"] = {
            "org.opencontainers.image.ref.name": tag,
            "io.containerd.image.name": self.name,
        }
        return json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()

    def layout(self, folder: Path, packing: str = "") -> Path:
        manifest, blobs = self.blobs(packing)
        (folder / "blobs/sha256").mkdir(parents=True)
        for name, data in blobs.items():
            (folder / "blobs" / name.replace(":", "/")).write_bytes(data)
        (folder / "index.json").write_bytes(self.index(manifest))
        (folder / "oci-layout").write_bytes(b'{"imageLayoutVersion":"1.0.0"}')
        return folder

    def archive(self, path: Path, *, oci: bool = True, docker: bool = True) -> Path:
        """Write one tar that is an OCI layout, what ``docker load`` takes, or both."""
        manifest, blobs = self.blobs()
        files = {f"blobs/{name.replace(':', '/')}": data for name, data in blobs.items()}
        if oci:
            files["index.json"] = self.index(manifest)
            files["oci-layout"] = b'{"imageLayoutVersion":"1.0.0"}'
        if docker:
            paths = [f"blobs/{digest(one).replace(':', '/')}" for one in self.layers]
            config = f"blobs/{digest(self.config).replace(':', '/')}"
            saved = [{"Config": config, "RepoTags": [self.name], "Layers": paths}]
            files["manifest.json"] = json.dumps(saved).encode()
        with tarfile.open(path, "w:") as archive:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return path


def zstd(data: bytes) -> bytes:
    """Pack with the module that this Python has."""
    name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    packed: bytes = importlib.import_module(name).compress(data)
    return packed


def _packed(data: bytes, packing: str) -> bytes:
    if packing == "gzip":
        return gzip.compress(data, 1, mtime=0)
    if packing == "zstd":
        return zstd(data)
    return data


def _descriptor(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def of_platforms(image: Image, place: Path, *names: str) -> Path:
    """Write a layout with an index of one image for several platforms, and nothing else."""
    image.layout(place)
    listed = []
    for name in names:
        architecture = name.split("/")[1]
        config = json.dumps({**json.loads(image.config), "architecture": architecture}).encode()
        manifest = json.loads(image.blobs()[0])
        manifest["config"] |= {"digest": digest(config), "size": len(config)}
        data = json.dumps(manifest).encode()
        for one in (config, data):
            (place / f"blobs/{digest(one).replace(':', '/')}").write_bytes(one)
        of = {"os": "linux", "architecture": architecture}
        listed.append(
            {"mediaType": MANIFEST, "digest": digest(data), "size": len(data), "platform": of}
        )
    index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": listed}).encode()
    (place / f"blobs/{digest(index).replace(':', '/')}").write_bytes(index)
    top = {"schemaVersion": 2, "manifests": [_descriptor(INDEX, index)]}
    (place / "index.json").write_text(json.dumps(top))
    return place


def from_disk(root: Path) -> dict[str, Thing]:
    """Return everything below a folder, for ``layer``."""
    found: dict[str, Thing] = {}
    for path in root.rglob("*"):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = Link(os.readlink(path))
        elif path.is_dir():
            found[name] = Folder(path.stat().st_mode & 0o7777)
        else:
            found[name] = File(path.read_bytes(), path.stat().st_mode & 0o7777)
    return found
