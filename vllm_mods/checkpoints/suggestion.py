"""What a library has for a checkpoint: mods, a chat template, pairings. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vllm_mods.base.model import Mod
from vllm_mods.checkpoints import fitting
from vllm_mods.checkpoints.checkpoint import Checkpoint
from vllm_mods.checkpoints.facts import ModelFacts, facts
from vllm_mods.checkpoints.fitting import ModFit, PairingFit
from vllm_mods.formats.pairing import Pairing


class Suggestion(NamedTuple):
    """What is for a checkpoint: ``templates`` are mods that bring one, of which one is to be taken."""

    facts: ModelFacts
    mods: tuple[ModFit, ...]
    templates: tuple[ModFit, ...]
    pairings: tuple[PairingFit, ...]


def suggest(
    one: Checkpoint, mods: Iterable[Mod], pairings: Iterable[tuple[Pairing, Sequence[Mod]]]
) -> Suggestion:
    """Hold mods and pairings, each with its own mods, against a checkpoint; what fits best stands first."""
    meant = [(mod, fit) for mod in mods if (fit := fitting.of_mod(mod, one)).meant and fit.stated]
    templates = [fit for mod, fit in meant if any(each.templates for each in mod.variants)]
    needed = tuple(fit for _, fit in meant if fit not in templates)
    held = (fitting.of_pairing(pairing, own, needed, one) for pairing, own in pairings)
    return Suggestion(
        facts=facts(one),
        mods=tuple(sorted(needed, key=lambda fit: not fit.fails)),
        # Models of one family call themselves alike in config.json: the name tells their templates apart.
        templates=tuple(
            sorted(templates, key=lambda fit: fit.name.partition("-")[0] not in one.name.lower())
        ),
        pairings=tuple(sorted(held, key=lambda fit: (not fit.ok, not fit.same))),
    )
