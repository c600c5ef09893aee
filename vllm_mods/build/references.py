"""The names of images, as engines and registries know them. Pure."""

from __future__ import annotations

_KINDS = ("docker", "podman", "buildah", "registry")


def plain(reference: str) -> str:
    """Return a reference without the word in front that says where to look (``docker:NAME``)."""
    kind, colon, name = reference.partition(":")
    return name if colon and kind in _KINDS else reference
