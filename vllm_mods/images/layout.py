"""OCI layouts: folders with an index and blobs."""

import io
import os
from functools import partial

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError, reading
from vllm_mods.images import oci
from vllm_mods.images.model import Base, Descriptor

_AGAIN = "the copy is damaged or incomplete: get the image again"


def open_layout(text: str, how: oci.Opening) -> Base:
    """Open ``PATH``, ``PATH:TAG`` or ``PATH@DIGEST``. Raises ``UsageError``, ``TreeError``."""
    path, tag = _split(text)
    index = os.path.join(path, "index.json")
    if not os.path.lexists(index):
        hint = f"name an OCI layout; `skopeo copy docker://NAME oci:{path}` makes one"
        if os.path.isfile(path):
            hint = f"skopeo copy docker-archive:{path} oci:FOLDER"
        why = f"{how.reference}: {path} is not an OCI layout: it has no index.json"
        raise UsageError(why, hint=hint)
    with reading(index), open(index, "rb") as file:
        data = limits.bounded(file, limits.DOCUMENT, index)
    image = oci.choose_named(oci.parse(data, index), tag, how)
    return oci.OciImage(partial(open_blob, path), image, "oci-layout", how)


def _split(text: str) -> tuple[str, str | None]:
    """Split a path from its tag or digest. A path that exists as it is written has none."""
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


def open_blob(folder: str, blob: Descriptor) -> io.FileIO:
    """Open a blob of a layout that is a folder. Raises ``TreeError``."""
    place = os.path.join(folder, "blobs", *blob.digest.split(":", 1))
    if not os.path.lexists(place):
        raise TreeError(f"{folder}: the blob {blob.digest} is missing", hint=_AGAIN)
    with reading(place):
        return io.FileIO(place)
