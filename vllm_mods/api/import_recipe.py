"""A launcher's recipe as a pairing."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_mods.base import limits
from vllm_mods.base.errors import UsageError
from vllm_mods.library.catalog import Library
from vllm_mods.recipes import reader
from vllm_mods.recipes.reader import ImportedRecipe


def import_recipe(
    library: Library,
    data: bytes,
    path: str,
    *,
    name: str | None = None,
    mods: Mapping[str, str] | None = None,
) -> ImportedRecipe:
    """Read a recipe, which messages call ``path``, as a pairing called ``name``.

    ``mods`` are names of the library's mods by the paths in the recipe. Raises ``UsageError`` for what is no text
    and for a mod that there is not, ``ManifestError`` for what is no recipe.
    """
    for mod in (mods or {}).values():
        if mod not in library.names():
            library.load(mod)  # says which there are
    known = library.names()
    return reader.read(recipe_text(data, path), path, known=known, name=name, mods=mods or {})


def recipe_text(data: bytes, path: str) -> str:
    """Return a recipe as text, as launchers read it. Raises ``UsageError`` for anything else."""
    if len(data) > limits.RECIPE:
        raise UsageError(
            f"{path} is no recipe: it has more than {limits.RECIPE}", hint="a recipe is YAML"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is no recipe: byte {error.start} is not UTF-8", hint="a recipe is YAML"
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
