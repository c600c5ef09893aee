"""Write recipes: YAML that launchers of recipes read, rendering the command of the pairing. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.formats.schema import Scalar
from vllm_mods.recipes import yaml_source
from vllm_mods.recipes.reader import OWN, slug


def write(pairing: Pairing) -> str:
    """Write a recipe that renders the same command; ``recipe.read`` makes the same pairing of it.

    What a recipe has no key for stands under ``vllm_mods:``, which launchers skip.
    """
    recipe = pairing.recipe or Recipe("1", pairing.name, {}, {})
    names = dict.fromkeys((*pairing.mods, *pairing.templates))
    stated: list[tuple[str, object]] = [
        ("recipe_version", recipe.version),
        ("name", recipe.name),
        ("description", pairing.summary),
        ("model", pairing.model),
        ("model_revision", pairing.revision),
        (f"{pairing.topology}_only", True if pairing.topology != "any" else None),
        ("container", pairing.base),
        *recipe.keys.items(),
        (OWN, _own(pairing, recipe) or None),
        ("mods", [recipe.mods.get(name, f"mods/{name}") for name in names] or None),
        ("defaults", _defaults(pairing, recipe.version) or None),
        ("env", dict(pairing.env) or None),
    ]
    parts = [part for key, value in stated if value is not None for part in _parts(key, value)]
    parts.append(("command", ["", *yaml_source.block("command", pairing.command).split("\n")]))
    return "\n".join(_with_comments(parts, recipe.comments)) + "\n"


def _own(pairing: Pairing, recipe: Recipe) -> dict[str, Any]:
    own: dict[str, Any] = {}
    if pairing.name != slug(recipe.name):
        own["name"] = pairing.name
    if pairing.vllm is not None:
        own["vllm"] = pairing.vllm
    if pairing.templates:
        own["templates"] = list(pairing.templates)
    return own


def _defaults(pairing: Pairing, version: str) -> Mapping[str, Scalar]:
    """Add what launchers of version 1 would not know ``{model}`` to mean."""
    values: dict[str, Scalar] = dict(pairing.defaults)
    if version == "1":
        used = {name for _, name in pairings.placeholders(pairing.command)}
        for key, value in (("model", pairing.model), ("revision", pairing.revision)):
            if key in used and value is not None:
                values.setdefault(key, value)
    return values


def _parts(key: str, value: object) -> Iterator[tuple[str, list[str]]]:
    """Yield a key with its value as lines, each part with its key path; over several lines what has entries."""
    scalar = yaml_source.scalar
    if not isinstance(value, (dict, list)) or not value:
        yield key, [f"{scalar(key)}: {scalar(value)}"]
        return
    yield key, ["", f"{scalar(key)}:"]
    if isinstance(value, dict):
        for name, one in value.items():
            yield f"{key}.{name}", [f"  {scalar(name)}: {scalar(one)}"]
    else:
        for i, one in enumerate(value):
            yield f"{key}[{i}]", [f"  - {scalar(one)}"]


def _with_comments(
    parts: Sequence[tuple[str, list[str]]], comments: Sequence[tuple[str, str]]
) -> list[str]:
    """Return all lines, each comment before what it was before, or else at the end."""
    there = {path for path, _ in parts}
    placed: dict[str, list[str]] = {}
    for at, text in comments:
        place = at
        while place and place not in there:
            place = place[: max(place.rfind("."), place.rfind("["), 0)]
        placed.setdefault(place, []).append(text)
    lines: list[str] = []
    for path, part in parts:
        while part[0] == "":
            lines.append(part.pop(0))
        indent = part[0][: len(part[0]) - len(part[0].lstrip(" "))]
        lines += [f"{indent}{text}" for text in placed.get(path, ())]
        lines += part
    return lines + placed.get("", [])
