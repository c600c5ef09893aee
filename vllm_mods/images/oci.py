"""Images as OCI describes them: an index, a manifest, a configuration, layers, each by its digest.

Docker's "schema 2" manifests have the same shape and are read as such.
"""

import platform
from collections.abc import Callable, Mapping
from functools import partial
from io import IOBase
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import ManifestError, TreeError, UsageError
from vllm_mods.base.untrusted import json_of
from vllm_mods.formats.schema import decode
from vllm_mods.images import streams
from vllm_mods.images.layer import LayeredImage, Progress
from vllm_mods.images.model import Blob, Descriptor, digest_of

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER = "application/vnd.docker.distribution"
MANIFESTS = MANIFEST, f"{_DOCKER}.manifest.v2+json"
INDEXES = INDEX, f"{_DOCKER}.manifest.list.v2+json"
TAG = "org.opencontainers.image.ref.name"
FULL_NAME = "io.containerd.image.name"
"""What nerdctl, containerd and newer dockers write: the whole name, where TAG has its tag only."""
SETTINGS = (
    "User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir", "Labels",
    "StopSignal", "Healthcheck", "Shell", "OnBuild",
)  # fmt: skip
"""What a container takes from its image. Engines tell further fields, of which each has its own."""
_HINT = "get the image again"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "i686": "386"}


OpenBlob = Callable[[Descriptor], IOBase]
"""Opens a blob; what comes is checked by whoever reads it. Raises ``TreeError``."""
UNKNOWN = "unknown/unknown"
"""What an entry of an index that is no image has for its platform: an attestation."""


class IndexEntry(NamedTuple):
    """What an index lists: a manifest, and the ``os/architecture[/variant]`` that it is for, ``""`` without."""

    blob: Descriptor
    platform: str


Index = Mapping[str, Any]
"""An index of images, as JSON has it."""


class Choice(NamedTuple):
    """Which image of an index to take: the one for ``platform``, or for this machine if that is None.

    ``note`` is called with the choice if nobody named a platform, ``known`` with each index that is read.
    """

    platform: str | None = None
    note: Callable[[str], None] | None = None
    known: Callable[[Index], object] | None = None

    def of(self, index: Index, reference: str) -> Descriptor:
        """Choose from an index; entries that are no images (attestations) are skipped. Raises ``UsageError``."""
        entries = entries_in(index, f"{reference}: its index")
        if self.known is not None:
            self.known(index)
        # an image may be listed for two platforms: an engine takes the first entry that fits
        images = list(dict.fromkeys(entry for entry in entries if entry.platform != UNKNOWN))
        if len({entry.blob for entry in images}) == 1:
            return images[0].blob
        wanted = self.platform or this_platform()
        fitting = [entry for entry in images if is_for(entry.platform, wanted)]
        exact = [entry for entry in fitting if entry.platform == wanted]
        if len(exact or fitting) == 1:
            ((chosen, taken),) = exact or fitting
            if self.platform is None and self.note is not None:
                others = ", ".join(name for _, name in images if name != taken)
                self.note(
                    f"{reference}: reading the image for {taken}; --platform selects another: {others}"
                )
            return chosen
        known = "".join(f"\n  {one.digest}  {name or 'names no platform'}" for one, name in images)
        first = next((name for _, name in images if name), None)
        why = f"{reference}: {len(fitting)} of its {len(images)} images are for {wanted}{known}"
        hint = f"--platform {first}, or " if first else ""
        raise UsageError(why, hint=hint + "name an image by its digest: …@sha256:…")


def this_platform() -> str:
    """Return the platform of containers on this machine."""
    machine = platform.machine()
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def is_for(name: str, wanted: str) -> bool:
    """Tell whether ``os/architecture[/variant]`` is the platform that is wanted; a variant may be left out."""
    return all(one == other for one, other in zip(name.split("/"), wanted.split("/"), strict=False))


def platform_of(config: bytes) -> str:
    """Return the platform that a configuration states, ``os/architecture[/variant]``."""
    raw = json_of(config)
    parts = (raw.get("os") or "linux", raw.get("architecture") or "unknown", raw.get("variant"))
    return "/".join(part for part in parts if part)


class Opening(NamedTuple):
    """How to open an image: its name in messages, the cache of layers, what is called with the progress."""

    reference: str
    cache: Cache
    progress: Progress | None = None
    choice: Choice = Choice()


class OciImage(LayeredImage):
    """An image in a place that gives out blobs by digest."""

    def __init__(self, open_blob: OpenBlob, top: Descriptor, where: str, how: Opening) -> None:
        reference = how.reference
        self.where = where
        self.manifest, raw = pick(open_blob, top, reference, how.choice)
        self.manifest_digest = raw.digest
        config, self.layers, self.config = read_manifest(open_blob, self.manifest, reference)
        self.config_digest = config.digest
        self.diff_ids = diff_ids(self.config, reference)
        if len(self.diff_ids) != len(self.layers):
            layers, ids = len(self.layers), len(self.diff_ids)
            why = f"{reference}: the manifest names {layers} layers, but the configuration names {ids}"
            raise TreeError(why, hint=_HINT)
        pairs = zip(self.layers, self.diff_ids, strict=True)
        blobs = (Blob(one.digest, one.size, partial(open_blob, one), of) for one, of in pairs)
        super().__init__(reference, tuple(blobs), how.cache, how.progress)


def pick(
    open_blob: OpenBlob, top: Descriptor, reference: str, choice: Choice, *, depth: int = 0
) -> tuple[bytes, Descriptor]:
    """Return the manifest of one platform: the one described, or one of the index described."""
    if depth > limits.INDEXES:
        raise TreeError(f"{reference}: the indexes are nested too deeply", hint=_HINT)
    data = document_of(open_blob, top, f"{reference}: its manifest")
    document = parse(data, f"{reference}: its manifest")
    if top.media_type in (MANIFESTS if "manifests" in document else INDEXES):
        why = f"{reference}: its manifest is not of the type stated in the index: {top.media_type}"
        raise TreeError(why, hint="do not use this image: engines read it in different ways")
    if "manifests" not in document:
        return data, top
    if both := {"config", "layers"} & document.keys():
        why = f"{reference}: the manifest is both an index (`manifests`) and the manifest of one image ({' and '.join(f'`{key}`' for key in sorted(both))})"
        raise TreeError(why, hint="do not use this image: engines read it in different ways")
    return pick(open_blob, choice.of(document, reference), reference, choice, depth=depth + 1)


def entries_in(index: Index, what: str) -> tuple[IndexEntry, ...]:
    """Return what an index lists, in its order; ``what`` names it in messages. Raises ``TreeError``."""
    try:
        listed = [(descriptor(raw), raw) for raw in index["manifests"]]
    except (KeyError, TypeError, ValueError) as error:
        raise TreeError(f"{what} is broken: {error}", hint=_HINT) from error
    entries = []
    for blob, raw in listed:
        place = _texts(raw, "platform", what)
        parts = (place.get(key) for key in ("os", "architecture", "variant"))
        entries.append(IndexEntry(blob, "/".join(part for part in parts if part)))
    return tuple(entries)


def descriptor(raw: Any) -> Descriptor:  # noqa: ANN401  (JSON)
    """Read a descriptor. Raises ``KeyError``, ``TypeError`` or ``ValueError``."""
    if not isinstance(raw, dict):
        raise TypeError("a descriptor must be an object")
    size = raw["size"]
    if type(size) is not int or size < 0:
        raise ValueError(f"{size!r} is not a size")
    blob = Descriptor(str(raw.get("mediaType", "")), str(raw["digest"]), size)
    algorithm, _, value = blob.digest.partition(":")
    if algorithm not in {"sha256", "sha512"} or not set(value) <= set("0123456789abcdef"):
        raise ValueError(f"{blob.digest} is not a digest")
    return blob


def read_manifest(
    open_blob: OpenBlob, manifest: bytes, reference: str
) -> tuple[Descriptor, tuple[Descriptor, ...], bytes]:
    """Return what a manifest names, and the configuration's bytes. Raises ``TreeError``."""
    raw = parse(manifest, f"{reference}: its manifest")
    try:
        config, layers = descriptor(raw["config"]), tuple(map(descriptor, raw["layers"]))
    except (KeyError, TypeError, ValueError) as error:
        why = f"{reference}: its manifest {digest_of(manifest)} does not name a configuration and layers"
        hint = "an image's manifest is of schema 2 or OCI: build the image again"
        raise TreeError(why, hint=hint) from error
    return config, layers, document_of(open_blob, config, f"{reference}: its configuration")


def document_of(open_blob: OpenBlob, blob: Descriptor, what: str) -> bytes:
    """Return a small blob whose digest is right. Raises ``TreeError``."""
    if blob.size > limits.DOCUMENT:
        raise TreeError(f"{what}: {blob.size} bytes, which is too long", hint=_HINT)
    with open_blob(blob) as file:
        size = blob.size if blob.size >= 0 else None
        return streams.CheckedStream(file, blob.digest, size, what).read()


def parse(data: bytes, what: str, *, once: bool = True) -> dict[str, Any]:
    """Read a JSON object; with ``once``, no key may occur twice. Raises ``TreeError``."""
    try:
        document = json_of(data, once=once)
    except ValueError as error:
        raise TreeError(f"{what}: not JSON: {error}", hint=_HINT) from error
    if not isinstance(document, dict):
        raise TreeError(f"{what}: not a JSON object", hint=_HINT)
    return document


def diff_ids(config: bytes, reference: str) -> tuple[str, ...]:
    """Return the layers that a configuration names. Raises ``TreeError``."""
    try:
        # an image may have labels that differ in capitals alone
        raw = parse(config, f"{reference}: its configuration", once=False)
        read = decode(_Config, raw, more=True)
    except ManifestError as error:
        problems = "; ".join(error.problems)
        why = f"its configuration does not follow the OCI specification: {problems}"
        raise TreeError(f"{reference}: {why}", hint=_HINT) from error
    if read.rootfs is None or read.rootfs.diff_ids is None:
        why = f"{reference}: its configuration names no layers (rootfs.diff_ids)"
        hint = "this is not a container image: it is another OCI artifact, or a tool removed its layers"
        raise TreeError(why, hint=hint)
    return read.rootfs.diff_ids


class _Layers(NamedTuple):
    diff_ids: tuple[str, ...] | None


class _Settings(NamedTuple):
    """What is read of the settings; their names are OCI's."""

    Labels: Mapping[str, str] | None
    Env: tuple[str, ...] | None
    WorkingDir: str | None


class _Config(NamedTuple):
    architecture: str | None
    os: str | None
    variant: str | None
    config: _Settings | None
    rootfs: _Layers | None


def choose_named(index: dict[str, Any], tag: str | None, how: Opening) -> Descriptor:
    """Choose from a layout's ``index.json``: by tag or digest, else the only image there is.

    Raises ``UsageError`` if the choice is not clear, ``TreeError`` if the index is broken.
    """
    reference = how.reference
    images = [entry.blob for entry in entries_in(index, f"{reference}: its index.json")]
    notes = [_texts(raw, "annotations", reference) for raw in index["manifests"]]
    tags = [one.get(TAG) or one.get(FULL_NAME) for one in notes]
    known = sorted({name for name in tags if name})
    if tag is None:
        if len({one.digest for one in images}) == 1:
            return images[0]
        if images and not known:
            return how.choice.of(index, reference)
    else:
        rows = zip(images, tags, notes, strict=True)
        called = [one for one, name, note in rows if tag in {one.digest, name, note.get(FULL_NAME)}]
        # one engine takes the first, another the last
        if len({blob.digest for blob in called}) > 1:
            why = f"{reference}: it has {len(called)} images named {tag}"
            raise UsageError(why, hint="name an image by its digest: …@sha256:…")
        if called:
            return called[0]
        if tag.startswith("sha256:"):
            # In a nested index, then; its length is not known here, and its digest says enough.
            return Descriptor("", tag, -1)
    what = f"it has no image named {tag}" if tag else f"it has {len(images)} images"
    why = f"{reference}: {what}" + (f"; there are: {', '.join(known)}" if known else "")
    hint = f"name an image: …:{known[0]}" if known else "name an image by its digest: …@sha256:…"
    raise UsageError(why, hint=hint)


def _texts(raw: dict[str, Any], key: str, reference: str) -> dict[str, str]:
    """Return a mapping of texts out of a descriptor, an empty one if it is not there."""
    texts = raw.get(key) or {}
    if not isinstance(texts, dict) or not all(isinstance(one, str) for one in texts.values()):
        raise TreeError(f"{reference}: the {key} of {raw.get('digest')} are broken", hint=_HINT)
    return texts
