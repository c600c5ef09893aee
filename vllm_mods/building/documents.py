"""What lies beside an image: a CycloneDX bill of materials and an in-toto statement. Pure.

Formats: CycloneDX 1.6, and SLSA provenance 1.0 in an in-toto statement 1. Both are small JSON objects
with no time and no random number in them, which is why no library writes them: the same lock gives
the same bytes. A test validates them with cyclonedx-python-lib, against the schema.
"""

from __future__ import annotations

import json
import uuid
from typing import Any
from urllib.parse import quote

from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock

BUILD_TYPE = "vllm-mods:build:1"  # a URI whose scheme is ours: no domain is


def bill_of_materials(lock: PairingLock, data: bytes, image: str) -> bytes:
    """Return what is in an image: base, vLLM, mods, templates and wheels.

    ``data`` are the bytes of the lock, ``image`` is the digest of what was built.
    """
    version = pairing_lock.tag(lock, data).rpartition(":")[2]
    tool = {"type": "application", "name": "vllm-mods", "version": _tool_version(lock)}
    top = _component("container", lock.pairing, version, image)
    parts = [
        _component("container", lock.base.ref, lock.base.config, lock.base.config),
        _package("vllm", lock.vllm.version or "unknown"),
        *(_mod(mod) for mod in lock.mods),
        *(_component("file", one.path, "", one.sha256) for one in lock.templates),
        *(_package(one.name, one.version, one.sha256) for one in lock.wheels),
    ]
    return _json(
        {
            "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'{image} {version}')}",
            "version": 1,
            "metadata": {"component": top, "tools": {"components": [tool]}},
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
        _material(lock.base.ref, lock.base.config),
        _material(f"{lock.pairing}.lock", lock_digest),
        *(_material(f"mod {one.name} {one.version}", one.digest) for one in lock.mods),
        *(_material(one.path, one.sha256) for one in lock.templates),
        *(_material(one.filename, one.sha256) for one in lock.wheels),
    ]
    return _json(
        {
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [_material(pairing_lock.tag(lock, data), image)],
            "predicateType": "https://slsa.dev/provenance/v1",
            "predicate": {
                "buildDefinition": {
                    "buildType": BUILD_TYPE,
                    "externalParameters": {"pairing": lock.pairing, "lock": lock_digest},
                    "internalParameters": {"layerFormat": lock.layer_format, "epoch": lock.epoch},
                    "resolvedDependencies": materials,
                },
                "runDetails": {
                    "builder": {"id": BUILD_TYPE, "version": {"vllm-mods": _tool_version(lock)}},
                    "metadata": {"invocationId": f"{lock_digest}/{_hex(image)}"},
                },
            },
        }
    )


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


def _package(name: str, version: str, digest: str | None = None) -> dict[str, Any]:
    part = _component("library", name, version, digest)
    return {**part, "purl": f"pkg:pypi/{name}@{quote(version, safe='')}"}


def _component(kind: str, name: str, version: str, digest: str | None = None) -> dict[str, Any]:
    part: dict[str, Any] = {"type": kind, "bom-ref": f"{kind}:{name}@{version}", "name": name}
    if version:
        part["version"] = version
    if digest is not None:
        part["hashes"] = [{"alg": "SHA-256", "content": _hex(digest)}]
    return part


def _tool_version(lock: PairingLock) -> str:
    return lock.tool.partition(" ")[2] or lock.tool


def _material(name: str, digest: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": _hex(digest)}}


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _json(value: object) -> bytes:
    return (json.dumps(value, sort_keys=True, indent=1) + "\n").encode()
