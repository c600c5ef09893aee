"""Answers of ``image``."""

from typing import Any

from vllm_mods.api.image_verify import ImageVerified
from vllm_mods.building.inspection import Inspection
from vllm_mods.images import oci
from vllm_mods.report import data, text
from vllm_mods.report.reply import Reply


def inspect(inspected: Inspection) -> Reply:
    """Return what is in an image."""
    tree, lock = inspected.tree, inspected.lock
    base = tree.base
    mods = inspected.receipt.mods if inspected.receipt else ()
    lines = [
        text.tree_name(tree.version, base.reference),
        f"  {base.where}, {text.counted(len(base.diff_ids), 'layer')}, {base.config_digest}",
        f"  vLLM in /{tree.site_root}",
    ]
    if lock is not None:
        lines.append(f"  pairing {lock.pairing} for {lock.model}, lock {inspected.lock_digest}")
    intact = {mod.name: not inspected.changed(mod.name) for mod in mods}
    standing = {True: ": applied, unchanged", False: ": applied, changed since"}
    lines += text.applied(mods, lambda mod: standing[intact[mod.name]])
    answer = {
        "schema": data.SCHEMA,
        "ok": inspected.ok,
        "image": {
            "reference": base.reference,
            "where": base.where,
            "config": base.config_digest,
            "manifest": base.manifest_digest,
            "layers": len(base.diff_ids),
            "site_root": f"/{tree.site_root}",
            "version": tree.version,
        },
        "labels": inspected.labels,
        "lock": lock
        and {
            **data.fields(lock, "pairing", "model", "revision"),
            "base": lock.base.ref,
            "sha256": inspected.lock_digest,
        },
        "mods": [
            {**data.applied(mod), "verdict": mod.verdict, "intact": intact[mod.name]}
            for mod in mods
        ],
        "findings": inspected.findings,
    }
    return Reply(answer, "\n".join((*lines, *text.located(inspected.findings))))


def verified(result: ImageVerified) -> Reply:
    """Return the image for this machine, and of an index each of them by platform."""
    images = {name: inspect(image) for name, image in result.images.items()}
    several = bool(result.platforms[1:])
    lines = [f"{name}: {one.words}" if several else one.words for name, one in images.items()]
    by_platform = {name: one.data for name, one in images.items()}
    none: dict[str, Any] = {"findings": []}
    answer = by_platform.get(oci.this_platform()) or next(iter(by_platform.values()), none)
    if result.platforms:
        findings = [*answer["findings"], *result.findings]
        answer = {**answer, "ok": result.ok, "findings": findings, "platforms": by_platform}
    words = "\n".join((*filter(None, lines), *(f"  {finding}" for finding in result.findings)))
    bare = (one.tree.base.reference for one in result.images.values() if one.lock is None)
    hints = (f"vllm-mods image inspect {one}  # only `build` puts a lock in" for one in bare)
    return Reply(answer, words, result.ok, None if result.ok else next(hints, None))
