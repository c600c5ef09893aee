"""Which mods, chat templates and pairings are for a checkpoint, and which of them it cannot do without. Pure."""

import contextlib
import fnmatch
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import ManifestError, Refused, UsageError
from vllm_mods.base.model import Mod, When
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.device import Device
from vllm_mods.checkpoints.facts import ModelFacts, facts, value
from vllm_mods.checkpoints.memory import MemoryNeed, memory_need
from vllm_mods.checkpoints.model_fit import TENSORS_UNKNOWN, ModelFit, ModFit
from vllm_mods.checkpoints.sources import open_checkpoint
from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing
from vllm_mods.formats.taken_over import taken_over


class PairingFit(NamedTuple):
    """Whether a pairing serves a checkpoint: ``why`` says what is in the way, ``same`` that it names this model."""

    name: str
    ok: bool
    same: bool
    why: str


class Suggestion(NamedTuple):
    """What is for a checkpoint: ``templates`` are mods that bring one, of which one is to be taken."""

    facts: ModelFacts
    mods: tuple[ModFit, ...]
    templates: tuple[ModFit, ...]
    pairings: tuple[PairingFit, ...]


def of_mod(mod: Mod, checkpoint: Checkpoint) -> ModFit:
    """Hold a mod's ``[[when]]`` against a checkpoint."""
    reasons = [_against(when, checkpoint) for when in mod.when]
    meant = not mod.when or "" in reasons
    met = (when for when, why in zip(mod.when, reasons, strict=True) if not why)
    fails = next((when.fails for when in met if when.fails), "")
    return ModFit(mod.name, meant, bool(mod.when), "" if meant else "; or ".join(reasons), fails)


def of_model(mods: Iterable[Mod], model: str, revision: str | None) -> ModelFit:
    """Read a checkpoint, and hold the ``[[when]]`` of mods against it. Raises as ``open_checkpoint``."""
    checkpoint = open_checkpoint(model, revision)
    fits = tuple(of_mod(mod, checkpoint) for mod in mods)
    return ModelFit(checkpoint.name, checkpoint.commit, fits)


def of_pairing(
    pairing: Pairing,
    mods: Sequence[Mod],
    needed: Sequence[ModFit],
    checkpoint: Checkpoint,
    gpu: Device | None = None,
) -> PairingFit:
    """Tell whether a pairing, whose ``mods`` are read, serves a checkpoint that has ``needed``, on a GPU if one is known."""
    fits = [of_mod(mod, checkpoint) for mod in mods]
    wrong = [f"{fit.name} {fit.verb} for this model: {fit.why}" for fit in fits if not fit.meant]
    names = {mod.name for mod in mods}
    wrong += [f"it lacks {fit.name}" for fit in needed if fit.fails and fit.name not in names]
    if not any(fit.stated for fit in fits):
        wrong.append("no mod of the pairing states its models")
    with contextlib.suppress(UsageError, ManifestError):  # `lock` tells of a faulty command
        if gpu is not None and (need := of_command(pairing, mods, checkpoint)):
            wrong += filter(None, [need.shortfall(gpu)])
    name = checkpoint.name.rstrip("/").rpartition("/")[2].lower()
    same = name == pairing.model.rstrip("/").rpartition("/")[2].lower()
    return PairingFit(pairing.name, not wrong, same, "; ".join(wrong))


def of_command(
    pairing: Pairing, mods: Sequence[Mod], checkpoint: Checkpoint, arguments: Sequence[str] = ()
) -> MemoryNeed | None:
    """Return the memory that a checkpoint takes with a pairing's command and ``arguments`` behind it, None where that cannot be told."""
    argv = (*pairings.arguments(taken_over(pairing, mods).pairing), *arguments)
    return memory_need(checkpoint, argv)


def suggest(
    checkpoint: Checkpoint,
    mods: Iterable[Mod],
    of_library: Iterable[tuple[Pairing, Sequence[Mod]]],
    gpu: Device | None = None,
) -> Suggestion:
    """Hold mods and pairings, each with its own mods, against a checkpoint and a GPU; what fits best stands first."""
    meant = [(mod, fit) for mod in mods if (fit := of_mod(mod, checkpoint)).meant and fit.stated]
    templates = [fit for mod, fit in meant if any(each.templates for each in mod.variants)]
    needed = tuple(fit for _, fit in meant if fit not in templates)
    name = checkpoint.name.lower()
    held = (of_pairing(pairing, own, needed, checkpoint, gpu) for pairing, own in of_library)
    return Suggestion(
        facts=facts(checkpoint),
        mods=tuple(sorted(needed, key=lambda fit: not fit.fails)),
        # Models of one family call themselves alike in config.json: the name tells their templates apart.
        templates=tuple(sorted(templates, key=lambda fit: fit.name.partition("-")[0] not in name)),
        pairings=tuple(sorted(held, key=lambda fit: (not fit.ok, not fit.same))),
    )


def demand(mods: Sequence[Mod], checkpoint: Checkpoint, name: str, where: str) -> None:
    """Raise ``Refused`` where a pairing's mods are not for its model, which is read ``where`` that says."""
    wrong = [fit for fit in (of_mod(mod, checkpoint) for mod in mods) if not fit.meant]
    if wrong:
        lines = "".join(f"\n  {fit.name}: {fit.why}" for fit in wrong)
        may = "are possibly not" if any(TENSORS_UNKNOWN in fit.why for fit in wrong) else "are not"
        why = f"pairing {name}: its mods {may} for its model {checkpoint.name}{lines}"
        raise Refused(why, hint=f"vllm-mods suggest {shlex.quote(where)}")


def _against(when: When, checkpoint: Checkpoint) -> str:
    """Return what of a ``[[when]]`` is not so, ``""`` if all is."""
    for key, allowed in when.config:
        held = value(checkpoint.config, key)
        values = held if isinstance(held, list) else [held]
        holds = any(type(one) is type(each) and one == each for one in allowed for each in values)
        if held is None or (allowed and not holds):
            shown = f"{held!r:.80}" if held is not None else "nothing"
            meant = " or ".join(map(repr, allowed)) or "something"
            return f"config.json has {shown} for {key}, and the mod needs {meant}"
    if when.tensors and not checkpoint.tensors:
        return TENSORS_UNKNOWN
    for pattern, dtypes in when.tensors:
        match = re.compile(fnmatch.translate(pattern)).match
        tensors = checkpoint.tensors.items()
        of_dtype = (name for name, tensor in tensors if not dtypes or tensor.dtype in dtypes)
        if not any(map(match, of_dtype)):
            kind = f"{' or '.join(dtypes)} " if dtypes else ""
            return f"the model has no {kind}tensor named {pattern}"
    return ""
