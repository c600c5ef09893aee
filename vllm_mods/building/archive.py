"""An image as one tar: an OCI layout and a docker archive at once. Bytes of layers go through.

``thin`` leaves the base's layers out: an engine that has them takes the rest, some ten kilobytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vllm_mods.building import oci, tarball
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images.model import Descriptor, digest_of


def thin(image: BuiltImage, ref: str) -> bytes:
    """Return the archive without the base's layers, to be loaded where they are."""
    # docker asks for the path of a layer only if it lacks the layer.
    below = [oci.blob_path(one) for one in image.diff_ids[:-1]]
    layers = [*below, oci.blob_path(image.layer_blob[0])]
    return tarball.write(_documents(image, ref, layers))


def whole(
    image: BuiltImage, ref: str, below: Iterable[tuple[Descriptor, Iterable[bytes]]]
) -> Iterator[bytes]:
    """Yield the archive with the base's layers, which ``below`` gives piece by piece, as the manifest names them.

    Raises ``ValueError`` for an image without a manifest.
    """
    if image.layers is None:
        raise ValueError("the image has no manifest, so its layers have no names")
    yield from tarball.members(
        _documents(image, ref, [oci.blob_path(one.digest) for one in image.layers])
    )
    for one, pieces in below:
        yield from tarball.large(TarEntry(oci.blob_path(one.digest), b"", 0o644), one.size, pieces)
    yield tarball.END


def _documents(image: BuiltImage, ref: str, layers: list[str]) -> list[TarEntry]:
    digest, layer = image.layer_blob
    files = {
        "manifest.json": oci.docker_manifest(image, ref, layers),
        oci.blob_path(image.config_digest): image.config,
        oci.blob_path(digest): layer,
    }
    if image.manifest is not None:
        files |= {
            "oci-layout": oci.LAYOUT,
            "index.json": oci.index(image.manifest, ref),
            oci.blob_path(digest_of(image.manifest)): image.manifest,
        }
    entries = [TarEntry(path, None, 0o755) for path in ("blobs", "blobs/sha256")]
    entries += [TarEntry(path, data, 0o644) for path, data in files.items()]
    return sorted(entries, key=lambda entry: entry.path)
