"""Write recipes: YAML that launchers of recipes read, rendering the command of the pairing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.formats.schema import Scalar
from vllm_mods.recipes import yaml_source
from vllm_mods.recipes.reader import OWN, slug


def write(pairing: Pairing) -> str:
    """Write a recipe that renders the same command; ``reader.read`` makes the same pairing of it.

    What a recipe has no key for stands under ``vllm_mods:``, which launchers skip.
    """
    recipe = pairing.recipe or Recipe("1", pairing.name, {}, {})
    names = dict.fromkeys((*pairing.mods, *pairing.templates))
    only = {f"{pairing.topology}_only": True} if pairing.topology != "any" else {}
    keys: dict[str, object] = {
        "recipe_version": recipe.version,
        "name": recipe.name,
        "description": pairing.summary,
        "model": pairing.model,
        "model_revision": pairing.revision,
        **only,
        "container": pairing.base,
        **recipe.keys,
        OWN: _own(pairing, recipe) or None,
        "mods": [recipe.mods.get(name, f"mods/{name}") for name in names] or None,
        "defaults": dict(_defaults(pairing, recipe.version)) or None,
        "env": dict(pairing.env) or None,
        "command": pairing.command,
    }
    return yaml_source.dump({key: value for key, value in keys.items() if value is not None})


def _own(pairing: Pairing, recipe: Recipe) -> dict[str, Any]:
    own = {
        "name": None if pairing.name == slug(recipe.name) else pairing.name,
        "vllm": pairing.vllm,
        "templates": list(pairing.templates) or None,
    }
    return {key: value for key, value in own.items() if value is not None}


def _defaults(pairing: Pairing, version: str) -> Mapping[str, Scalar]:
    """Add what launchers of version 1 would not know ``{model}`` to mean."""
    values: dict[str, Scalar] = dict(pairing.defaults)
    if version == "1":
        used = {name for _, name in pairings.placeholders(pairing.command)}
        for key, value in (("model", pairing.model), ("revision", pairing.revision)):
            if key in used and value is not None:
                values.setdefault(key, value)
    return values
