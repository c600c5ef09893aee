"""Into an OCI layout, with all layers of the base."""

import contextlib
import glob
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
from vllm_mods.building.outputs.engine import tag_refusal
from vllm_mods.images import engine_command, names
from vllm_mods.images.model import Base, Blob, digest_of
from vllm_mods.images.oci import FULL_NAME, TAG
from vllm_mods.images.streams import CHUNK, CheckedStream

_BEGUN = ("blobs", "oci-layout", ".index.json.new", ".vllm-mods-")  # by a build that was killed


def layout(images: Sequence[tuple[oci.BuiltImage, Base]], folder: str, tag: str) -> None:
    """Add an image to an OCI layout, which is made if it is not there; an index of several if there are.

    Blobs of the base are linked where that goes, else copied. All is staged, so that what is left to do is to give
    files their names; that of index.json comes last: until then nobody sees anything of it. Raises ``Refused`` for a
    tag that is taken, for a base whose layers only an engine has, and where something else is in the way.
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
            _make(folder, created)
            with tempfile.TemporaryDirectory(dir=folder, prefix=".vllm-mods-") as staged:
                for image, base in images:
                    _stage(staged, folder, image, base)
                _put(staged, folder, oci.blob_path(digest_of(top)), (top,))
                _put(staged, folder, "oci-layout", (oci.LAYOUT,))
                for path in sorted(glob.glob("**", root_dir=staged, recursive=True)):
                    source, place = f"{staged}/{path}", f"{folder}/{path}"
                    if os.path.isdir(source):
                        _make(place, created)
                    else:
                        os.replace(source, place)
                        created.append(place)
            write_whole(f"{folder}/index.json", index)
        except BaseException:
            for path in reversed(created):
                with contextlib.suppress(OSError):  # somebody else has put something in there
                    os.rmdir(path) if os.path.isdir(path) else os.unlink(path)
            raise


def _make(folder: str, created: list[str]) -> None:
    if not os.path.isdir(folder):
        os.mkdir(folder)
        created.append(folder)


def _check_given_out(base: Base) -> None:
    if base.layers is None or not base.blobs:
        store = "containers-storage" if base.where == engine_command.PODMAN else "docker-daemon"
        name = names.plain(base.reference)
        why = f"{base.where} cannot export the layers of {base.reference}; nothing was written"
        hint = f"skopeo copy {store}:{name} oci:DIR, then --base oci:DIR; or build in {base.where} and save that image"
        raise Refused(why, hint=hint)


def _stage(staged: str, folder: str, image: oci.BuiltImage, base: Base) -> None:
    manifest = image.manifest or b""
    ours = {image.config_digest: image.config, digest_of(manifest): manifest}
    for digest, data in (*ours.items(), image.layer_blob):
        _put(staged, folder, oci.blob_path(digest), (data,))
    for blob in base.blobs:
        _put(staged, folder, oci.blob_path(blob.digest), _pieces(blob), blob)


def _put(
    staged: str, folder: str, path: str, pieces: Iterable[bytes], of: Blob | None = None
) -> None:
    """Stage a file of a layout that is not there yet; a layer ``of`` the base by a link, if that goes."""
    place = f"{staged}/{path}"
    if os.path.exists(place) or os.path.exists(f"{folder}/{path}"):
        return
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if of is None or not _link(of, place):
        with open(place, "wb") as file:
            file.writelines(pieces)


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
        for entry in entries:
            dict(entry.get("annotations") or {})
        return list(entries)
    except FileNotFoundError:
        if os.path.isdir(folder) and any(not one.startswith(_BEGUN) for one in os.listdir(folder)):
            why = f"{folder} exists and is not an OCI layout; nothing was changed"
            raise Refused(why, hint="--output oci:DIR with a new folder") from None
        return []
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{folder}/index.json cannot be read: {error}"
        raise TreeError(why, hint="--output oci:DIR with a new folder") from error


def _index(top: bytes, others: list[dict[str, Any]], tag: str) -> bytes | None:
    """Return the layout's index with what was built added, None if it has it already."""
    index = oci.index(top, tag, others)
    mine = json.loads(index)["manifests"][-1]
    for other in others:
        names = other.get("annotations") or {}
        same = [names.get(key) == mine["annotations"][key] for key in (TAG, FULL_NAME)]
        if any(same) and other.get("digest") != mine["digest"]:
            raise tag_refusal(tag, str(other.get("digest")), mine["digest"])
        if same[0]:
            return None
    return index
