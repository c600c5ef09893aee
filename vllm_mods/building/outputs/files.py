"""Into an OCI layout, with all layers of the base."""

from __future__ import annotations

import contextlib
import errno
import filecmp
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from vllm_mods.base.errors import Refused, TreeError
from vllm_mods.base.output import write_whole
from vllm_mods.building import oci
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs.blobs import Blobs, open_blobs
from vllm_mods.building.outputs.engine import moved
from vllm_mods.images.model import Base, digest_of
from vllm_mods.images.oci import TAG


def layout(images: Sequence[tuple[BuiltImage, Base]], folder: str, tag: str) -> None:
    """Add an image to an OCI layout, which is made if it is not there; an index of several if there are.

    Blobs of the base are linked where that goes, else copied. index.json comes last and in one
    step: until then nobody sees anything of it. Raises ``Refused`` for a tag that is taken and where
    something else is in the way.
    """
    others = _others(folder)
    with refusing(folder), contextlib.ExitStack() as stack:
        below = [stack.enter_context(open_blobs(base, folder)) for _, base in images]
        ours = [blobs.named(one) for (one, _), blobs in zip(images, below, strict=True)]
        top = ours[0].manifest if len(ours) == 1 else oci.platforms(ours)
        if top is None:
            raise ValueError("an image in a layout has a manifest")
        index = _index(top, others, tag)
        if index is None:
            return
        made: list[str] = []
        try:
            for path in (folder, f"{folder}/blobs", f"{folder}/blobs/sha256"):
                if not os.path.isdir(path):
                    os.mkdir(path)
                    made.append(path)
            for image, blobs in zip(ours, below, strict=True):
                _fill(folder, image, blobs, made)
            _put(f"{folder}/{oci.blob_path(digest_of(top))}", (top,), made)
            _put(f"{folder}/oci-layout", (oci.LAYOUT,), made)
            write_whole(f"{folder}/index.json", index)
        except BaseException:
            for path in reversed(made):
                os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            raise


def _fill(folder: str, image: BuiltImage, blobs: Blobs, made: list[str]) -> None:
    manifest = image.manifest or b""
    ours = {image.config_digest: image.config, digest_of(manifest): manifest}
    for digest, data in (*ours.items(), image.layer_blob):
        _put(f"{folder}/{oci.blob_path(digest)}", (data,), made)
    for blob in blobs.descriptors:
        place = f"{folder}/{oci.blob_path(blob.digest)}"
        if not os.path.exists(place) and blobs.link(blob, place):
            made.append(place)
        _put(place, blobs.pieces(blob), made)


def _others(folder: str) -> list[dict[str, Any]]:
    """Return the entries of a layout that is there."""
    try:
        with open(f"{folder}/index.json", "rb") as file:
            found = json.load(file)["manifests"]
    except FileNotFoundError:
        if os.path.isdir(folder) and os.listdir(folder):
            raise Refused(
                f"{folder} is there and is no OCI layout; nothing was changed",
                hint="--output oci:DIR with a new folder",
            ) from None
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TreeError(
            f"{folder}/index.json cannot be read: {error}",
            hint="--output oci:DIR with a new folder",
        ) from error
    return list(found)


def _index(top: bytes, others: list[dict[str, Any]], tag: str) -> bytes | None:
    """Return the layout's index with what was built added, None if it has it already."""
    made = oci.index(top, tag, others)
    mine = json.loads(made)["manifests"][-1]
    for other in others:
        names = other.get("annotations") or {}
        if names.get(TAG) == mine["annotations"][TAG]:
            if other.get("digest") == mine["digest"]:
                return None
            raise moved(tag, str(other.get("digest")), mine["digest"])
    return made


def _put(path: str, pieces: Iterable[bytes], made: list[str]) -> None:
    """Write a file under its name only when it is whole, unless it is there.

    Raises ``Refused`` where somebody has put another file there in the meantime.
    """
    if os.path.exists(path):
        return
    with refusing(path):
        descriptor, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".vllm-mods-")
        try:
            with open(descriptor, "wb") as file:
                file.writelines(pieces)
            os.chmod(staged, 0o644)
            os.link(staged, path)
        except FileExistsError:
            if not filecmp.cmp(staged, path, shallow=False):
                raise Refused(
                    f"{path} is there already and is another file; nothing was changed",
                    hint=f"rm {path}, or name another file",
                ) from None
        finally:
            os.unlink(staged)
    made.append(path)


@contextlib.contextmanager
def refusing(place: str) -> Iterator[None]:
    """Make a refusal, with nothing written, of a place that cannot be written."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        free = f"df -h {os.path.dirname(place)}" if full else f"ls -la {os.path.dirname(place)}"
        raise Refused(f"{place}: {error.strerror}; nothing was written", hint=free) from error
