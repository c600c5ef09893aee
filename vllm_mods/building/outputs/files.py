"""Into an OCI layout, with all layers of the base."""

import contextlib
import filecmp
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from typing import Any

from vllm_mods.base import limits
from vllm_mods.base.errors import Refused, TreeError, refusing_to_write
from vllm_mods.base.output import write_whole
from vllm_mods.base.untrusted import json_of
from vllm_mods.building import oci
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs.engine import tag_refusal
from vllm_mods.images import engine_command, names
from vllm_mods.images.model import Base, Blob, digest_of
from vllm_mods.images.oci import TAG
from vllm_mods.images.streams import CHUNK, CheckedStream


def layout(images: Sequence[tuple[BuiltImage, Base]], folder: str, tag: str) -> None:
    """Add an image to an OCI layout, which is made if it is not there; an index of several if there are.

    Blobs of the base are linked where that goes, else copied. index.json comes last and in one
    step: until then nobody sees anything of it. Raises ``Refused`` for a tag that is taken, for a base whose
    layers only an engine has, and where something else is in the way.
    """
    others = _others(folder)
    with refusing_to_write(folder):
        for _, base in images:
            _check_given_out(base)
        top = oci.top([image for image, _ in images])
        index = _index(top, others, tag)
        if index is None:
            return
        created: list[str] = []
        try:
            for path in (folder, f"{folder}/blobs", f"{folder}/blobs/sha256"):
                if not os.path.isdir(path):
                    os.mkdir(path)
                    created.append(path)
            for image, base in images:
                _fill(folder, image, base, created)
            _put(f"{folder}/{oci.blob_path(digest_of(top))}", (top,), created)
            _put(f"{folder}/oci-layout", (oci.LAYOUT,), created)
            write_whole(f"{folder}/index.json", index)
        except BaseException:
            for path in reversed(created):
                with contextlib.suppress(OSError):  # somebody else has put something in there
                    os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            raise


def _check_given_out(base: Base) -> None:
    if base.layers is None or not base.blobs:
        store = "containers-storage" if base.where == engine_command.PODMAN else "docker-daemon"
        name = names.plain(base.reference)
        raise Refused(
            f"{base.where} cannot export the layers of {base.reference}; nothing was written",
            hint=f"skopeo copy {store}:{name} oci:DIR, then --base oci:DIR; or build in {base.where} and save that image",
        )


def _fill(folder: str, image: BuiltImage, base: Base, created: list[str]) -> None:
    manifest = image.manifest or b""
    ours = {image.config_digest: image.config, digest_of(manifest): manifest}
    for digest, data in (*ours.items(), image.layer_blob):
        _put(f"{folder}/{oci.blob_path(digest)}", (data,), created)
    for blob in base.blobs:
        place = f"{folder}/{oci.blob_path(blob.digest)}"
        if not os.path.exists(place) and _link(blob, place):
            created.append(place)
        _put(place, _pieces(blob), created)


def _link(blob: Blob, place: str) -> bool:
    """Give a layer a second name, if it is a file of its own on the same disk."""
    with blob.open() as file:
        source = file.name if isinstance(file, FileIO) else None
        if isinstance(source, str) and os.stat(source).st_size == blob.size:
            with contextlib.suppress(OSError):
                os.link(source, place)
                return True
    return False


def _pieces(blob: Blob) -> Iterator[bytes]:
    """Yield the bytes of a layer. Raises ``TreeError`` if they are others than its digest says."""
    with blob.open() as file:
        checked = CheckedStream(file, blob.digest, None, f"layer {blob.digest} of the base")
        yield from iter(lambda: checked.read(CHUNK), b"")


def _others(folder: str) -> list[dict[str, Any]]:
    try:
        with open(f"{folder}/index.json", "rb") as file:
            entries = json_of(limits.bounded(file, limits.DOCUMENT, file.name))["manifests"]
    except FileNotFoundError:
        if os.path.isdir(folder) and os.listdir(folder):
            raise Refused(
                f"{folder} exists and is not an OCI layout; nothing was changed",
                hint="--output oci:DIR with a new folder",
            ) from None
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TreeError(
            f"{folder}/index.json cannot be read: {error}",
            hint="--output oci:DIR with a new folder",
        ) from error
    return list(entries)


def _index(top: bytes, others: list[dict[str, Any]], tag: str) -> bytes | None:
    """Return the layout's index with what was built added, None if it has it already."""
    index = oci.index(top, tag, others)
    mine = json.loads(index)["manifests"][-1]
    for other in others:
        names = other.get("annotations") or {}
        if names.get(TAG) == mine["annotations"][TAG]:
            if other.get("digest") == mine["digest"]:
                return None
            raise tag_refusal(tag, str(other.get("digest")), mine["digest"])
    return index


def _put(path: str, pieces: Iterable[bytes], created: list[str]) -> None:
    """Write a file under its name only when it is whole, unless it is there.

    Raises ``Refused`` where somebody has put another file there in the meantime.
    """
    if os.path.exists(path):
        return
    with refusing_to_write(path):
        descriptor, staged = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".vllm-mods-")
        try:
            with open(descriptor, "wb") as file:
                file.writelines(pieces)
            os.chmod(staged, 0o644)
            os.link(staged, path)
        except FileExistsError:
            if not filecmp.cmp(staged, path, shallow=False):
                raise Refused(
                    f"{path} already exists with different contents; nothing was changed",
                    hint=f"rm {path}, or name another file",
                ) from None
        finally:
            os.unlink(staged)
    created.append(path)
