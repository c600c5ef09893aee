"""Where a built image goes: one module for each kind of place, each with a ``write``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.building.oci import BuiltImage
from vllm_mods.building.outputs import engine, files
from vllm_mods.building.outputs.engine import TagLookup
from vllm_mods.images import names
from vllm_mods.images.model import Base

if TYPE_CHECKING:
    from vllm_mods.building.outputs.registry import Push

ENGINE, OCI, REGISTRY = "docker", "oci", "registry"
_PLACES = {OCI: "DIR", REGISTRY: "REF"}
SEVERAL = frozenset(_PLACES)
"""Where images of several platforms go as one index; an engine has room for one."""
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


class Ready(NamedTuple):
    """An image and where it goes; nothing is written yet, and what is asked beforehand has been asked.

    ``subject`` is the digest that documents are of: a registry's manifest, else the configuration.
    ``asked`` is what looks the tag up in an engine.
    """

    output: Output
    built: BuiltImage
    base: Base
    tag: str
    subject: str
    push: Push | None = None
    asked: TagLookup | None = None


class Written(NamedTuple):
    """What was done, in words, and the digest of the manifest that a registry has now."""

    said: str
    pushed: str | None = None


@contextmanager
def looking_up(output: Output, base: Base, tag: str) -> Iterator[TagLookup | None]:
    """Have an engine look a tag up while the image for it is made; elsewhere nobody has to."""
    if output.kind != ENGINE:
        yield None
        return
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(engine.tagged, base.where, tag).result


def prepare(
    output: Output, images: Sequence[tuple[BuiltImage, Base]], tag: str, asked: TagLookup | None
) -> list[Ready]:
    """Ask what a place has, before anything is written. Raises ``Refused`` and ``TreeError`` as the modules do."""
    ready = [Ready(output, *one, tag, one[0].config_digest, asked=asked) for one in images]
    if output.kind == REGISTRY:
        from vllm_mods.building.outputs import registry  # noqa: PLC0415

        push = registry.prepare(images, output.place, tag)
        pairs = zip(ready, push.manifests, strict=True)
        return [one._replace(subject=manifest.digest, push=push) for one, manifest in pairs]
    return ready


def write(images: Sequence[Ready]) -> Written:
    """Put an image there under a tag, or an index of several, whole or not at all.

    Raises ``Refused`` and ``TreeError`` as the modules do.
    """
    output, built, base, tag, _, push, asked = images[0]
    if asked is not None:
        engine.write(built, base.where, tag, asked)
        return Written(
            f"loaded {tag} into {base.where}: {len(built.layer):,} bytes on top of the base"
        )
    if push is not None:
        from vllm_mods.building.outputs import registry  # noqa: PLC0415

        pushed = registry.push(push, [one.base for one in images])
        said = f"pushed {pushed.name}@{pushed.digest}: {pushed.sent:,} bytes sent"
        return Written(said, pushed.digest)
    files.layout([(one.built, one.base) for one in images], os.path.abspath(output.place), tag)
    return Written(f"wrote {tag} to {output.place}")
