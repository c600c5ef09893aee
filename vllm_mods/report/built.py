"""Answers of ``lock``, ``build`` and ``upgrade``, as text and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mods.api.build import BuildResult
from vllm_mods.api.on_base import BuiltFor, ReadLock
from vllm_mods.api.upgrade import Upgraded
from vllm_mods.building.oci import BuiltImage
from vllm_mods.formats import pairing_lock
from vllm_mods.formats.pairing_lock import PairingLock
from vllm_mods.report.data import fields


def lock_data(result: ReadLock) -> dict[str, Any]:
    """Return a lock that was written."""
    lock = result.lock
    return {
        "lock": result.path,
        "sha256": result.sha256,
        "pairing": lock.pairing,
        "tag": result.tag,
        "base": lock.base.config,
        "platform": lock.base.platform,
        "platforms": list(pairing_lock.by_platform(lock)),
        "vllm": lock.vllm.version,
        "mods": [fields(mod, "name", "version") for mod in lock.mods],
    }


def lock_text(result: ReadLock) -> str:
    """Return for each platform the base, the mods and the wheels of a lock."""
    lines = []
    for part in pairing_lock.by_platform(result.lock).values():
        base = f"{part.base.ref} ({part.base.config[:19]}…, {part.base.platform})"
        lines.append(f"{part.pairing} on {base}, vLLM {part.vllm.version}")
        lines += _mod_lines(part)
        lines += [f"  {wheel.filename}" for wheel in part.wheels]
    return "\n".join((*lines, f"builds {result.tag}"))


def _mod_lines(lock: PairingLock) -> list[str]:
    return [
        f"  {mod.name} {mod.version}  {mod.verdict} (variant {mod.variant})" for mod in lock.mods
    ]


def build_data(result: BuildResult, output: str | None) -> dict[str, Any]:
    """Return the images that were built; ``output`` is where the caller wanted them."""
    pushed = result.written.pushed
    answer: dict[str, Any] = {
        **_digests(result.images[0].built),
        **({"manifest": pushed} if pushed else {}),
        "lock": result.lock,
        "tag": result.tag,
        "output": output or result.output.kind,
    }
    if len(result.images) > 1:
        platforms = {one.lock.base.platform: _digests(one.built) for one in result.images}
        answer["platforms"] = platforms
    return answer


def _digests(image: BuiltImage) -> dict[str, str | None]:
    return {
        "image": image.config_digest,
        "manifest": image.manifest_digest,
        "layer": image.layer_digest,
    }


def build_text(result: BuildResult) -> str:
    """Return what was written where, and the digest of each image."""
    return "\n".join((result.written.said, *_image_lines(result.images)))


def _image_lines(images: Sequence[BuiltFor]) -> list[str]:
    ends = [f"  {one.lock.base.platform}" if len(images) > 1 else "" for one in images]
    ids = (one.built.config_digest for one in images)
    return [f"image  {image}{end}" for image, end in zip(ids, ends, strict=True)]


def upgrade_data(result: Upgraded) -> dict[str, Any]:
    """Return what became of a pairing's lock and image."""
    lock = result.now.lock
    answer = {
        "pairing": lock.pairing,
        "changed": result.changed,
        "tag": result.now.tag,
        "lock": result.now.path,
        "base": lock.base.ref,
        "vllm": lock.vllm.version,
        "mods": [fields(mod, "name", "version", "verdict") for mod in lock.mods],
        "differences": result.differences,
    }
    if result.written is not None:
        answer["image"] = result.images[0].built.config_digest
        answer["manifest"] = result.written.pushed
    return answer


def upgrade_text(result: Upgraded) -> str:
    """Return the same for a person."""
    lock, before = result.now.lock, result.before.lock
    if not result.changed:
        return f"{lock.pairing} is on {lock.base.ref} as it is now: nothing moved"
    lines = [
        f"{lock.pairing}: vLLM {before.vllm.version} → {lock.vllm.version}, now {result.now.tag} on {lock.base.ref}",
        *_mod_lines(lock),
        "what moved:",
        *(f"  {one}" for one in result.differences),
    ]
    if result.written is not None:
        lines += [result.written.said, *_image_lines(result.images)]
    return "\n".join((*lines, f"stays  {result.before.tag}"))
