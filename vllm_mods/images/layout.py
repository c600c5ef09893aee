"""OCI layouts, a folder or in a tar, and what ``docker save`` writes."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import weakref
from functools import partial
from io import FileIO
from typing import Any, BinaryIO, NamedTuple, cast

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats import tars
from vllm_mods.images import oci, streams, tarred
from vllm_mods.images.layered import Blob, LayeredImage
from vllm_mods.images.model import Base, Descriptor, digest_of
from vllm_mods.images.oci import Opening

_AGAIN = "the copy is damaged or incomplete: get the image again"


def open_layout(text: str, how: Opening) -> Base:
    """Open ``PATH``, ``PATH:TAG`` or ``PATH@DIGEST``. Raises ``UsageError``, ``TreeError``."""
    path, tag = _split(text)
    if not os.path.isdir(path):
        raise _not_there(path, "folder", "archive", how)
    index = os.path.join(path, "index.json")
    try:
        with open(index, "rb") as file:
            data = limits.bounded(file, limits.DOCUMENT, index)
    except FileNotFoundError as error:
        raise UsageError(
            f"{how.reference}: {path} is no OCI layout: there is no index.json in it",
            hint=f"ls {path}",
        ) from error
    except OSError as error:
        raise TreeError(f"{index}: {error.strerror}", hint=f"ls -la {index}") from error
    found = oci.named(oci.parse(data, index), tag, how)
    return oci.OciImage(LayoutFolder(path), found, "oci-layout", how)


def open_archive(text: str, how: Opening) -> Base:
    """Open a tar that holds an OCI layout or is one of ``docker save``, packed or not."""
    path, tag = _split(text)
    if not os.path.isfile(path):
        raise _not_there(path, "file", "oci", how)
    archive = _Tar(path)
    # Both at once is what newer dockers write; then the OCI one has the digests.
    index = archive.document("index.json")
    if index is not None:
        found = oci.named(oci.parse(index, f"{path}: index.json"), tag, how)
        return oci.OciImage(archive, found, "archive", how)
    saved = archive.document("manifest.json")
    if saved is None:
        raise UsageError(
            f"{how.reference}: {path} holds no image: neither index.json nor manifest.json is in it",
            hint="docker save -o FILE IMAGE, or skopeo copy … oci-archive:FILE",
        )
    return _Saved(archive, _saved(saved, tag, how.reference), how)


def _not_there(path: str, wanted: str, other: str, how: Opening) -> UsageError:
    there = f"{other}:{path}" if os.path.lexists(path) else f"ls -la {os.path.dirname(path) or '.'}"
    return UsageError(f"{how.reference}: {path} is no {wanted}", hint=there)


def _split(text: str) -> tuple[str, str | None]:
    """Take path and tag apart: a path that is there as it stands has no tag behind it."""
    text = os.path.expanduser(text)
    if os.path.lexists(text):
        return text, None
    path, at, digest = text.rpartition("@")
    if at and digest.startswith("sha256:"):
        return path, digest
    # A tag may be a whole name with colons and slashes: the path is the longest part that exists.
    places = [place for place, letter in enumerate(text) if letter == ":"]
    for place in reversed(places):
        if os.path.lexists(text[:place]):
            return text[:place], text[place + 1 :] or None
    return text, None


class LayoutFolder(NamedTuple):
    """The blobs of a layout that is a folder."""

    path: str

    def open(self, blob: Descriptor) -> io.RawIOBase:
        """Open a blob."""
        place = os.path.join(self.path, "blobs", *blob.digest.split(":", 1))
        try:
            return FileIO(place)
        except FileNotFoundError as error:
            raise TreeError(
                f"{self.path}: the blob {blob.digest} is not there", hint=_AGAIN
            ) from error
        except OSError as error:
            raise TreeError(f"{place}: {error.strerror}", hint=f"ls -la {place}") from error


class _Tar:
    """A tar whose members can be opened. A packed one is unpacked into an unnamed file first."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  (lives as long as the image)
        except OSError as error:
            raise TreeError(f"{path}: {error.strerror}", hint=f"ls -la {path}") from error
        weakref.finalize(self, self._file.close)
        with tarred.reading(path, _AGAIN):
            self._unpack()
            self._members = {one.name.removeprefix("./"): one for one in tars.members(self._file)}

    def _unpack(self) -> None:
        packed = self._file.read(4).startswith((streams.GZIP, streams.ZSTD))
        self._file.seek(0)
        if not packed:
            return
        plain = cast("BinaryIO", tempfile.TemporaryFile())  # noqa: SIM115
        weakref.finalize(self, plain.close)
        source = streams.Forward(streams.unpacked(self._file))
        shutil.copyfileobj(source, plain, streams.CHUNK)
        self._file.close()
        self._file = plain
        plain.seek(0)

    def document(self, name: str) -> bytes | None:
        member = self._members.get(name)
        if member is None or member.size > limits.DOCUMENT:
            return None
        return self._section(member).read()

    def open(self, blob: Descriptor) -> io.RawIOBase:
        return self.member("blobs/" + blob.digest.replace(":", "/", 1))

    def member(self, name: str) -> streams.StreamSection:
        for _ in range(8):
            member = self._members.get(name)
            if member is None:
                break
            if not member.issym():
                return self._section(member)
            # Older dockers write a layer that they have written already as a link to it.
            name = os.path.normpath(os.path.join(os.path.dirname(name), member.linkname))
        raise TreeError(f"{self._path}: {name} is not in it", hint=_AGAIN)

    def _section(self, member: tarfile.TarInfo) -> streams.StreamSection:
        return streams.StreamSection(self._file, member.offset_data, member.size)


def _saved(data: bytes, tag: str | None, reference: str) -> dict[str, Any]:
    try:
        images = json_of(data)
        tags = [name for image in images for name in image.get("RepoTags") or ()]
        fitting = [
            image
            for image in images
            if tag is None
            or any(tag in {name, name.rpartition(":")[2]} for name in image["RepoTags"] or ())
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TreeError(f"{reference}: its manifest.json is broken", hint=_AGAIN) from error
    if len(fitting) == 1 and isinstance(fitting[0], dict):
        return fitting[0]
    what = f"holds {len(fitting)} images" + (f" called {tag}" if tag else "")
    raise UsageError(
        f"{reference}: {what}; there are: {', '.join(tags) or 'none with a name'}",
        hint=f"name one: …:{tags[0]}" if tags else "docker save IMAGE  # one image only",
    )


class _Saved(LayeredImage):
    """An image as ``docker save`` writes it, without a manifest of its own."""

    where = "archive"

    def __init__(self, archive: _Tar, image: dict[str, Any], how: Opening) -> None:
        reference = how.reference
        try:
            name, names = str(image["Config"]), [str(layer) for layer in image["Layers"]]
        except (KeyError, TypeError) as error:
            raise TreeError(f"{reference}: its manifest.json is broken", hint=_AGAIN) from error
        self.config = limits.bounded(archive.member(name), limits.DOCUMENT, f"{reference}: {name}")
        self.config_digest = digest_of(self.config)
        stated = os.path.basename(name).removesuffix(".json")
        if len(stated) == 64 and self.config_digest != f"sha256:{stated}":
            raise TreeError(f"{reference}: its configuration is not that of {stated}", hint=_AGAIN)
        self.diff_ids = oci.diff_ids(self.config, reference)
        if len(names) != len(self.diff_ids):
            raise TreeError(
                f"{reference}: it names {len(names)} layers and its configuration "
                f"{len(self.diff_ids)}: the base's layers may have been left out",
                hint="docker save -o FILE IMAGE  # the whole image",
            )
        # Its digest is that of the tar, so it is unpacked here, should some tool have packed it.
        blobs = (
            Blob(diff_id, None, partial(_plain, archive, layer), diff_id)
            for layer, diff_id in zip(names, self.diff_ids, strict=True)
        )
        super().__init__(reference, tuple(blobs), how.cache, how.progress)


def _plain(archive: _Tar, name: str) -> streams.Forward:
    return streams.Forward(streams.unpacked(archive.member(name)))
