"""What is attached to an image in a registry: OCI's referrers, by the API or the tag that stands for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.images import oci
from vllm_mods.images.model import Descriptor
from vllm_mods.images.registry import Client


class Referrers(NamedTuple):
    """Descriptors of what is attached to one image, as JSON; ``kept`` is whether the registry keeps them itself."""

    entries: tuple[dict[str, Any], ...]
    kept: bool


def tag(digest: str) -> str:
    """Return the tag of the index where a registry has no API for it (OCI's distribution 1.1)."""
    return digest.replace(":", "-")


def listed(client: Client, digest: str) -> Referrers:
    """Return what is attached to a manifest. Raises ``TreeError``."""
    what = f"{client.name}: what is attached to {digest}"
    data = client.maybe(f"referrers/{digest}", oci.INDEX)
    kept = data is not None
    if data is None:
        data = client.maybe(f"manifests/{tag(digest)}", oci.INDEX)
    entries = [] if data is None else oci.parse(data, what).get("manifests")
    if not isinstance(entries, list) or not all(isinstance(one, dict) for one in entries):
        raise TreeError(f"{what}: no index of OCI's", hint="ask whoever runs the registry")
    return Referrers(tuple(entries), kept)


def blobs(client: Client, digest: str, kind: str) -> Iterator[tuple[tuple[Descriptor, bytes], ...]]:
    """Yield the blobs of each artifact of a kind that is attached. Raises ``TreeError``."""
    # some mirrors (skopeo 1.9) leave the kind out of the index, and it is in the manifest all the same
    found = [one for one in listed(client, digest).entries if one.get("artifactType", kind) == kind]
    if len(found) > limits.ATTACHED:
        raise TreeError(
            f"{client.name}: {len(found)} of {kind} are attached to {digest}, and at most "
            f"{limits.ATTACHED} are looked at",
            hint="take those away that nobody needs",
        )
    for one in found:
        what = f"{client.name}: {one.get('digest')}, which is attached to {digest}"
        try:
            manifest = oci.parse(oci.document_of(client, oci.descriptor(one), what), what)
            if manifest.get("artifactType") != kind:
                continue
            layers = [oci.descriptor(raw) for raw in manifest["layers"]]
        except (KeyError, TypeError, ValueError) as error:
            raise TreeError(f"{what}: no artifact of OCI's: {error}") from error
        yield tuple((each, oci.document_of(client, each, what)) for each in layers)
