"""A ported variant as files of its mod: patches cut anew, a block in the manifest. Pure but for trees."""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange, Mod, ModPlan, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff, diff_writer, manifest_editor
from vllm_mods.formats.mod_lock import Lock, LockedTree
from vllm_mods.library import mod_folder, reading
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.context import first_named
from vllm_mods.planning.next_step import library_option, update_lock
from vllm_mods.trees.release import Releases


class NewVariant(NamedTuple):
    """A mod with a variant more: the files to be written, and what the target says of it."""

    mod: Mod
    files: Mapping[str, bytes]
    planned: ModPlan


def changes_of(mod: Mod, variant: Variant, tree: Tree) -> tuple[FileChange, ...]:
    """Return what a variant's patches change in the tree that they are for. Raises ``Refused``."""
    planned = planner.plan_alone(mod, tree, variant)
    if not planned.verdict.writes:
        why = "".join(f"\n  {one.message}" for one in planned.findings if one.level == "error")
        why = f"variant `{variant.id}` of {mod.name} cannot be ported from vLLM {tree.version}, because the variant does not apply there (`{planned.verdict}`){why}"
        hint = f"vllm-mods port {mod.name} --from TREE  # TREE is a vLLM that the variant was written for"
        raise Refused(why, hint=hint)
    patched = {path for patch in variant.patches for path in diff.paths_of(patch, patch.source)}
    return tuple(change for change in planned.changes if change.path in patched)


def nearest(mod: Mod, version: str | None, locked: Lock | None) -> Variant:
    """Return the variant whose range names a version, else the one that begins nearest to it."""
    named = [one for one in mod.variants if versions.in_range(version, one.vllm)]
    if named or version is None:
        return (named or list(mod.variants))[-1]
    starts: dict[str, Variant] = {}
    for variant in reversed(mod.variants):
        for known in recorded(locked, variant) or (first_named(variant),):
            starts.setdefault(known, variant)
    return starts[versions.nearest(version, starts, 1)[0]]


def states(locked: Lock | None, variant: Variant) -> list[tuple[str, LockedTree]]:
    """Return the releases on which mod.lock has seen a variant, each with what it was there."""
    trees = locked.trees if locked is not None else ()
    return [(version, one) for one in trees if one.variant == variant.id for version in one.vllm]


def recorded(locked: Lock | None, variant: Variant) -> tuple[str, ...]:
    """Return the releases on which mod.lock has seen a variant, as it is meant."""
    return tuple(version for version, tree in states(locked, variant) if tree.in_range)


def base_tree(mod: Mod, variant: Variant, version: str | None, releases: Releases) -> Tree:
    """Open the recorded base of a variant that is nearest to a version, else the release of the folder that it was made on.

    Raises ``UsageError`` where none is recorded, ``TreeError`` if it cannot be had.
    """
    locked = lock_entries.current(mod)
    written = locked.written if locked else ()
    made_on = (one.base for one in written if one.variant == variant.id)
    known = recorded(locked, variant) or tuple(filter(versions.is_final, made_on))
    if not known:
        why = "names no release for it" if locked else "is out of date, because the mod has changed"
        why = f"the release that variant `{variant.id}` of {mod.name} was written for is unknown: mod.lock {why if mod.lock else 'is missing'}"
        hint = f"vllm-mods port {mod.name} --from TREE{library_option(mod)}  # TREE is a vLLM where the variant applies; `{update_lock(mod)}` records one"
        raise UsageError(why, hint=hint)
    best = versions.nearest(version, known, 1)[0] if version is not None else known[-1]
    return releases.open(best)


def between(releases: Releases, base: Tree | None, target: Tree) -> Iterator[Tree]:
    """Yield the releases between two releases, from the base on; nothing where one is another tree."""
    ends = [tree.version for tree in (base, target) if tree and tree.spec.startswith("pypi:")]
    known = sorted((end for end in ends if end is not None), key=versions.sort_key)
    if len(known) < 2:
        return
    names = {file.version for file in releases.files() if file.yanked is None}
    inside = f">{versions.public(known[0])},<{versions.public(known[1])}"
    final = [name for name in names if versions.is_final(name) and versions.in_range(name, inside)]
    for name in sorted(final, key=versions.sort_key, reverse=known != ends):
        yield releases.open(name)


def check_base(mod: Mod, variant: Variant, changes: Iterable[FileChange], tree: Tree) -> None:
    """Raise ``Refused`` if the files of a base are not those of which mod.lock has the hashes."""
    locked = states(lock_entries.current(mod), variant)
    of_release = (state for version, state in locked if version == tree.version)
    known = [{file.path: file.before for file in state.files} for state in of_release]
    hashes = {change.path: sha256(change.before) for change in changes}
    if known and not any(hashes.items() <= state.items() for state in known):
        why = f"{tree.spec} states version {tree.version}, but mod.lock of {mod.name} has other hashes for that release: {', '.join(sorted(hashes))}; nothing was written"
        raise Refused(why, hint="--from TREE names the tree that the variant was written for")


def default_name(mod: Mod, version: str | None) -> str:
    """Return a name for the variant for a version: its first two numbers, or all of it."""
    taken = {variant.id for variant in mod.variants}
    text = version or "ported"
    short = ".".join(re.split(r"[.+]", text)[:2])
    for name in (short, text, *(f"{text}-{n}" for n in range(2, 100))):
        if name not in taken and not os.path.exists(os.path.join(mod.directory, name)):
            return name
    raise UsageError(f"{mod.name} has too many variants for {text}", hint="--as ID")


def patches(
    variant: Variant, cuts: Sequence[FileChange], name: str, context: int, homes: Mapping[str, str]
) -> dict[str, bytes]:
    """Cut patches, each with the name of the variant's patch that changes the same file of the base, a needed one if any."""
    sources = [os.path.basename(patch.source) for patch in variant.patches]
    owner: dict[str, str] = {}
    modes: dict[str, int | None] = {}
    for patch in sorted(variant.patches, key=lambda one: not one.optional):
        owner |= dict.fromkeys(diff.paths_of(patch, patch.source), os.path.basename(patch.source))
        files = diff.read(patch.data, patch.source, root=patch.root)
        modes |= {file.new_path or file.path: file.mode for file in files if file.mode is not None}
    texts: dict[str, bytes] = {}
    for cut in sorted(cuts, key=lambda cut: cut.path):
        home = homes.get(cut.path, cut.path)
        source = f"{name}/{owner.get(home, sources[0])}"
        piece = diff_writer.file_diff(*cut._replace(mode=modes.get(home)), context)
        texts[source] = texts.get(source, b"") + piece
    return {source: data for source, data in texts.items() if data}


def manifest(mod: Mod, variant: Variant, new: Mapping[str, object], comment: str) -> bytes:
    """Return the manifest with a variant more, which has all that ``variant`` has but for ``new``."""
    raw = tomllib.loads(mod.manifest.decode())
    old = next(table for table in raw["variant"] if table["id"] == variant.id)
    old.pop("root", None)  # paths in the patches are from the site root
    block = {**dict.fromkeys(new), **old, **new}
    where = os.path.join(mod.directory, mod_folder.MANIFEST)
    return manifest_editor.add_variant(mod.manifest, where, block, comment)


def load_mod(mod: Mod, files: Mapping[str, bytes], roots: Sequence[str]) -> Mod:
    """Read a mod as it would be with other files. Raises ``ManifestError`` as ``load_mod`` does."""
    kept = reading.reader(mod.directory, *roots, linked=mod_folder.data_root())

    def read(path: str) -> bytes | None:
        name = os.path.relpath(path, mod.directory)
        if name == mod_folder.LOCK:
            return None  # it is of the mod as it was
        return files[name] if name in files else kept(path)

    return mod_folder.load_mod(mod.directory, roots, read=read)
