"""What lies beside an image: a CycloneDX bill of materials and an in-toto statement. Pure.

Formats: CycloneDX 1.6, and SLSA provenance 1.0 in an in-toto statement 1. Both are small JSON objects
with no time and no random number in them, which is why no library writes them: the same lock gives
the same bytes. A test validates them with cyclonedx-python-lib, against the schema.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock

BUILD_TYPE = "vllm-mods:build:1"  # a URI whose scheme is ours: no domain is
_URLS = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")


def bill_of_materials(lock: PairingLock, data: bytes, image: str) -> bytes:
    """Return what is in an image: base, vLLM, mods, templates and wheels.

    ``data`` are the bytes of the lock, ``image`` is the digest of what was built.
    """
    version = pairing_lock.tag(lock, data).rpartition(":")[2]
    top = _component("container", lock.pairing, version, image)
    vllm = _component("library", "vllm", lock.vllm.version or "unknown")
    vllm["purl"] = f"pkg:pypi/vllm@{quote(lock.vllm.version or 'unknown', safe='')}"
    parts = [
        _component("container", lock.base.ref, lock.base.config, lock.base.config),
        vllm,
        *(_mod(mod) for mod in lock.mods),
        *(_template(template) for template in lock.templates),
        *(_wheel(wheel) for wheel in lock.wheels),
    ]
    return _json(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(_URLS, f'{image} {version}')}",
            "version": 1,
            "metadata": {"component": top, "tools": {"components": [_tool(lock)]}},
            "components": parts,
            "dependencies": [
                {"ref": top["bom-ref"], "dependsOn": sorted(part["bom-ref"] for part in parts)},
                *({"ref": part["bom-ref"], "dependsOn": []} for part in parts),
            ],
        }
    )


def provenance(lock: PairingLock, data: bytes, image: str) -> bytes:
    """Return the statement of what an image was made from and how; arguments as above."""
    lock_digest = pairing_lock.digest(data)
    materials = [
        {"name": lock.base.ref, "digest": {"sha256": _hex(lock.base.config)}},
        {"name": f"{lock.pairing}.lock", "digest": {"sha256": lock_digest}},
        *(
            {"name": f"mod {mod.name} {mod.version}", "digest": _sha(mod.digest)}
            for mod in lock.mods
        ),
        *({"name": one.path, "digest": _sha(one.sha256)} for one in lock.templates),
        *({"name": one.filename, "digest": _sha(one.sha256)} for one in lock.wheels),
    ]
    return _json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": pairing_lock.tag(lock, data), "digest": {"sha256": _hex(image)}}],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": {"pairing": lock.pairing, "lock": lock_digest},
                    "internalParameters": {"layerFormat": lock.layer_format, "epoch": lock.epoch},
                    "resolvedDependencies": materials,
                },
                "runDetails": {
                    "builder": {"id": BUILD_TYPE, "version": _tool_version(lock)},
                    "metadata": {"invocationId": f"{lock_digest}/{_hex(image)}"},
                },
            },
        }
    )


def of_index(statements: Sequence[bytes], index: str) -> bytes:
    """Return the statement of an index, which was made of all that its images were made of."""
    first, *others = map(json.loads, statements)
    definition = first["predicate"]["buildDefinition"]
    for one in others:
        for material in one["predicate"]["buildDefinition"]["resolvedDependencies"]:
            if material not in definition["resolvedDependencies"]:
                definition["resolvedDependencies"].append(material)
    first["subject"][0]["digest"] = {"sha256": _hex(index)}
    lock = definition["externalParameters"]["lock"]
    first["predicate"]["runDetails"]["metadata"]["invocationId"] = f"{lock}/{_hex(index)}"
    return _json(first)


def _mod(mod: pairing_lock.LockedMod) -> dict[str, Any]:
    part = _component("application", f"vllm-mods mod {mod.name}", mod.version, mod.digest)
    part["properties"] = [
        {"name": "vllm-mods:variant", "value": mod.variant or ""},
        {"name": "vllm-mods:verdict", "value": mod.verdict},
        *(
            {"name": f"vllm-mods:file:{one.path}", "value": one.after or "removed"}
            for one in mod.files
        ),
    ]
    return part


def _template(template: pairing_lock.LockedTemplate) -> dict[str, Any]:
    return _component("file", template.path, "", template.sha256)


def _wheel(wheel: pairing_lock.LockedWheel) -> dict[str, Any]:
    part = _component("library", wheel.name, wheel.version, wheel.sha256)
    part["purl"] = f"pkg:pypi/{wheel.name}@{quote(wheel.version, safe='')}"
    return part


def _component(kind: str, name: str, version: str, digest: str | None = None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind, "bom-ref": f"{kind}:{name}@{version}", "name": name}
    if version:
        part["version"] = version
    if digest is not None:
        part["hashes"] = [{"alg": "SHA-256", "content": _hex(digest)}]
    return part


def _tool(lock: PairingLock) -> dict[str, Any]:
    return {"type": "application", "name": "vllm-mods", "version": _tool_version(lock)["vllm-mods"]}


def _tool_version(lock: PairingLock) -> dict[str, str]:
    return {"vllm-mods": lock.tool.partition(" ")[2] or lock.tool}


def _sha(digest: str) -> dict[str, str]:
    return {"sha256": _hex(digest)}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()
