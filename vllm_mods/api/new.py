"""A mod made of a diff, of two trees, or of what a command does to one."""

# No `from __future__ import annotations`: the hints of what is public are resolved at run time.

import os
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.api.plan import as_tree
from vllm_mods.base.errors import UsageError
from vllm_mods.base.model import FileChange, Mod, ModPlan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.library import mod_folder, writing
from vllm_mods.making import compose, from_diff, from_trees, recording
from vllm_mods.making import folder as folders
from vllm_mods.making.recording import Limits
from vllm_mods.planning import lock_entries


class NewMod(NamedTuple):
    """A ``mod`` that was made: its ``folder``, the names of its ``files`` there, and the plan of it.

    ``notes`` are what one should know, ``unknown`` what only a person can state in ``mod.toml``.
    """

    mod: Mod
    folder: str
    files: tuple[str, ...]
    planned: ModPlan
    notes: tuple[str, ...]
    unknown: tuple[str, ...]


class _Changes(NamedTuple):
    tree: Tree
    changes: Sequence[FileChange]
    notes: tuple[str, ...]
    templates: dict[str, bytes]
    python: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()


def new(
    name: str,
    library: Folder = ".",
    *,
    tree: Tree | Folder | None = None,
    diff: bytes | None = None,
    edited: Tree | Folder | None = None,
    record: Sequence[str] = (),
    in_container: bool = False,
    limits: Limits | None = None,
    summary: str | None = None,
    license: str | None = None,  # noqa: A002  (as in mod.toml)
    vllm: str | None = None,
    diff_name: str = "diff",
) -> NewMod:
    r"""Make a mod, and write it to ``patches/NAME`` of the folder ``library``.

    It is made on ``tree``, the vLLM that it is for, of one of these: ``diff``, a unified diff with paths from
    anywhere, which messages call ``diff_name``; ``edited``, the same tree with changes; or ``record``, a command
    and its arguments that is run on a copy of the tree, with a copy of the current folder and nothing else of
    this machine, within ``limits``; ``in_container`` runs it in a container of the image that the tree is in. ``summary``, ``license`` (an SPDX expression) and ``vllm`` (a range of
    versions, without it just that one) are what the mod states.

    The mod is planned on the tree, and written only if it makes these very changes and would work. Returns
    ``NewMod``. Raises ``UsageError`` for a bad call, ``DiffError`` for a diff that is none, ``Refused`` for changes
    that no mod can be made of, and where there is a mod of this name.

    >>> diff = b"--- a/vllm/limit.py\n+++ b/vllm/limit.py\n@@ -1 +1 @@\n-LIMIT = 1\n+LIMIT = 3\n"
    >>> made = vm.new("more", "library", tree="site-packages", diff=diff, license="MIT")
    >>> made.folder, made.planned.verdict.value
    ('library/patches/more', 'applies')
    """
    if tree is None or sum((diff is not None, edited is not None, bool(record))) != 1:
        raise UsageError(
            "a mod is made on a tree, of one of a diff, an edited tree and a command",
            hint="vllm-mods new --help",
        )
    opened = as_tree(tree)
    if diff is not None:
        changes, paths = from_diff.changes(diff, diff_name, opened)
        notes = tuple(f"{one.named} is {one.path}" for one in paths if one.named != one.path)
        source = _Changes(opened, changes, notes, {})
    elif edited is not None:
        difference = from_trees.difference(opened, as_tree(edited))
        notes = tuple(f"left out {path}: {why}" for path, why in difference.passed_over)
        source = _Changes(opened, difference.changes, notes, {})
    else:
        container = recording.container_of(opened) if in_container else None
        files = folders.read_working_folder(os.getcwd())
        done = recording.record(
            record, name, files, opened, limits or Limits(), container=container
        )
        source = _Changes(opened, done.changes, done.notes, done.templates, done.python, done.env)
    wanted = compose.Wanted(name, summary, license, vllm, python=source.python, env=source.env)
    composed = compose.compose(wanted, source.changes, source.templates, opened)
    written = dict(composed.files)
    if (locked := lock_entries.first(composed.mod, composed.planned, opened)) is not None:
        written[mod_folder.LOCK] = locked
    folder = writing.write_mod(os.fspath(library), name, written)
    return NewMod(
        composed.mod,
        folder,
        tuple(sorted(written)),
        composed.planned,
        source.notes,
        tuple(composed.unknown),
    )
