"""A pairing on a base, down to hashes: its lock, and what the lock was made from."""

import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.applying import advice
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import ManifestError, Refused
from vllm_mods.base.model import Mod, ModPlan, Plan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats import container, pairing, pairing_lock, receipt
from vllm_mods.formats.taken_over import taken_over
from vllm_mods.images import names
from vllm_mods.images.model import Base, children, environment, resolve as resolve_path, settings
from vllm_mods.images.oci import platform_of
from vllm_mods.library import packed_mod, trust
from vllm_mods.planning import planner
from vllm_mods.trees.image import ImageTree
from vllm_mods.trees.receipt_tree import receipt_of


class Resolved(NamedTuple):
    """A lock with the plan behind it; ``applied`` is the receipt that the base has already.

    What the image holds is not in the lock yet.
    """

    lock: pairing_lock.PairingLock
    planned: Plan
    applied: receipt.Receipt | None
    served: container.Served


def resolve(
    wanted: pairing.Pairing,
    mods: Sequence[Mod],
    tree: ImageTree,
    *,
    epoch: int,
    locked: pairing_lock.PairingLock | None = None,
) -> Resolved:
    """Resolve a pairing, whose ``mods`` are read, on the vLLM in a base.

    Of a lock, ``locked``, the wheels of what the mods require of Python packages, the manifests of mods, who made
    it and the format of its layer are taken from there. Raises ``Refused`` unless every mod is trusted and would
    end up in, ``ManifestError`` for a pairing that no image may be made of.
    """
    if locked is not None:
        was = {one.name: one for one in locked.mods}
        mods = tuple(_as_locked(mod, was.get(mod.name)) for mod in mods)
    trust.demand(mods)
    if problems := container.problems(wanted):
        raise ManifestError(f"pairing {wanted.name}", problems)
    base, site_root = tree.base, tree.site_root
    applied = receipt_of(tree)
    outside = workspace(base)
    planned = planner.plan(mods, tree, receipt=applied, workspace=outside or planner.WORKSPACE)
    if not planned.ok:
        raise _refusal(planned, base)
    folder = outside or f"/{site_root}/{planner.WORKSPACE}"
    variants = [one.variant for one in planned.mods if one.variant is not None]
    files = [file for variant in variants for file in variant.templates]
    placed = [(f"{folder}/{file.file}", sha256(file.data) or "") for file in files]
    templates = planned.template_paths(folder)
    served = taken_over(wanted, mods).pairing
    ref, platform = _base_name(base, wanted.base), platform_of(base.config)
    going_in = [one.variant for one in planned.mods if one.verdict is not Verdict.UPSTREAM]
    requirements = [text for variant in going_in if variant is not None for text in variant.python]
    needed: tuple[pairing_lock.LockedWheel, ...] = ()
    if requirements and locked is not None:
        needed = locked.wheels
    elif requirements:
        from vllm_mods.building import wheels  # noqa: PLC0415  (a tenth of a build; few mods need one)

        folders = [posixpath.basename(entry.path) for entry in children(base, site_root)]
        needed = wheels.resolve(requirements, wheels.target(site_root, platform, folders))
    return Resolved(
        lock=pairing_lock.PairingLock(
            pairing=wanted.name,
            pairing_digest=pairing.digest(wanted),
            model=wanted.model,
            revision=wanted.revision,
            base=pairing_lock.LockedBase(ref, base.config_digest, base.diff_ids, platform),
            vllm=pairing_lock.LockedVllm(tree.version, site_root, _record(tree, applied)),
            mods=tuple(_mod(one) for one in planned.mods),
            templates=tuple(pairing_lock.LockedTemplate(*one) for one in placed),
            wheels=needed,
            command=pairing.serve_script(served, templates),
            epoch=epoch,
            tool=receipt.TOOL if locked is None else locked.tool,
            image=pairing_lock.LockedImage({}, ()),  # until the layer is drafted
        ),
        planned=planned,
        applied=applied,
        served=container.served(served, templates),
    )


def _base_name(base: Base, otherwise: str) -> str:
    """Return the name of a base without the place that it was read from; ``otherwise`` for a folder, which has none."""
    if base.where == "oci-layout":
        return otherwise
    return names.plain(base.reference).removeprefix("docker.io/").removeprefix("library/")


def _as_locked(mod: Mod, was: pairing_lock.LockedMod | None) -> Mod:
    """Return a mod with the manifest of a lock, if nothing but the manifest has changed since.

    The manifest lies in the image: a word that was changed in it later must not make another image.
    """
    if was is None or was.version != mod.version or was.digest == mod.digest:
        return mod
    text = was.manifest.encode("utf-8", "surrogateescape")
    try:
        packed = packed_mod.pack(mod._replace(manifest=text, lock=None))
        restored = packed_mod.unpack(packed, mod.name, mod.name)
    except (ManifestError, Refused):
        return mod  # it names other files: the lock says what moved
    same = restored.digest == was.digest
    return restored._replace(directory=mod.directory, lock=mod.lock) if same else mod


def workspace(base: Base) -> str | None:
    """Return where ``apply`` in a container would put chat templates: ``$WORKSPACE_DIR``, if set."""
    named = resolve_path(base, environment(settings(base)).get("WORKSPACE_DIR", ""))
    return f"/{named}" if named else None


def _record(tree: Tree, applied: receipt.Receipt | None) -> str | None:
    path = f"vllm-{tree.version}.dist-info/RECORD"
    # A mod of an earlier build may have changed it: the untouched one is meant.
    known = applied.file(path) if applied is not None else None
    return sha256((known and receipt.untouched(known, tree.read)) or tree.read(path))


def _mod(planned: ModPlan) -> pairing_lock.LockedMod:
    return pairing_lock.LockedMod(
        name=planned.mod.name,
        version=planned.mod.version,
        digest=planned.mod.digest,
        variant=planned.variant.id if planned.variant is not None else None,
        verdict=planned.verdict.value,
        manifest=planned.mod.manifest.decode("utf-8", "surrogateescape"),
        files=receipt.hashes(planned.changes),
    )


def _refusal(planned: Plan, base: Base) -> Refused:
    head = f"{base.reference}: not every mod applies to vLLM {planned.version or '(no version)'}"
    every = " ".join(one.mod.name for one in planned.mods)
    hint = f"vllm-mods check {every} --target image:{base.reference}"
    return Refused("\n".join((head, *advice.reasons(planned))), hint=hint, plan=planned)
