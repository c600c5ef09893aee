"""Images in the storage that podman and buildah share, by the tools' own commands.

Neither needs a service that runs, so there may be no API to talk to. The image is mounted to be
read, which in a rootless storage takes a user namespace: ``podman unshare vllm-mods …``.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import engine_command, oci, streams
from vllm_mods.images.model import Descriptor, Opened, digest_of
from vllm_mods.images.mounted import MountedFiles

PODMAN, BUILDAH = "podman", "buildah"


class StoredImage(Opened):
    """An image that podman or buildah has."""

    def __init__(self, tool: str, name: str, *, reference: str) -> None:
        self.reference = reference
        self.where = tool
        self._tool = tool
        self._identity, store = (_of_podman if tool == PODMAN else _of_buildah)(name, reference)
        self.manifest = store.manifest
        self.manifest_digest = digest_of(store.manifest)
        config, self.layers, self.config = oci.read_manifest(store, store.manifest, reference)
        self.config_digest = config.digest
        self.diff_ids = oci.diff_ids(self.config, reference)
        self._files: MountedFiles | None = None
        self._give_back: weakref.finalize[Any, Any] | None = None

    def close(self) -> None:
        """Take the mount away again, and buildah's working container with it."""
        if self._give_back is not None:
            self._give_back()

    def _open(self) -> MountedFiles:
        if self._files is None:
            if self._tool == PODMAN:
                self._give_back = weakref.finalize(
                    self, engine_command.call, PODMAN, "image", "unmount", self._identity
                )
                place = engine_command.call(PODMAN, "image", "mount", self._identity)
            else:
                made = engine_command.call(BUILDAH, "from", "--pull-never", self._identity)
                self._give_back = weakref.finalize(self, engine_command.call, BUILDAH, "rm", made)
                place = engine_command.call(BUILDAH, "mount", made)
            self._files = MountedFiles(place, self.reference)
        return self._files


class _Kept(NamedTuple):
    """What the storage keeps of an image beside its layers, byte for byte: ``read`` is given a digest."""

    manifest: bytes
    read: Callable[[str], bytes]

    def open(self, blob: Descriptor) -> io.RawIOBase:
        return streams.Forward(io.BytesIO(self.read(blob.digest)))


def _file_name(key: str) -> str:
    """Return the name under which containers/storage keeps a piece of "big data"."""
    plain = all(letter in "abcdefghijklmnopqrstuvwxyz0123456789." for letter in key)
    return key if plain else "=" + base64.b64encode(key.encode()).decode()


def open_image(tool: str, name: str, *, reference: str) -> StoredImage:
    """Open an image of podman or buildah. Raises ``UsageError`` if there is none of that name."""
    if shutil.which(tool) is None:
        raise UsageError(f"{reference}: {tool} is not installed here", hint=f"apt install {tool}")
    return StoredImage(tool, name, reference=reference)


def _of_buildah(name: str, reference: str) -> tuple[str, _Kept]:
    """Return an image's ID and what is kept of it; ``inspect`` hands out both documents as they are."""
    told = _inspected(BUILDAH, "inspect", "--type", "image", name, reference=reference)
    try:
        config = told["Config"].encode()
        return told["FromImageID"], _Kept(told["Manifest"].encode(), lambda _: config)
    except (KeyError, AttributeError) as error:
        raise TreeError(f"`buildah inspect {name}` does not say {error}", hint=_AGAIN) from error


def _of_podman(name: str, reference: str) -> tuple[str, _Kept]:
    """Return an image's ID and what is kept of it, which podman tells as it understands it: the files have it.

    Its ``info`` looks at all of the machine, and takes six times as long.
    """
    form = '{"id": "{{.Id}}", "data": {{json .GraphDriver.Data}}}'
    told = _inspected(PODMAN, "image", "inspect", "--format", form, name, reference=reference)
    identity, driver = told["id"], told["data"] or {}
    places = (driver.get("UpperDir"), driver.get("dir"))
    roots = [re.split("/(?:overlay|vfs)/", place)[0] for place in places if place]
    if not roots:
        store = (
            _inspected(PODMAN, "info", "--format", "json", reference=reference).get("store") or {}
        )
        roots = [str(store.get("graphRoot"))]
    folder = f"{roots[0]}/overlay-images/{identity}"
    if not os.path.isdir(folder):
        folder = f"{roots[0]}/vfs-images/{identity}"
    return identity, _Kept(_file(folder, "manifest"), partial(_file, folder))


def _file(folder: str, key: str) -> bytes:
    path = f"{folder}/{_file_name(key)}"
    try:
        with open(path, "rb") as file:
            return limits.bounded(file, limits.DOCUMENT, path)
    except OSError as error:
        raise TreeError(f"{path}: {error.strerror}", hint=_AGAIN) from error


def _inspected(tool: str, *arguments: str, reference: str) -> dict[str, Any]:
    """Run a command and read the JSON it prints. Raises ``UsageError`` where it knows no such image."""
    done = engine_command.run(tool, *arguments)
    if done.is_absent:
        name = arguments[-1]
        raise UsageError(f"{reference}: {tool} has no image {name}", hint=f"{tool} pull {name}")
    if done.code:
        raise engine_command.failure(tool, arguments[0], done)
    try:
        document: dict[str, Any] = json.loads(done.out)
    except ValueError as error:
        raise TreeError(f"`{tool} {arguments[0]}` prints no JSON: {error}", hint=_AGAIN) from error
    return document


_AGAIN = "podman info, buildah info  # is the storage well?"
