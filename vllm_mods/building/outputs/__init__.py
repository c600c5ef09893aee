"""Where a built image goes: one module for each kind of place, each with a ``write``."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import engine, files
from vllm_mods.images import engine_command, names
from vllm_mods.images.model import Base

ENGINE, OCI, REGISTRY = "docker", "oci", "registry"
_PLACES = {OCI: "DIR", REGISTRY: "REF"}
SEVERAL = frozenset(_PLACES)
"""Where images of several platforms go as one index; an engine has room for one."""
_FORMS = ", ".join((ENGINE, *(f"{kind}:{place}" for kind, place in _PLACES.items())))


class Output(NamedTuple):
    """A kind of place, and which."""

    kind: str
    place: str = ""


def parse(text: str | None, base: Base) -> Output:
    """Read what was typed; without anything, the engine that the base lies in.

    Raises ``UsageError`` for what names no place and for an engine that has no part of the base.
    """
    if text is None or text == ENGINE:
        if base.where in engine_command.STORES:
            return Output(ENGINE)
        why = f"{base.reference} is not in a local engine ({base.where}), so no engine can add a layer to it"
        raise UsageError(why, hint=f"--output {OCI}:DIR, or --output {REGISTRY}:REF")
    kind, colon, place = text.partition(":")
    if kind not in _PLACES or not colon or not place:
        raise UsageError(f"--output {text}: unknown kind of output", hint=f"one of {_FORMS}")
    if kind == REGISTRY and names.parse(place).digest is not None:
        why = (
            f"--output {text}: an image gets a tag there; what digest it has follows from its bytes"
        )
        raise UsageError(why, hint=f"--output {kind}:{place.partition('@')[0]}")
    return Output(kind, place)


class Written(NamedTuple):
    """What was done, in words, and the digest of the manifest that a registry has now."""

    message: str
    pushed: str | None = None


def write(output: Output, images: Sequence[tuple[BuiltImage, Base]], tag: str) -> Written:
    """Put an image there under a tag, or an index of several, whole or not at all.

    Raises ``Refused`` and ``TreeError`` as the modules do.
    """
    built, base = images[0]
    if output.kind == ENGINE:
        engine.write(built, base.where, tag)
        return Written(
            f"loaded {tag} into {base.where}: {len(built.layer):,} bytes added to the base"
        )
    if output.kind == REGISTRY:
        from vllm_mods.building.outputs import registry  # noqa: PLC0415  (requests: 100 ms)

        name, digest, sent = registry.push(images, output.place, tag)
        return Written(f"pushed {name}@{digest}: {sent:,} bytes sent", digest)
    files.layout(images, os.path.abspath(output.place), tag)
    return Written(f"wrote {tag} to {output.place}")
