"""Check that manifest and index say what a lock's images have, and nothing else. Pure.

Nothing that engines read differently is left in them: a key of another spelling (Go reads ``Layers`` as
``layers``), an address for a layer, a second description of how it is unpacked.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding
from vllm_mods.building import oci
from vllm_mods.images.model import Base
from vllm_mods.images.oci import INDEXES, MANIFESTS, Index

_CONFIGS = (oci.CONFIG, "application/vnd.docker.container.image.v1+json")
_LAYERS = (*oci.OCI_NAMES.values(), *oci.OCI_NAMES)
_BLOB = ("digest", "size")


def of_manifest(manifest: Mapping[str, Any], labels: Mapping[str, str]) -> Iterator[Finding]:
    """Yield what a readable manifest says that follows from neither its configuration, its layers nor these labels."""
    known = ("config", "layers", "annotations")
    yield from _document("the manifest", manifest, known, MANIFESTS)
    yield from _descriptor("the manifest's configuration", manifest["config"], _BLOB, _CONFIGS)
    for number, layer in enumerate(manifest["layers"], 1):
        yield from _descriptor(f"the manifest's layer {number}", layer, _BLOB, _LAYERS)
    if annotations := _table(manifest.get("annotations")):  # docker's form of an image has none
        yield from values("the annotation", labels, annotations)


def of_indexes(indexes: Sequence[Index], images: Sequence[Base]) -> Iterator[Finding]:
    """Yield what a readable index says that does not follow from ``images``: all that are in it, or those asked for."""
    for number, index in enumerate(indexes, 1):
        what = "the index" if len(indexes) == 1 else f"index {number} of {len(indexes)}"
        yield from _document(what, index, ("manifests", "annotations"), INDEXES)
        for place, entry in enumerate(index["manifests"], 1):
            yield from _descriptor(
                f"entry {place} of {what}", entry, (*_BLOB, "platform"), MANIFESTS
            )
    platforms = {one.manifest_digest: oci.platform(json.loads(one.config)) for one in images}
    for place, entry in enumerate(indexes[-1]["manifests"], 1):
        wanted = {"platform": platforms.get(entry["digest"], entry.get("platform"))}
        stated = {key: entry[key] for key in wanted if key in entry}
        yield from values(f"entry {place} of the index: its", wanted, stated)
    annotations = [_table(json.loads(one.manifest or b"{}").get("annotations")) for one in images]
    actual = _table(indexes[0].get("annotations"))
    # with one platform asked for, nobody has looked at all
    if actual and len(images) == len(indexes[-1]["manifests"]):
        yield from values("the index's annotation", oci.shared_annotations(annotations), actual)


def values(what: str, wanted: Mapping[str, Any], actual: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield a finding for each key whose value is not the one that the lock makes."""
    for key in sorted(wanted.keys() | actual.keys()):
        if wanted.get(key) != actual.get(key):
            yield differs(
                f"{what} {key} is {_said(actual, key)}, and the lock makes it {_said(wanted, key)}"
            )


def differs(message: str) -> Finding:
    """Return the finding that an image is not the lock's."""
    return Finding(code=FindingCode.IMAGE_DIFFERS, message=message)


def _document(
    what: str, document: Mapping[str, Any], known: Collection[str], types: Sequence[str]
) -> Iterator[Finding]:
    if document.get("schemaVersion") != 2:
        yield differs(f"{what}'s schemaVersion is {_said(document, 'schemaVersion')}, not 2")
    # OCI's first version left it out
    yield from _descriptor(
        what, {"mediaType": types[0], **document}, (*known, "schemaVersion"), types
    )


def _descriptor(
    what: str, raw: Mapping[str, Any], known: Collection[str], types: Sequence[str]
) -> Iterator[Finding]:
    for key in sorted(raw.keys() - {*known, "mediaType"}):
        yield differs(f"{what} has {key}, {_said(raw, key)}: no lock makes it")
    if raw.get("mediaType") not in types:
        yield differs(f"{what} is of the type {_said(raw, 'mediaType')}: no lock makes it")


def _table(annotations: object) -> Mapping[str, Any]:
    if isinstance(annotations, dict):
        return annotations
    return {"": annotations} if annotations else {}


def _said(table: Mapping[str, Any], key: str) -> str:
    if key not in table:
        return "not there"
    text = table[key] if isinstance(table[key], str) else json.dumps(table[key])
    return text if len(text) <= 200 else f"{text[:197]}…"
