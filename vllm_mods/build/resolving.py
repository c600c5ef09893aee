"""A pairing on a base, down to hashes: its lock, and what the lock was made from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.model import Mod, ModPlan, Plan, Tree
from vllm_mods.formats import pairing, receipt
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.pairing_lock import (
    LockedBase,
    LockedChange,
    LockedMod,
    LockedTemplate,
    LockedVllm,
    LockedWheel,
    PairingLock,
)
from vllm_mods.formats.receipt import Receipt
from vllm_mods.images.model import Base
from vllm_mods.images.model import resolve as resolve_path
from vllm_mods.library import trust
from vllm_mods.planning import planner


class Resolved(NamedTuple):
    """A lock with the plan behind it; ``there`` is the receipt that the base has already."""

    lock: PairingLock
    planned: Plan
    there: Receipt | None


def resolve(
    wanted: Pairing,
    mods: Sequence[Mod],
    base: Base,
    tree: Tree,
    site_root: str,
    *,
    epoch: int,
    wheels: Callable[[Sequence[str], str], tuple[LockedWheel, ...]],
) -> Resolved:
    """Resolve a pairing, whose ``mods`` are read, on a base with its vLLM at ``site_root``.

    ``wheels`` is asked for what the mods require of Python packages, with the base's platform, if
    they do. Raises ``Refused`` unless every mod is trusted and would end up in.
    """
    trust.demand(mods)
    raw = tree.read(receipt.RECEIPT)
    there = None if raw is None else receipt.parse(raw, f"{base.reference}: {receipt.RECEIPT}")
    outside = workspace(base)
    planned = planner.plan(
        mods, tree, receipt=there, workspace=outside if outside is not None else planner.WORKSPACE
    )
    if not planned.ok:
        raise _refusal(planned, base)
    folder = outside or f"/{site_root}/{planner.WORKSPACE}"
    files = [
        file
        for one in planned.mods
        for file in (one.variant.templates if one.variant is not None else ())
    ]
    platform = _platform(base)
    requirements = [text for one in planned.mods for text in _requirements(one)]
    return Resolved(
        lock=PairingLock(
            pairing=wanted.name,
            pairing_digest=pairing.digest(wanted),
            model=wanted.model,
            revision=wanted.revision,
            base=LockedBase(
                ref=wanted.base,
                config=base.config_digest,
                diff_ids=base.diff_ids,
                platform=platform,
                manifest=base.manifest_digest,
            ),
            vllm=LockedVllm(
                version=tree.version, site_root=site_root, record=_record(base, tree, site_root)
            ),
            mods=tuple(_mod(one) for one in planned.mods),
            templates=tuple(
                LockedTemplate(path=f"{folder}/{file.file}", sha256=sha256(file.data) or "")
                for file in files
            ),
            wheels=wheels(requirements, platform) if requirements else (),
            command=pairing.serve_script(
                wanted, {file.file: f"{folder}/{file.file}" for file in files}
            ),
            epoch=epoch,
        ),
        planned=planned,
        there=there,
    )


def workspace(base: Base) -> str | None:
    """Return where ``apply`` in a container would put chat templates: ``$WORKSPACE_DIR``, if set."""
    settings = json.loads(base.config).get("config") or {}
    variables = dict(one.partition("=")[::2] for one in settings.get("Env") or ())
    named = resolve_path(base, variables.get("WORKSPACE_DIR", ""))
    return f"/{named}" if named else None


def _platform(base: Base) -> str:
    raw = json.loads(base.config)
    parts = (raw.get("os") or "linux", raw.get("architecture") or "unknown", raw.get("variant"))
    return "/".join(part for part in parts if part)


def _requirements(one: ModPlan) -> tuple[str, ...]:
    return one.variant.python if one.variant is not None and one.verdict != "upstream" else ()


def _record(base: Base, tree: Tree, site_root: str) -> str | None:
    data = base.read(f"{site_root}/vllm-{tree.version}.dist-info/RECORD")
    # A mod of an earlier build changed it: the untouched one is kept.
    original = base.read(f"{site_root}/{receipt.original(f'vllm-{tree.version}.dist-info/RECORD')}")
    return sha256(original or data)


def _mod(one: ModPlan) -> LockedMod:
    return LockedMod(
        name=one.mod.name,
        version=one.mod.version,
        digest=one.mod.digest,
        variant=one.variant.id if one.variant is not None else None,
        verdict=one.verdict.value,
        files=tuple(
            LockedChange(path=change.path, before=sha256(change.before), after=sha256(change.after))
            for change in one.changes
        ),
    )


def _refusal(planned: Plan, base: Base) -> Refused:
    lines = [f"{base.reference}: not every mod goes into vLLM {planned.version or '(no version)'}"]
    for one in planned.mods:
        if not one.verdict.ok:
            lines.append(f"  {one.mod.name} {one.mod.version}: {one.verdict.value}")
            lines += [
                f"    {finding.message}" for finding in one.findings if finding.level == "error"
            ]
    names = " ".join(one.mod.name for one in planned.mods)
    return Refused(
        "\n".join(lines), hint=f"vllm-mods check {names} --target image:{base.reference}"
    )
