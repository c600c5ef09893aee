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
import subprocess
import weakref
from typing import Any

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import oci, streams
from vllm_mods.images.model import Descriptor, Opened, digest_of
from vllm_mods.images.mounted import MountedFiles

PODMAN, BUILDAH = "podman", "buildah"


class StoredImage(Opened):
    """A ``Base``: an image that podman or buildah has."""

    def __init__(self, tool: str, name: str, *, reference: str) -> None:
        self.reference = reference
        self.where = tool
        self._tool = tool
        identity = _identity(tool, name, reference)
        store = _Kept(_graph_root(tool, identity), identity)
        data = store.file("manifest")
        self.manifest: bytes | None = data
        self.layers: tuple[Descriptor, ...] | None
        try:
            config, self.layers = oci.contents(oci.parse(data, f"{reference}: its manifest"))
        except (KeyError, TypeError, ValueError) as error:
            raise TreeError(f"{reference}: its manifest is broken", hint=_AGAIN) from error
        self.manifest_digest: str | None = digest_of(data)
        self.config = oci.document_of(store, config, f"{reference}: its configuration")
        self.config_digest = config.digest
        self.diff_ids = oci.diff_ids(self.config, reference)
        self._identity = identity
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
                    self, _call, PODMAN, "image", "unmount", self._identity
                )
                place = _call(PODMAN, "image", "mount", self._identity)
            else:
                made = _call(BUILDAH, "from", "--pull-never", self._identity)
                self._give_back = weakref.finalize(self, _call, BUILDAH, "rm", made)
                place = _call(BUILDAH, "mount", made)
            self._files = MountedFiles(place, self.reference)
        return self._files


class _Kept:
    """What the storage keeps of an image beside its layers: the manifest and the configuration.

    The commands print them as they understand them; the files have them byte for byte.
    """

    def __init__(self, root: str, identity: str) -> None:
        self._folder = f"{root}/overlay-images/{identity}"
        if not os.path.isdir(self._folder):
            self._folder = f"{root}/vfs-images/{identity}"

    def file(self, name: str) -> bytes:
        path = f"{self._folder}/{_file_name(name)}"
        try:
            with open(path, "rb") as file:
                return limits.bounded(file, limits.DOCUMENT, path)
        except OSError as error:
            raise TreeError(f"{path}: {error.strerror}", hint=_AGAIN) from error

    def open(self, blob: Descriptor) -> io.RawIOBase:
        return streams.Forward(io.BytesIO(self.file(blob.digest)))


def _file_name(key: str) -> str:
    """Return the name under which containers/storage keeps a piece of "big data"."""
    plain = all(letter in "abcdefghijklmnopqrstuvwxyz0123456789." for letter in key)
    return key if plain else "=" + base64.b64encode(key.encode()).decode()


def is_there(tool: str) -> bool:
    """Tell whether a tool is installed."""
    return shutil.which(tool) is not None


def open_image(tool: str, name: str, *, reference: str) -> StoredImage:
    """Open an image of podman or buildah. Raises ``UsageError`` if there is none of that name."""
    if not is_there(tool):
        raise UsageError(f"{reference}: {tool} is not installed here", hint=f"apt install {tool}")
    return StoredImage(tool, name, reference=reference)


def _identity(tool: str, name: str, reference: str) -> str:
    # `images --no-trunc -q NAME` means the same to both tools, and looks up short names as they do.
    found = _call(tool, "images", "--no-trunc", "-q", name, missing=True)
    known = {line.strip().removeprefix("sha256:") for line in found.splitlines() if line.strip()}
    if len(known) == 1:
        return known.pop()
    what = f"has {len(known)} images called" if known else "has no image"
    raise UsageError(
        f"{reference}: {tool} {what} {name}",
        hint=f"{tool} images" if known else f"{tool} pull {name}",
    )


def _graph_root(tool: str, identity: str) -> str:
    if tool == PODMAN:  # its `info` looks at all of the machine, and takes six times as long
        asked = ("image", "inspect", "--format", "{{json .GraphDriver.Data}}", identity)
        driver: Any = json.loads(_call(tool, *asked)) or {}
        places = (driver.get("UpperDir"), driver.get("dir"))
        parts = [re.split("/(?:overlay|vfs)/", place)[0] for place in places if place]
        if parts and os.path.isdir(parts[0]):
            return parts[0]
    told: Any = json.loads(_call(tool, "info", *(("--format", "json") if tool == PODMAN else ())))
    root = (told.get("store") or {}).get("graphRoot") or (told.get("store") or {}).get("GraphRoot")
    if not isinstance(root, str):
        raise TreeError(f"`{tool} info` does not say where its images are", hint=f"{tool} info")
    return root


def _call(tool: str, *arguments: str, missing: bool = False) -> str:
    """Run a command and return what it printed. ``missing``: a failure means that there is none."""
    try:
        done = subprocess.run(
            [tool, *arguments],
            capture_output=True,
            text=True,
            timeout=limits.TOOL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TreeError(
            f"`{tool} {' '.join(arguments)}` cannot be run: {error}", hint=_AGAIN
        ) from error
    if done.returncode == 0:
        return done.stdout.strip()
    said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if missing and any(word in said for word in ("image not known", "not find", "no such image")):
        return ""
    hint = _AGAIN
    if "unshare" in done.stderr or "rootless" in done.stderr:
        hint = "podman unshare vllm-mods …  # a rootless storage can be mounted in there only"
    raise TreeError(f"`{tool} {' '.join(arguments)}` failed: {said}", hint=hint)


_AGAIN = "podman info, buildah info  # is the storage well?"
