"""Write recipes: YAML that launchers of recipes read, rendering the command of the pairing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vllm_mods.formats import pairing as pairings
from vllm_mods.formats.pairing import Pairing, Recipe
from vllm_mods.formats.toml_table import Scalar
from vllm_mods.recipes import yaml_source
from vllm_mods.recipes.reader import OWN, slug


def write(pairing: Pairing) -> str:
    """Write a recipe that renders the same command; ``recipe.read`` makes the same pairing of it.

    What a recipe has no key for stands under ``vllm_mods:``, which launchers skip.
    """
    recipe = pairing.recipe or Recipe("1", pairing.name, {}, {})
    page = _YamlPage()
    page.value("recipe_version", recipe.version)
    page.value("name", recipe.name)
    page.value("description", pairing.summary)
    page.value("model", pairing.model)
    if pairing.revision is not None:
        page.value("model_revision", pairing.revision)
    if pairing.topology != "any":
        page.value(f"{pairing.topology}_only", value=True)
    page.value("container", pairing.base)
    for key, value in recipe.keys.items():
        page.put(key, value)
    if own := _own(pairing, recipe):
        page.put(OWN, own)
    names = dict.fromkeys((*pairing.mods, *pairing.templates))
    for key, group in (
        ("mods", [recipe.mods.get(name, f"mods/{name}") for name in names]),
        ("defaults", _defaults(pairing, recipe.version)),
        ("env", dict(pairing.env)),
    ):
        if group:
            page.put(key, group)
    page.parts.append(("command", ["", *yaml_source.block("command", pairing.command).split("\n")]))
    return "\n".join(page.with_comments(recipe.comments)) + "\n"


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


class _YamlPage:
    """Lines with the key path that each begins with, so that comments find their place."""

    def __init__(self) -> None:
        self.parts: list[tuple[str, list[str]]] = []

    def value(self, key: str, value: object) -> None:
        self.parts.append((key, [f"{yaml_source.scalar(key)}: {yaml_source.scalar(value)}"]))

    def put(self, key: str, value: object) -> None:
        """Write a mapping or a list over several lines."""
        inside: list[tuple[str, str]]
        if isinstance(value, dict) and value:
            inside = [
                (f"{key}.{name}", f"  {yaml_source.scalar(name)}: {yaml_source.scalar(one)}")
                for name, one in value.items()
            ]
        elif isinstance(value, list) and value:
            inside = [
                (f"{key}[{i}]", f"  - {yaml_source.scalar(one)}") for i, one in enumerate(value)
            ]
        else:
            self.value(key, value)
            return
        self.parts.append((key, ["", f"{yaml_source.scalar(key)}:"]))
        self.parts += [(path, [line]) for path, line in inside]

    def with_comments(self, comments: Sequence[tuple[str, str]]) -> list[str]:
        """Return all lines, each comment before what it was before, or else at the end."""
        there = {path for path, _ in self.parts}
        placed: dict[str, list[str]] = {}
        for at, text in comments:
            place = at
            while place and place not in there:
                place = place[: max(place.rfind("."), place.rfind("["), 0)]
            placed.setdefault(place, []).append(text)
        lines: list[str] = []
        for path, part in self.parts:
            while part[0] == "":
                lines.append(part.pop(0))
            indent = part[0][: len(part[0]) - len(part[0].lstrip(" "))]
            lines += [f"{indent}{text}" for text in placed.get(path, ())]
            lines += part
        return lines + placed.get("", [])
