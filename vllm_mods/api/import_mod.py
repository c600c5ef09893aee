"""What is taken over: a mod of ours, a launcher's folder or zip, whose script is run, and its recipe as a pairing."""

import os
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access, releases_in
from vllm_mods.api.libraries import other_packages
from vllm_mods.api.new import of_effect
from vllm_mods.base import versions
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import Mod
from vllm_mods.base.tree import Tree
from vllm_mods.library import mod_folder
from vllm_mods.library.catalog import Library
from vllm_mods.making import folder, over_releases, recording
from vllm_mods.making.compose import ModEffect, NewMod, Wanted
from vllm_mods.making.fetching import Fetcher, Lacked
from vllm_mods.planning import lock_entries, planner
from vllm_mods.recipes import recipe_yaml


class ImportTerms(NamedTuple):
    """What is wanted of a mod, None for what nobody said: the keywords of ``import_mod``."""

    name: str | None = None
    tree: str | None = None
    images: Sequence[str] = ()
    summary: str | None = None
    license: str | None = None
    vllm: str | None = None
    fetch: bool = False
    others: Sequence[str] = ()
    limits: recording.Limits = recording.Limits()


def is_mod(path: str) -> bool:
    """Return True for a folder or a zip; anything else is taken for a recipe. Raises ``UsageError`` for a diff."""
    if path.endswith((".patch", ".diff")):
        why = f"{path} is a diff"
        raise UsageError(why, hint=f"vllm-mods new NAME --from-diff {path} --tree TREE")
    is_zip = path.endswith(".zip") or (os.path.isfile(path) and zipfile.is_zipfile(path))
    return os.path.isdir(path) or is_zip


def import_mod(
    path: str,
    terms: ImportTerms,
    *,
    library: str | None,
    progress: Callable[[str], None],
    access: Access,
) -> NewMod:
    """Make a mod of what a folder's script does, or take one that is a mod already.

    It is written to ``patches/NAME`` of the folder ``library``, if one is named. ``progress`` is called with
    what is being done. Raises ``UsageError`` where nothing says on which vLLM a script is to run,
    ``Refused`` for changes that no mod can be made of.
    """
    fetcher = Fetcher(access.note) if terms.fetch else None
    new_mod = _ModImport(path, terms, access, progress, fetcher).make()
    if terms.others:
        other_packages(terms.others, (new_mod.mod,))
    return new_mod if library is None else new_mod.written(library)


class _ModImport(NamedTuple):
    path: str
    terms: ImportTerms
    access: Access
    progress: Callable[[str], None]
    fetcher: Fetcher | None

    def wanted(self, name: str) -> Wanted:
        """Return what the mod is to say of itself; ``name`` is what it is called if nobody said."""
        terms = self.terms
        slug = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")
        return Wanted(terms.name or slug, terms.summary, terms.license, terms.vllm)

    def open_tree(self) -> Tree | None:
        """Open the tree or image that the mod was written for, None where none is named."""
        terms = self.terms
        if terms.tree is None and terms.others:
            raise UsageError("--with is for the vLLM of --tree only", hint="--tree pypi:VERSION")
        if len(terms.images) > 1:
            raise UsageError(f"{self.path} has no run.sh: use only one --image", hint="--image REF")
        if terms.images:
            return self.access.open(f"image:{terms.images[0]}")
        if terms.tree is None:
            return None
        return self.access.open(terms.tree, others=other_packages(terms.others))

    def make(self) -> NewMod:
        terms, source = self.terms, folder.read(self.path)
        if folder.SCRIPT not in source.files:
            mod = mod_folder.load_files(terms.name or source.name, source.files)
            return self.taken(mod, source.files)
        if (exported := folder.exported_mod(source.files)) is not None:
            return self.taken(*exported)
        if terms.tree is not None and terms.images:
            raise UsageError("--tree and --image both name the vLLM to run on", hint="omit one")
        if len(terms.images) > 1 or (tree := self.open_tree()) is None:
            wanted = self.wanted(source.name)._replace(vllm=None)
            return over_releases.make(
                wanted, self.releases(), lambda on: self.record(source, on), self.progress
            )
        return of_effect(self.wanted(source.name), self.record(source, tree), tree)

    def taken(self, mod: Mod, files: Mapping[str, bytes]) -> NewMod:
        """Take what is a mod of ours already, as it is."""
        terms = self.terms
        if terms.name not in {None, mod.name} or any((terms.summary, terms.license, terms.vllm)):
            why = f"{self.path} is already a mod of vllm-mods, so no option can change its name, summary, licence or range"
            raise UsageError(why, hint=f"vllm-mods import {self.path} --library DIR")
        if (tree := self.open_tree()) is None:
            return NewMod(mod, files)
        planned = planner.plan_alone(mod, tree)
        if not planned.verdict.ok:
            why = "".join(f"\n  {one.message}" for one in planned.findings if one.level == "error")
            why = f"{mod.name} does not apply to {tree.spec} (`{planned.verdict}`); nothing was written{why}"
            hint = f"leave out --tree to import it unchanged; then vllm-mods port {mod.name} --to {tree.spec}"
            raise Refused(why, hint=hint)
        return NewMod(mod, {**lock_entries.first(mod, [(planned, tree)]), **files}, planned)

    def record(self, source: folder.ModSource, tree: Tree) -> ModEffect:
        try:
            argv, limits = [f"./{folder.SCRIPT}"], self.terms.limits
            image = recording.container_of(tree) if self.terms.images else None
            return recording.record(
                argv, source.name, source.files, tree, limits, container=image, fetcher=self.fetcher
            )
        except Lacked as error:
            if self.fetcher is None and error.urls:
                error.hint = f"--fetch lets the script download each URL once; or {error.hint}"
            raise

    def releases(self) -> dict[str, Tree]:
        """Open the images, or the releases of a range, by version, oldest first."""
        spec, images = self.terms.vllm, self.terms.images
        if spec is not None and images:
            raise UsageError("--vllm and --image both name the releases to run on", hint="omit one")
        if images:
            opened = [self.access.open(f"image:{one}") for one in images]
            by_version = {tree.version: tree for tree in opened if tree.version}
            if len(by_version) < len(images):
                why = "two of the images have the same vLLM, or one image states no version"
                raise UsageError(why, hint="one --image for each release")
            return dict(sorted(by_version.items(), key=lambda row: versions.sort_key(row[0])))
        if spec is None:
            why = (
                f"{self.path} has a {folder.SCRIPT}, which has to run on a vLLM; no vLLM was named"
            )
            hint = "--tree pypi:VERSION, --image REF, or --vllm SPEC for a variant per release"
            raise UsageError(why, hint=hint)
        specs = releases_in(self.access, spec, plain=True)
        return {one.removeprefix("pypi:"): self.access.open(one) for one in specs}


def import_recipe(
    library: Library, data: bytes, path: str, *, name: str | None, mods: Mapping[str, str]
) -> recipe_yaml.ImportedRecipe:
    """Read a recipe, which messages call ``path``, as a pairing called ``name``.

    ``mods`` are names of the library's mods by the paths in the recipe. Raises ``UsageError`` for what is no text
    and for a mod that there is not, ``ManifestError`` for what is no recipe.
    """
    for mod in mods.values():
        library.load(mod)  # says which there are
    known = library.names()
    return recipe_yaml.read(recipe_text(data, path), path, known=known, name=name, mods=mods)


def recipe_text(data: bytes, path: str) -> str:
    """Return a recipe as text, as launchers read it. Raises ``UsageError`` for anything else."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        why = f"{path} is not a recipe: byte {error.start} is not UTF-8"
        raise UsageError(why, hint="a recipe is YAML") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")
