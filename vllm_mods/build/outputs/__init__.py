"""Where a built image goes: one module for each kind of place, each with a ``write``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.build import archive
from vllm_mods.build.building import Built
from vllm_mods.build.outputs import dockerfile, engine, files
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.images import names
from vllm_mods.images.model import Base

ENGINE, OCI, OCI_ARCHIVE, DOCKER_ARCHIVE = "docker", "oci", "oci-archive", "docker-archive"
REGISTRY, DOCKERFILE, THIN = "registry", "dockerfile", "thin"
_PLACES = {
    OCI: "DIR",
    OCI_ARCHIVE: "FILE",
    DOCKER_ARCHIVE: "FILE",
    REGISTRY: "REF",
    DOCKERFILE: "DIR",
    THIN: "FILE",
}
SEVERAL = frozenset({OCI, REGISTRY})
"""Where images of several platforms go as one index; elsewhere there is room for one."""
_FORMS = ", ".join(("docker", *(f"{kind}:{place}" for kind, place in _PLACES.items())))


class Output(NamedTuple):
    """A kind of place, and which."""

    kind: str
    place: str = ""


def parse(text: str | None, base: Base) -> Output:
    """Read what was typed; without anything, the engine that the base lies in.

    Raises ``UsageError`` for what names no place and for an engine that has no part of the base.
    """
    if text is None or text == ENGINE:
        if base.where in engine.PROGRAMS:
            return Output(ENGINE)
        raise UsageError(
            f"{base.reference} lies in no local engine ({base.where}), so there is none that would "
            "take one layer on top",
            hint=f"--output with one of {_FORMS}",
        )
    kind, colon, place = text.partition(":")
    if kind not in _PLACES or not colon or not place:
        raise UsageError(f"--output {text}: no such place", hint=f"one of {_FORMS}")
    if kind == REGISTRY:
        names.parse(place)
    return Output(kind, place)


class Written(NamedTuple):
    """What was done, in words, and the digest of the manifest that a registry has now."""

    said: str
    pushed: str | None = None


def write(
    output: Output, images: Sequence[tuple[Built, Base]], lock: PairingLock, tag: str
) -> Written:
    """Put an image there under a tag, or an index of those of several platforms, whole or not at all.

    Raises ``Refused`` and ``TreeError`` as the modules do.
    """
    built, base = images[0]
    if output.kind == ENGINE:
        engine.write(built, base.where, tag)
        return Written(
            f"loaded {tag} into {base.where}: {len(built.image.layer):,} bytes on top of the base"
        )
    if output.kind == DOCKERFILE:
        dockerfile.write(built, base, lock, output.place)
        return Written(f"wrote {output.place}: docker build -t {tag} {output.place}")
    if output.kind == REGISTRY:
        from vllm_mods.build.outputs import registry  # noqa: PLC0415

        pushed = registry.write(images, output.place, tag)
        said = f"pushed {pushed.name}@{pushed.digest}: {pushed.sent:,} bytes sent"
        return Written(said, pushed.digest)
    place = os.path.abspath(output.place)
    if output.kind == THIN:
        files.whole_or_nothing(place, iter((archive.thin(built.image, tag),)))
        return Written(
            f"wrote {output.place}, without the base's layers: docker load -i {output.place}"
        )
    if output.kind == OCI:
        files.layout(images, place, tag)
    else:
        files.archived(built, base, place, tag)
    return Written(f"wrote {tag} to {output.place}")
