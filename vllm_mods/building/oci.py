"""The documents of an image, written byte for byte. Pure.

Formats: the OCI image specification 1.1 (config, manifest, index, layout), and the manifest.json of
`docker save`. What is written follows from the base's digests and values and from the new layer
alone, so the ID of an image is known before any engine has seen it, and the same on every machine.
"""

import json
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.images import names
from vllm_mods.images.model import Descriptor, digest_of
from vllm_mods.images.oci import FULL_NAME, INDEX, MANIFEST, SETTINGS, TAG

CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'
# RFC 1952: no name, no time, no system. Stated here, since Python's own versions disagree on the last byte.
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\xff"

# docker's own manifests have other names for the same tars; a manifest of OCI's has OCI's.
OCI_NAMES = {
    "application/vnd.docker.image.rootfs.diff.tar": LAYER,
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{LAYER}+gzip",
    "application/vnd.docker.image.rootfs.diff.tar.zstd": f"{LAYER}+zstd",
}
"""OCI's names of the types of layers, by docker's."""
_PLATFORM = ("architecture", "os", "os.version", "os.features", "variant")


class BuiltImage(NamedTuple):
    """A base with one layer more. ``layers`` are as in ``manifest``, the new one last.

    Both are None where nobody knows how a manifest names the base's layers, and so is ``packed``, the
    new layer as the manifest has it.
    """

    config: bytes
    layer: bytes
    diff_ids: tuple[str, ...]
    annotations: Mapping[str, str]
    manifest: bytes | None = None
    layers: tuple[Descriptor, ...] | None = None
    packed: bytes | None = None

    @property
    def config_digest(self) -> str:
        """The ID on docker's graph driver and podman."""
        return digest_of(self.config)

    @property
    def manifest_digest(self) -> str | None:
        """The ID in docker's containerd store and in a registry."""
        return None if self.manifest is None else digest_of(self.manifest)

    @property
    def layer_blob(self) -> tuple[str, bytes]:
        """The new layer as a file of an image, by its digest: packed where there is a manifest."""
        if self.packed is None or self.layers is None:
            return self.diff_ids[-1], self.layer
        return self.layers[-1].digest, self.packed


def append(
    raw: Mapping[str, Any],
    base_layers: Sequence[Descriptor] | None,
    layer: bytes,
    *,
    created_by: str,
    labels: Mapping[str, str],
    epoch: int,
) -> BuiltImage:
    """Put a layer on a base whose configuration and layers (as a manifest names them) are given.

    The latter may be None: then there is no manifest. ``labels`` are laid over the base's, and are the manifest's annotations too. Raises ``TreeError``
    if the base's configuration does not agree with its layers.
    """
    below = tuple(raw.get("rootfs", {}).get("diff_ids", ()))
    if not below or (base_layers is not None and len(below) != len(base_layers)):
        named = "none" if base_layers is None else len(base_layers)
        why = f"the base's configuration has {len(below)} layers, but its manifest has {named}"
        raise TreeError(why, hint="the base is damaged: pull or build it again")
    diff_ids = (*below, digest_of(layer))
    config = configuration(raw, diff_ids, created_by=created_by, labels=labels, epoch=epoch)
    image = BuiltImage(config, layer, diff_ids, labels)
    return image if base_layers is None else with_layers(image, base_layers)


def inherited(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an image takes over from the configuration of its base: platform and settings."""
    settings = raw.get("config") or {}
    return {
        **{key: raw[key] for key in _PLATFORM if raw.get(key)},
        "config": {key: settings[key] for key in SETTINGS if settings.get(key)},
    }


def configuration(
    raw: Mapping[str, Any],
    diff_ids: Sequence[str],
    *,
    created_by: str,
    labels: Mapping[str, str],
    epoch: int,
) -> bytes:
    """Return the configuration of an image with these layers; the last is ours."""
    created = timestamp(epoch)
    taken = inherited(raw)
    settings = taken["config"]
    document = {
        **taken,
        "created": created,
        "config": {**settings, "Labels": {**(settings.get("Labels") or {}), **labels}},
        "rootfs": {"type": "layers", "diff_ids": list(diff_ids)},
        # Not the base's own history: an engine tells it otherwise than a registry, and the ID of
        # what is built would depend on where the base was read.
        "history": [
            *({"created": created, "created_by": "base image"} for _ in diff_ids[1:]),
            {"created": created, "created_by": created_by},
        ],
    }
    return _json(document)


def with_layers(image: BuiltImage, base_layers: Sequence[Descriptor]) -> BuiltImage:
    """Return an image with a manifest that names the base's layers so."""
    packed = image.packed or gzipped(image.layer)
    typed = ((one, OCI_NAMES.get(one.media_type, one.media_type)) for one in base_layers)
    own = Descriptor(f"{LAYER}+gzip", digest_of(packed), len(packed))
    layers = (*(one._replace(media_type=media_type) for one, media_type in typed), own)
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": _descriptor(Descriptor(CONFIG, image.config_digest, len(image.config))),
        "layers": [_descriptor(one) for one in layers],
        "annotations": dict(image.annotations),
    }
    return image._replace(manifest=_json(manifest), layers=layers, packed=packed)


def gzipped(data: bytes) -> bytes:
    """Return ``data`` as one gzip member with nothing in it but the data.

    Another zlib (zlib-ng, a later version) may pack the same bytes otherwise. So nothing that identifies an
    image rests on it: its ID is the digest of its configuration, which names each layer by the digest of its
    tar (diff_id). The digest of a manifest does name the packed bytes.
    """
    return _GZIP + zlib.compress(data, 9, wbits=31)[len(_GZIP) :]


def top(images: Sequence[BuiltImage]) -> bytes:
    """Return the manifest of an image, or the index of one pairing's images for as many platforms.

    Each has a manifest. The annotations of the index are those that all of them have.
    """
    if len(images) == 1:
        return images[0].manifest or b""
    listed = [entry(i.manifest or b"", platform=platform(json.loads(i.config))) for i in images]
    return index_of(listed, annotations=shared_annotations([one.annotations for one in images]))


def platform(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an index says of the platform of an image."""
    return {key: config[key] for key in _PLATFORM if key in config}


def shared_annotations(annotations: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return what the annotations of all images of an index have in common: its own."""
    first, *others = annotations or ({},)
    return {key: said for key, said in first.items() if all(one.get(key) == said for one in others)}


def index(named: bytes, ref: str, others: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return an index.json that names a manifest, or an index, ``ref``, after the entries ``others``."""
    called = {TAG: ref.rpartition(":")[2], FULL_NAME: full_name(ref)}
    return index_of([*others, entry(named, annotations=called)])


def index_of(entries: Sequence[Mapping[str, Any]], **more: object) -> bytes:
    """Return an index of manifests."""
    return _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": list(entries), **more})


def descriptor_of(document: bytes) -> Descriptor:
    """Return how others name a manifest or an index."""
    return Descriptor(str(json.loads(document)["mediaType"]), digest_of(document), len(document))


def entry(document: bytes, **more: object) -> dict[str, Any]:
    """Return what an index says of a manifest, or of another index."""
    return {**_descriptor(descriptor_of(document)), **more}


def docker_manifest(image: BuiltImage, ref: str, layer_paths: Sequence[str]) -> bytes:
    """Return the manifest.json of a docker archive."""
    paths = {"Config": blob_path(image.config_digest), "Layers": list(layer_paths)}
    return _json([{**paths, "RepoTags": [ref]}])


def blob_path(digest: str) -> str:
    """Return where a layout keeps a blob."""
    return f"blobs/{digest.replace(':', '/')}"


def timestamp(epoch: int) -> str:
    """Return a time as RFC 3339 writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def full_name(ref: str) -> str:
    """Return a reference with its registry, as containerd wants it: docker.io unless it says so."""
    if names.has_host(ref):
        return ref
    return f"{names.HUB}/{'' if '/' in ref else 'library/'}{ref}"


def _descriptor(blob: Descriptor) -> dict[str, Any]:
    return {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
