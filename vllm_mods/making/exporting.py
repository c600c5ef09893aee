"""A mod as a folder that launchers run as it is: ``run.sh``, what it runs, and the mod itself in ``mod/``.

Every state of vLLM that it takes comes from the mod's lock, so the folder can be held against the mod
in it: what is taken back is what the script does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import Mod, ModPlan, Variant
from vllm_mods.formats import mod_lock
from vllm_mods.formats.mod_lock import Lock, LockedTree
from vllm_mods.library import mod_folder, packed_mod, trust
from vllm_mods.planning import known_trees, lock_entries, outside, patching
from vllm_mods.planning.part_step import Part

SCHEMA = 1
RUN = b"""\
#!/bin/sh
# Written by `vllm-mods export`. apply.py changes vLLM only if every file that the mod touches is as
# states.json knows it, by its sha256; else it changes nothing and fails.
set -eu
cd "$(dirname "$0")"
exec python3 -B ./apply.py
"""
_MOD = "mod/"


def export(
    mod: Mod, planned: Iterable[tuple[str, ModPlan]] = (), *, variant: str | None = None
) -> dict[str, bytes]:
    """Return the files of a folder that puts a mod into each vLLM of its lock, and of plans.

    A plan comes with the version of its tree; ``variant`` takes those of one variant only. Raises ``UsageError`` where no vLLM is left, and
    ``Refused`` for a plan that would not write, a change that is more than one of lines, or a mod
    that is not trusted or does not say what it changes outside of vLLM.
    """
    trust.demand([mod])
    if built := [one for each in mod.variants for one in each.binary]:
        raise Refused(
            f"{mod.name} has {built[0].path} for {built[0].platform}, and a launcher's mod does not know its platform",
            hint="vllm-mods build PAIRING, or vllm-mods apply in the container",
        )
    if mod.files:
        raise Refused(
            f"{mod.name} has {mod.files[0].path}, which only an image gets, and a launcher's mod changes Python packages",
            hint="vllm-mods build PAIRING",
        )
    locked = _extended(mod, planned)
    _check_outside(mod, locked)
    kept = {mod_folder.MANIFEST: mod.manifest, mod_folder.LOCK: mod_lock.dump(locked)}
    kept |= packed_mod.files_of(mod)
    trees = [tree for tree in locked.trees if variant in {None, tree.variant}]
    if not trees:
        raise UsageError(
            f"nothing records a vLLM that {mod.name} goes into"
            + (f" with variant `{variant}`" if variant else ""),
            hint=f"vllm-mods export {mod.name} --tree TREE, or vllm-mods matrix {mod.name} --update-lock",
        )
    files = {"run.sh": RUN, "apply.py": applier()}
    states = [_state(mod, tree, files) for tree in trees]
    raw = {"schema": SCHEMA, "mod": mod.name, "version": mod.version, "states": states}
    files["states.json"] = (json.dumps(raw, indent=1) + "\n").encode()
    return {**files, **{_MOD + name: data for name, data in kept.items()}}


def taken_back(files: Mapping[str, bytes]) -> tuple[Mod, dict[str, bytes]] | None:
    """Return the mod in an exported folder, and its files; None for any other folder.

    Raises ``Refused`` if the folder is not, to the byte, what exporting that mod gives.
    """
    if files["run.sh"] != RUN:
        return None
    inner = {name.removeprefix(_MOD): data for name, data in files.items() if name.startswith(_MOD)}
    manifest = inner.get(mod_folder.MANIFEST, b"").decode("utf-8", "replace")
    name = re.search(r'^name = "([^"]+)"', manifest, re.MULTILINE)
    mod = mod_folder.load_files(name[1] if name else "", inner)
    variants = {None, *(variant.id for variant in mod.variants)}
    if any(_same(files, mod, variant) for variant in variants):
        return mod, inner
    raise Refused(
        "this folder is one that `vllm-mods export` writes, and was changed since, or was written by "
        "another version: what its script does is not what the mod in it says",
        hint="if the mod in it is what you want, copy its mod/ to patches/NAME of a library",
    )


def applier() -> bytes:
    """Return the program that an exported mod runs."""
    return Path(__file__).with_name("applier.py").read_bytes()


def _same(files: Mapping[str, bytes], mod: Mod, variant: str | None) -> bool:
    try:
        return export(mod, variant=variant) == dict(files)
    except UsageError:
        return False


def _check_outside(mod: Mod, locked: Lock) -> None:
    paths = (file.path for tree in locked.trees for file in tree.files)
    for path in outside.of(paths, known_trees.WORKSPACE):
        if path not in mod.outside:
            raise Refused(
                f"{mod.name} changes {path}, outside of vllm/, and its mod.toml does not say so",
                hint=f'{mod.directory}/mod.toml: outside = ["{path}"]',
            )


def _extended(mod: Mod, planned: Iterable[tuple[str, ModPlan]]) -> Lock:
    """Return the mod's lock with further trees."""
    kept = lock_entries.current(mod) or lock_entries.of(mod, ())
    trees: list[LockedTree] = list(kept.trees)
    for version, one in planned:
        if one.vouched:
            continue  # it is there
        entry = lock_entries.entry(one)
        if entry is None:
            why = "".join(f"\n  {finding.message}" for finding in one.findings)
            raise Refused(
                f"{mod.name} is {one.verdict} on vLLM {version}: nothing was written{why}",
                hint=f"vllm-mods check {mod.name} --target TREE",
            )
        trees.append(entry._replace(vllm=(version,), witness=(one.witness,)))
    return lock_entries.of(mod, trees, others=kept.others, written=kept.written)


def _state(mod: Mod, tree: LockedTree, files: dict[str, bytes]) -> dict[str, Any]:
    """Say of one state of vLLM how each file gets from before to after."""
    variant = next(one for one in mod.variants if one.id == tree.variant)
    parts = patching.parts_of(mod, variant, known_trees.WORKSPACE, vouched=True)
    placed = {(one.patch, one.path) for one in tree.hunks}
    parts = tuple(
        one
        for one in parts
        if not (one.optional and one.diff and (one.source, one.path) not in placed)
    )
    found = []
    for file in tree.files:
        mine = [part for part in parts if part.path == file.path]
        found.append({**file._asdict(), **_way(mod, variant, tree, mine, files)})
    known = {name: list(getattr(tree, name)) for name in ("vllm", "beside", "witness")}
    return {**known, "files": found}


def _way(
    mod: Mod, variant: Variant, tree: LockedTree, parts: Sequence[Part], files: dict[str, bytes]
) -> dict[str, Any]:
    """Return where the whole content of a file lies in the folder, or the passes of hunks."""
    last = parts[-1] if parts else None
    if last is not None and last.whole is not None:
        return {"content": _MOD + last.source, "passes": []}
    passes = []
    for part in parts:
        file = part.diff
        if file is None or (file.old_path and file.new_path not in {None, file.old_path}):
            break
        if file.old_path is None:
            data = b"".join(file.hunks[0].new) if file.hunks else b""
            name = f"files/{sha256(data)[:16]}"
            files[name] = data
            if part is last:
                return {"content": name, "passes": []}
            break
        if file.new_path is None:
            return {"content": None, "passes": []}
        lines = {(one.patch, one.path, one.number): one.line for one in tree.hunks}
        hunks = []
        for hunk in file.hunks:
            text = b"".join(hunk.new).decode("utf-8", "surrogateescape")
            hunks.append([lines[part.source, file.path, hunk.number], len(hunk.old), text])
        passes.append(hunks)
    else:
        if parts:
            return {"content": None, "passes": passes}
    raise Refused(
        f"{mod.name}, variant `{variant.id}`, renames a file or changes one that it brings: that cannot be "
        "exported",
        hint=f"vllm-mods apply {mod.name}, when the image is made",
    )
