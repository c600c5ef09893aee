"""Mods as folders that launchers run, and pairings as their recipes."""

import os
import shlex

from vllm_mods.formats.taken_over import taken_over
from vllm_mods.library import trust, writing
from vllm_mods.library.catalog import Library
from vllm_mods.making import folder
from vllm_mods.recipes import recipe_yaml


def export_mod(library: Library, name: str, output: str) -> tuple[list[str], list[str]]:
    """Write a mod to a new folder ``output`` that launchers run as it is, with those that it requires.

    Returns the names of the files in it, and what one should know. Raises ``UsageError`` for a mod that there is not, ``Refused`` for one that no policy trusts.
    """
    mods = library.select([name])
    files = folder.export(mods)
    writing.folder(output, files)
    os.chmod(os.path.join(output, "run.sh"), 0o755)  # noqa: S103  (it is run)
    notes = []
    for mod in mods:  # what a script of a mod sets ends with it: a recipe has to say it
        needs = [f"{mod.name} needs {key}={shlex.quote(value)}" for key, value in mod.env]
        notes += [f"{need}: add it to `env` in the recipe" for need in needs]
        if mod.serve_args:
            words = shlex.join(mod.serve_args)
            notes.append(f"{mod.name} needs {words}: add it to the recipe's command")
    return sorted(files), notes


def export_recipe(library: Library, name: str) -> tuple[str, list[str]]:
    """Return a pairing as a recipe that renders its command, and what one should know.

    Raises ``UsageError`` for one that there is not, ``Refused`` for one that no policy trusts.
    """
    pairing = library.pairing(name)
    trust.demand_pairing(library, name)
    present = [mod for mod in pairing.mods if library.has(mod)]
    served, brought = taken_over(pairing, library.select(present))
    notes = [f"{mod} {text}" for mod, text in brought]
    known = pairing.recipe.mods if pairing.recipe else {}
    notes += [
        f"the recipe names the folder mods/{mod}: write that folder with `vllm-mods export {mod} --output mods/{mod}`, or build the mods into the image"
        for mod in dict.fromkeys((*pairing.mods, *pairing.templates))
        if mod not in known
    ]
    return recipe_yaml.write(served), notes
