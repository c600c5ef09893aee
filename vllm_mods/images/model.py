"""An image to read, wherever it lies: its configuration, its layers, and single files. Pure.

A path in an image is written as in a tar: from the root, without a slash in front, ``""`` being the
root itself (``usr/local/lib``). Symbolic links are followed by ``resolve`` and by nothing else.
"""

import posixpath
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import IOBase
from typing import Any, NamedTuple, Protocol

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.base.untrusted import json_of

FILE, DIR, LINK, OTHER = "file", "dir", "link", "other"


class Descriptor(NamedTuple):
    """A blob as a manifest names it; ``digest`` is ``sha256:…``."""

    media_type: str
    digest: str
    size: int


def digest_of(data: bytes) -> str:
    """Return the digest by which a blob is named."""
    return f"sha256:{sha256(data)}"


class ImageEntry(NamedTuple):
    """What lies at a path.

    ``kind`` is ``file`` (one with several names too), ``dir``, ``link`` or ``other``; ``mode`` the
    permission bits, with setuid, setgid and sticky; ``mtime`` whole seconds, as layers keep them;
    ``target`` what a link says, as it says it; ``size`` in bytes, 0 for anything but a file.
    """

    path: str
    kind: str
    mode: int
    uid: int
    gid: int
    mtime: int
    target: str = ""
    size: int = 0


class Blob(NamedTuple):
    """A layer: ``digest`` is of what ``open`` gives, ``diff_id`` what the configuration says."""

    digest: str
    size: int | None
    open: Callable[[], IOBase]
    diff_id: str


class Base(Protocol):
    """An image. Whoever opens one calls ``close``: a source may hold a container or a mount.

    ``reference`` is the image as it was named, ``where`` the kind of place it lies in: ``docker``,
    ``containerd`` (docker's other store), ``podman``, ``oci-layout`` or ``registry``.

    ``config`` is its configuration, JSON: byte for byte, and ``config_digest`` its hash, everywhere but in
    docker. There an engine tells the values only, this is the canonical JSON of them, and the digest is, on
    the graph driver, the image's ID. ``diff_ids`` are the digests of each layer's tar, the lowest first.

    ``manifest`` is that of this one platform, byte for byte, where there is one; ``manifest_digest`` may be
    known where it is not. ``layers`` are as it names them, ``blobs`` open them where whoever has the image
    gives them out; the lowest first. Every method raises ``TreeError`` for what cannot be read.
    """

    reference: str
    where: str
    config: bytes
    config_digest: str
    diff_ids: tuple[str, ...]
    manifest: bytes | None = None
    manifest_digest: str | None = None
    layers: tuple[Descriptor, ...] | None = None
    blobs: tuple[Blob, ...] = ()

    def entry(self, path: str) -> ImageEntry | None:
        """Return what lies at a path; ``None`` for nothing, and for a path through a link."""

    def look(self, path: str) -> ImageEntry | None:
        """Return what lies at a path, perhaps without its owner: an engine tells that at fifty times the cost."""
        return self.entry(path)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a regular file, ``None`` if there is none at that very path."""

    def paths(self, under: str) -> Iterable[ImageEntry]:
        """Return everything below a folder, in no particular order, links not followed."""

    def close(self) -> None:
        """Release what is held. A second call does nothing."""
        return


def settings(base: Base) -> dict[str, Any]:
    """Return what a container takes from an image, by OCI's names: whoever opened it has checked its configuration."""
    inner: dict[str, Any] = json_of(base.config).get("config") or {}
    return inner


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables of an image's settings."""
    given = (one for one in settings.get("Env") or () if isinstance(one, str))
    return dict(one.partition("=")[::2] for one in given)


def children(base: Base, folder: str) -> Iterator[ImageEntry]:
    """Yield what lies directly in a folder, nothing where there is none."""
    parent = base.look(folder)
    if parent is not None and parent.kind == DIR:
        for entry in base.paths(folder):
            if posixpath.dirname(entry.path) == folder:
                yield entry


def resolve(base: Base, path: str) -> str:
    """Return where a path leads inside the image, every symbolic link in it resolved.

    The root is never left: ``..`` above it stays there, and an absolute link starts from it. What
    is not there is kept as it is written. Raises ``TreeError`` for links that go in a circle.
    """
    rest = _parts(path)
    done: list[str] = []
    links = 0
    while rest:
        part, *rest = rest
        if part == "..":
            done = done[:-1]
            continue
        place = "/".join((*done, part))
        entry = base.look(place)
        if entry is None or entry.kind != LINK:
            done.append(part)
            continue
        links += 1
        if links > limits.LINKS_FOLLOWED:
            why = f"{base.reference}: /{path.lstrip('/')} is a loop of symbolic links (/{place} points to {entry.target})"
            raise TreeError(why, hint="the image is broken: rebuild it")
        done = [] if entry.target.startswith("/") else done
        rest = [*_parts(entry.target), *rest]
    return "/".join(done)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def with_ancestors(path: str) -> list[str]:
    """Return a path's folders, outermost first, and the path itself."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts) + 1)]
