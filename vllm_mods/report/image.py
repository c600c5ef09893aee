"""Answers of ``image``, as text and as JSON."""

from __future__ import annotations

from typing import Any

from vllm_mods.api.image_verify import ImageDiff, ImageVerified, InspectedImage
from vllm_mods.images import oci
from vllm_mods.report import data, text
from vllm_mods.report.disagreements import disagreements
from vllm_mods.trees.image import ImageTree


def image_data(image: InspectedImage) -> dict[str, Any]:
    """Return what is in an image."""
    tree, inspected = image
    mods = inspected.receipt.mods if inspected.receipt else ()
    lock = inspected.lock
    return {
        "schema": data.SCHEMA,
        "ok": inspected.ok,
        "image": _head(tree),
        "labels": inspected.labels,
        "lock": lock
        and {
            "pairing": lock.pairing,
            "model": lock.model,
            "revision": lock.revision,
            "base": lock.base.ref,
            "sha256": inspected.lock_digest,
        },
        "mods": [
            {**data.applied(mod), "verdict": mod.verdict, "intact": not inspected.changed(mod.name)}
            for mod in mods
        ],
        "findings": inspected.findings,
    }


def _head(tree: ImageTree) -> dict[str, Any]:
    return {
        "reference": tree.base.reference,
        "where": tree.base.where,
        "config": tree.base.config_digest,
        "manifest": tree.base.manifest_digest,
        "layers": len(tree.base.diff_ids),
        "site_root": f"/{tree.site_root}",
        "version": tree.version,
    }


def image_text(image: InspectedImage) -> str:
    """Return the same for a person."""
    tree, inspected = image
    base, layers = tree.base, len(tree.base.diff_ids)
    lines = [
        text.tree_name(tree.version, base.reference),
        f"  {base.where}, {layers} layer{'s' * (layers != 1)}, {base.config_digest}",
        f"  vLLM in /{tree.site_root}",
    ]
    if (lock := inspected.lock) is not None:
        lines.append(f"  pairing {lock.pairing} for {lock.model}, lock {inspected.lock_digest}")
    for mod in inspected.receipt.mods if inspected.receipt else ():
        state = "changed since" if inspected.changed(mod.name) else "as it was left"
        lines.append(f"  {mod.name} {mod.version} (variant {mod.variant}): went in, {state}")
    if inspected.receipt is None:
        lines.append("  no mods are in")
    return "\n".join((*lines, *text.located(inspected.findings)))


def verified_data(result: ImageVerified) -> dict[str, Any]:
    """Return the image for this machine, and of an index each of them by platform."""
    images = {name: image_data(image) for name, image in result.images.items()}
    none: dict[str, Any] = {"findings": []}
    answer = images.get(oci.this_platform()) or next(iter(images.values()), none)
    if not result.platforms:
        return answer
    findings = [*answer["findings"], *result.findings]
    return {**answer, "ok": result.ok, "findings": findings, "platforms": images}


def verified_text(result: ImageVerified) -> str:
    """Return the same for a person."""
    several = bool(result.platforms[1:])
    lines = [
        f"{name}: {image_text(image)}" if several else image_text(image)
        for name, image in result.images.items()
    ]
    return "\n".join((*lines, *(f"  {finding}" for finding in result.findings)))


def diff_data(result: ImageDiff) -> dict[str, Any]:
    """Return how two images differ."""
    return {
        "ok": result.ok,
        "images": [_head(result.old), _head(result.new)],
        **data.fields(result, "pairing", "mods", "files"),
    }


def diff_text(result: ImageDiff, names: tuple[str, str]) -> str:
    """Return the same for a person, of images by ``names``."""
    lines = [
        f"{sign} {text.tree_name(tree.version, tree.base.reference)}"
        for sign, tree in (("-", result.old), ("+", result.new))
    ]
    lines += [f"  {one}" for one in (*result.pairing, *disagreements(result.mods, names))]
    for file in result.files:
        what = "only in the first" if file.after is None else "differs"
        lines.append(f"  {file.path}: {'only in the second' if file.before is None else what}")
    if result.ok:
        lines.append("  they serve the same, with the same mods and the same files in vllm/")
    return "\n".join(lines)
