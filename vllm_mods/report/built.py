"""Answers of ``lock``, ``build`` and ``upgrade``."""

import shlex
from collections.abc import Sequence
from typing import Any

from vllm_mods.api.build import BuildResult, Upgraded
from vllm_mods.api.on_base import BuiltFor, ReadLock
from vllm_mods.building import outputs
from vllm_mods.building.oci import BuiltImage
from vllm_mods.formats import pairing_lock
from vllm_mods.images.open import in_engine
from vllm_mods.report.data import fields
from vllm_mods.report.reply import Reply


def lock(result: ReadLock, *, base: str | None, output: str | None) -> Reply:
    """Return for each platform the base, the mods and the wheels of a lock that was written; ``base`` and ``output`` are as they were named."""
    whole = result.lock
    parts = pairing_lock.by_platform(whole)
    lines = []
    for part in parts.values():
        image = f"{part.base.ref} ({part.base.config[:19]}…, {part.base.platform})"
        lines.append(f"{part.pairing} on {image}, vLLM {part.vllm.version}")
        lines += _mod_lines(part)
        lines += [f"  {wheel.filename}" for wheel in part.wheels]
    answer = {
        "lock": result.path,
        "sha256": result.sha256,
        "pairing": whole.pairing,
        "tag": result.tag,
        "base": whole.base.config,
        "platform": whole.base.platform,
        "platforms": list(parts),
        "vllm": whole.vllm.version,
        "mods": [fields(mod, "name", "version") for mod in whole.mods],
    }
    named: tuple[str, ...] = ("--lock", output) if output is not None else ()
    if not in_engine(base or whole.base.ref):  # no engine takes a layer for it
        named += ("--output", f"oci:{whole.pairing}")
    lines += [f"image: {result.tag}"]
    next_step = shlex.join(("vllm-mods", "build", whole.pairing, *named))
    return Reply(answer, "\n".join(lines), next_step=next_step)


def moved(changes: Sequence[pairing_lock.LockDifference], path: str) -> Reply:
    """Return what moved since the lock at a path was made."""
    answer = {"ok": not changes, "differences": changes}
    return Reply(answer, "\n".join(map(str, changes)) or f"{path} is up to date", not changes)


def _mod_lines(lock: pairing_lock.PairingLock) -> list[str]:
    return [f"  {m.name} {m.version}  {m.verdict} (variant {m.variant})" for m in lock.mods]


def build(result: BuildResult, again: Sequence[str], *, output: str | None) -> Reply:
    """Return the images that were built, and where ``output`` wanted them; ``again`` are the arguments that ``run`` one."""
    pushed = result.written.pushed
    answer: dict[str, Any] = {
        **_digests(result.images[0].built),
        **({"manifest": pushed} if pushed else {}),
        "lock": result.lock,
        "tag": result.tag,
        "output": output or result.output.kind,
    }
    if len(result.images) > 1:
        answer["platforms"] = {one.lock.base.platform: _digests(one.built) for one in result.images}
    words = "\n".join((result.written.message, *_image_lines(result.images)))
    runs = result.output.kind == outputs.ENGINE
    next_step = shlex.join(("vllm-mods", "run", *again)) if runs else None
    return Reply(answer, words, next_step=next_step)


def _digests(one: BuiltImage) -> dict[str, str | None]:
    return {"image": one.config_digest, "manifest": one.manifest_digest, "layer": one.diff_ids[-1]}


def _image_lines(images: Sequence[BuiltFor]) -> list[str]:
    several = len(images) > 1
    return [
        f"image  {one.built.config_digest}{f'  {one.lock.base.platform}' * several}"
        for one in images
    ]


def upgrade(result: Upgraded) -> Reply:
    """Return what became of a pairing's lock and image."""
    lock, before = result.now.lock, result.before.lock
    answer = {
        "pairing": lock.pairing,
        "changed": result.written is not None,
        "tag": result.now.tag,
        "lock": result.now.path,
        "base": lock.base.ref,
        "vllm": lock.vllm.version,
        "mods": [fields(mod, "name", "version", "verdict") for mod in lock.mods],
        "differences": result.differences,
    }
    if result.written is None:
        return Reply(answer, f"{lock.pairing} is up to date with {lock.base.ref}: nothing changed")
    lines = [
        f"{lock.pairing}: vLLM {before.vllm.version} → {lock.vllm.version}, now {result.now.tag} on {lock.base.ref}",
        *_mod_lines(lock),
        "what changed:",
        *(f"  {one}" for one in result.differences),
        result.written.message,
        *_image_lines(result.images),
        f"old image: {result.before.tag}",
    ]
    answer["image"] = result.images[0].built.config_digest
    answer["manifest"] = result.written.pushed
    return Reply(answer, "\n".join(lines))
