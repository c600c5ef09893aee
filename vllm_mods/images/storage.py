"""Images in the storage that podman and buildah share, by podman's own commands.

It needs no service that runs, so there may be no API to talk to. The image is mounted to be
read, which in a rootless storage takes a user namespace: ``podman unshare vllm-mods …``.
"""

import base64
import contextlib
import io
import json
import os
import posixpath
import re
import stat
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, reading
from vllm_mods.images import engine_command, model, oci

_KINDS = {stat.S_IFREG: model.FILE, stat.S_IFDIR: model.DIR, stat.S_IFLNK: model.LINK}


class StoredImage(model.Base):
    """An image that podman has, mounted when the first of its files is asked for: no link in it leads out to this machine.

    Raises ``UsageError`` if there is none of that name.
    """

    where = engine_command.PODMAN

    def __init__(self, name: str, *, reference: str) -> None:
        self.reference = reference
        self._identity, folder = _find(name, reference)
        self.manifest = _read_document(folder, "manifest")
        self.manifest_digest = model.digest_of(self.manifest)

        def open_blob(blob: model.Descriptor) -> io.BytesIO:
            return io.BytesIO(_read_document(folder, blob.digest))

        config, self.layers, self.config = oci.read_manifest(open_blob, self.manifest, reference)
        self.config_digest = config.digest
        self.diff_ids = oci.diff_ids(self.config, reference)
        self._give_back: weakref.finalize[Any, Any] | None = None

    def close(self) -> None:
        """Unmount the image."""
        if self._give_back is not None:
            self._give_back()

    @cached_property
    def _root(self) -> str:
        self._give_back = weakref.finalize(
            self, engine_command.call, engine_command.PODMAN, "image", "unmount", self._identity
        )
        return engine_command.call(engine_command.PODMAN, "image", "mount", self._identity)

    def entry(self, path: str) -> model.ImageEntry | None:
        """Return what lies at a path."""
        return self._entry(path) if self._is_folder(posixpath.dirname(path)) else None

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        entry = self.entry(path)
        if entry is None or entry.kind != model.FILE:
            return None
        with self._reading(path):
            descriptor = os.open(self._place(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with open(descriptor, "rb") as file:
                return limits.bounded(file, limits.UNPACKED_FILE, path)

    def paths(self, under: str) -> Iterator[model.ImageEntry]:
        """Return everything below a folder."""
        if not self._is_folder(under):
            return
        for folder, folders, files in os.walk(self._place(under), onerror=self._unread):
            for name in sorted((*folders, *files)):
                entry = self._entry(f"{folder}/{name}".removeprefix(f"{self._root}/"))
                if entry is not None:
                    yield entry

    def _is_folder(self, path: str) -> bool:
        entries = map(self._entry, model.with_ancestors(path))
        return all(entry and entry.kind == model.DIR for entry in entries)

    def _entry(self, path: str) -> model.ImageEntry | None:
        place = self._place(path)
        with self._reading(path):
            try:
                info = os.lstat(place)
            except (FileNotFoundError, NotADirectoryError):
                return None
            kind = _KINDS.get(stat.S_IFMT(info.st_mode), model.OTHER)
            target = os.readlink(place) if kind == model.LINK else ""
        return model.ImageEntry(
            path=path,
            kind=kind,
            mode=stat.S_IMODE(info.st_mode),
            uid=info.st_uid,
            gid=info.st_gid,
            mtime=int(info.st_mtime),
            target=target,
            size=info.st_size if kind == model.FILE else 0,
        )

    def _unread(self, error: OSError) -> None:
        with self._reading(os.path.relpath(error.filename, self._root)):
            raise error

    def _place(self, path: str) -> str:
        return f"{self._root}/{path}" if path else self._root

    def _reading(self, path: str) -> contextlib.AbstractContextManager[None]:
        hint = "run the command as root or in `podman unshare`"
        return reading(path, f"{self.reference}: /{path}", hint=hint)


def _read_document(folder: str, key: str) -> bytes:
    """Read one of the documents that the storage keeps of an image beside its layers, by its key ("big data")."""
    is_plain = all(letter in "abcdefghijklmnopqrstuvwxyz0123456789." for letter in key)
    name = key if is_plain else "=" + base64.b64encode(key.encode()).decode()
    path = f"{folder}/{name}"
    with reading(path, hint=_AGAIN), open(path, "rb") as file:
        return limits.bounded(file, limits.DOCUMENT, path)


def _find(name: str, reference: str) -> tuple[str, str]:
    """Return an image's ID, and the folder with its manifest and configuration as they are: podman prints them otherwise.

    ``podman info``, which names the storage, looks at all of the machine, and takes six times as long.
    """
    form = '{"id": "{{.Id}}", "data": {{json .GraphDriver.Data}}}'
    image = _inspected("image", "inspect", "--format", form, name, reference=reference)
    identity, driver = image["id"], image["data"] or {}
    places = (driver.get("UpperDir"), driver.get("dir"))
    roots = [re.split("/(?:overlay|vfs)/", place)[0] for place in places if place]
    if not roots:
        store = _inspected("info", "--format", "json", reference=reference).get("store") or {}
        roots = [str(store.get("graphRoot"))]
    folder = f"{roots[0]}/overlay-images/{identity}"
    if not os.path.isdir(folder):
        folder = f"{roots[0]}/vfs-images/{identity}"
    return identity, folder


def _inspected(*arguments: str, reference: str) -> dict[str, Any]:
    """Run a command and read the JSON it prints. Raises ``UsageError`` where it knows no such image."""
    done = engine_command.run(engine_command.PODMAN, *arguments)
    if done.is_absent:
        name = arguments[-1]
        raise UsageError(f"{reference}: podman has no image {name}", hint=f"podman pull {name}")
    if done.code:
        raise engine_command.failure(engine_command.PODMAN, arguments[0], done)
    try:
        document: dict[str, Any] = json.loads(done.out)
    except ValueError as error:
        raise TreeError(f"`podman {arguments[0]}` prints no JSON: {error}", hint=_AGAIN) from error
    return document


_AGAIN = "podman info  # shows whether its storage works"
