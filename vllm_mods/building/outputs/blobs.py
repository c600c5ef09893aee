"""The base's layers as files, for outputs that hold all of an image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import posixpath
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from io import FileIO
from typing import BinaryIO, NamedTuple, Protocol

from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.building import oci
from vllm_mods.building.oci import BuiltImage
from vllm_mods.formats import tars
from vllm_mods.images import names
from vllm_mods.images.model import Base, Descriptor
from vllm_mods.images.streams import CHUNK, GZIP, ZSTD, CheckedStream, Source


class Opener(Protocol):
    """Opens a layer; ``digest`` is that of the bytes it gives."""

    digest: str

    def open(self) -> BinaryIO:
        """Return the layer from its start."""


class Blobs(NamedTuple):
    """The layers of a base, the lowest first, and what opens each, by its digest."""

    descriptors: tuple[Descriptor, ...]
    openers: Mapping[str, Callable[[], BinaryIO]]

    def named(self, image: BuiltImage) -> BuiltImage:
        """Return an image whose manifest names the base's layers as they are here."""
        if image.layers is not None and image.layers[:-1] == self.descriptors:
            return image
        return oci.with_layers(image, self.descriptors)

    def pieces(self, one: Descriptor) -> Iterator[bytes]:
        """Yield the bytes of a layer. Raises ``TreeError`` if they are others than its digest says."""
        with self.openers[one.digest]() as file:
            checked = CheckedStream(file, one.digest, None, f"layer {one.digest} of the base")
            yield from iter(lambda: checked.read(CHUNK), b"")

    def link(self, one: Descriptor, place: str) -> bool:
        """Give a layer a second name, if it is a file of its own on the same disk."""
        with self.openers[one.digest]() as file:
            source = file.name if isinstance(getattr(file, "name", None), str) else None
            if source is None or os.stat(source).st_size != one.size:
                return False
            try:
                os.link(source, place)
            except OSError:
                return False
            return True


@contextlib.contextmanager
def open_blobs(base: Base, near: str) -> Iterator[Blobs]:
    """Give access to the layers of a base; what has to be unpacked for it goes ``near`` a path.

    Raises ``Refused`` where only an engine has them and gives none out.
    """
    openers: Sequence[Opener] = getattr(base, "blobs", ())
    if base.layers is not None and openers:
        yield Blobs(base.layers, {one.digest: one.open for one in openers})
        return
    if not openers and base.where not in {"docker", "containerd"}:
        raise Refused(
            f"{base.where} does not give out the layers of {base.reference}; nothing was written",
            hint=f"skopeo copy containers-storage:{names.plain(base.reference)} oci:DIR, then --base oci:DIR",
        )
    folder = tempfile.mkdtemp(dir=os.path.dirname(os.path.abspath(near)), prefix=".vllm-mods-")
    try:
        found = tuple(_opened(one, folder) for one in openers) or _saved(base, folder)
        yield Blobs(
            found, {one.digest: partial(FileIO, _place(folder, one.digest)) for one in found}
        )
    finally:
        shutil.rmtree(folder)


def _opened(opener: Opener, folder: str) -> Descriptor:
    with opener.open() as file:
        return _kept(file, folder)


def _saved(base: Base, folder: str) -> tuple[Descriptor, ...]:
    """Let docker write out an image, and keep its layers under their digests."""
    name = names.plain(base.reference)
    found: dict[str, Descriptor] = {}
    links: dict[str, str] = {}
    manifest = b""
    with subprocess.Popen(
        ["docker", "save", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None  # noqa: S101, PT018
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|", tarinfo=tars.Info) as archive:
                for member in archive:
                    file = None if member.issym() else archive.extractfile(member)
                    if member.issym():
                        target = posixpath.join(posixpath.dirname(member.name), member.linkname)
                        links[member.name] = posixpath.normpath(target)
                    elif file is not None and member.name == "manifest.json":
                        manifest = file.read()
                    elif file is not None and _is_layer(member.name):
                        found[member.name] = _kept(file, folder)
        except (tarfile.TarError, EOFError) as error:
            said = process.stderr.read().decode("utf-8", "replace").strip()
            raise TreeError(
                f"docker save {name} stopped in the middle: {said or error}", hint="docker info"
            ) from error
    (entry,) = json.loads(manifest)
    layers = tuple(found[links.get(one, one)] for one in entry["Layers"])
    for layer, diff_id in zip(layers, base.diff_ids, strict=True):
        if layer.media_type == oci.LAYER and layer.digest != diff_id:
            raise TreeError(
                f"docker gives layer {diff_id} out as {layer.digest}: its store is damaged",
                hint=f"docker rmi {name}  # then pull or build it again",
            )
    return layers


def _is_layer(name: str) -> bool:
    return name.endswith("/layer.tar") or name.startswith("blobs/")


def _kept(file: Source, folder: str) -> Descriptor:
    hashed = hashlib.sha256()
    head = b""
    staged = os.path.join(folder, "staged")
    with open(staged, "wb") as out:
        while piece := file.read(CHUNK):
            head = head or piece[:4]
            hashed.update(piece)
            out.write(piece)
        size = out.tell()
    digest = f"sha256:{hashed.hexdigest()}"
    os.replace(staged, _place(folder, digest))
    packed = "+gzip" if head.startswith(GZIP) else "+zstd" if head == ZSTD else ""
    return Descriptor(oci.LAYER + packed, digest, size)


def _place(folder: str, digest: str) -> str:
    return os.path.join(folder, digest.removeprefix("sha256:"))
