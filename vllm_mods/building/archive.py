"""An image as one tar without the base's layers, an OCI layout and a docker archive at once.

An engine that has the base takes it: some ten kilobytes.
"""

from __future__ import annotations

from vllm_mods.building import oci, tarball
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.tarball import TarEntry
from vllm_mods.images.model import digest_of


def thin(image: BuiltImage, ref: str) -> bytes:
    """Return the archive of an image, to be loaded where the base's layers are."""
    digest, layer = image.layer_blob
    # docker asks for the path of a layer only if it lacks the layer.
    layers = [*map(oci.blob_path, image.diff_ids[:-1]), oci.blob_path(digest)]
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
    return tarball.write(sorted(entries, key=lambda entry: entry.path))
