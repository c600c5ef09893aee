"""Pairings as the recipes of launchers."""

from __future__ import annotations

from typing import NamedTuple

from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust
from vllm_mods.library.catalog import Library
from vllm_mods.recipes import writer


class ExportedRecipe(NamedTuple):
    """A recipe that renders a pairing's command, and what one should know."""

    text: str
    notes: tuple[str, ...]


def export_recipe(library: Library, name: str) -> ExportedRecipe:
    """Return a pairing as a recipe. Raises ``UsageError`` for one that there is not, ``Refused`` for one that no policy trusts."""
    pairing = library.pairing(name)
    trust.demand_pairing(library, name)
    present = [mod for mod in pairing.mods if library.has(mod)]
    served, brought = taken_over(pairing, library.select(present))
    notes = [f"{mod} {text}" for mod, text in brought]
    known = pairing.recipe.mods if pairing.recipe else {}
    notes += [
        f"a launcher runs the folder mods/{mod}, which is not written: its run.sh is "
        f"`vllm-mods apply {mod}`, or have the image built with the mods"
        for mod in dict.fromkeys((*pairing.mods, *pairing.templates))
        if mod not in known
    ]
    return ExportedRecipe(writer.write(served), tuple(notes))
