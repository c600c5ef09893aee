"""What is attached to an image in a registry: OCI's referrers, by the API or the tag that stands for it."""

from __future__ import annotations

from typing import Any, NamedTuple

from vllm_mods.base.errors import TreeError
from vllm_mods.images import oci
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
