"""A mod made of a diff, of two trees, or of what a command does to one."""

import os
from collections.abc import Sequence

from vllm_mods.api.access import Access, releases_in
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.making import compose, folder as folders, from_diff, recording
from vllm_mods.planning import lock_entries
from vllm_mods.trees.open import as_tree

_NEWEST = 50
"""So many releases are looked at for the one that a diff was made on: about two years of them."""


def new(
    name: str,
    library: Folder = ".",
    *,
    tree: Tree | Folder | None = None,
    diff: bytes | None = None,
    edited: Tree | Folder | None = None,
    record: Sequence[str] = (),
    in_container: bool = False,
    limits: recording.Limits | None = None,
    summary: str | None = None,
    license: str | None = None,  # noqa: A002  (as in mod.toml)
    vllm: str | None = None,
    diff_name: str = "diff",
) -> compose.NewMod:
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
        why = "a new mod needs a tree and one of these: a diff, an edited tree or a command"
        raise UsageError(why, hint=f"vllm-mods new {name} --from-diff FILE --tree auto")
    opened = as_tree(tree)
    wanted = compose.Wanted(name, summary, license, vllm)
    if diff is not None:
        effect = from_diff.changes(diff, diff_name, opened)
    elif edited is not None:
        effect = compose.difference(opened, as_tree(edited))
    else:
        container = recording.container_of(opened) if in_container else None
        files = folders.read_working_folder(os.getcwd())
        effect = recording.record(
            record, name, files, opened, limits or recording.Limits(), container=container
        )
    return of_effect(wanted, effect, opened).written(library)


def find_release(access: Access, diff: bytes, diff_name: str = "diff") -> Tree:
    """Open the newest of vLLM's releases that has what each hunk of a diff expects, at the line that it states.

    Raises ``Refused`` where none of the newest ones has, ``DiffError`` for a diff that is none.
    """
    specs = releases_in(access, ">=0", plain=True)[-_NEWEST:]
    twins: list[str] = []
    for spec in reversed(specs):
        tree = access.open(spec)
        if from_diff.is_of(diff, diff_name, tree):
            access.note(
                f"{spec} is the newest release where each hunk of {diff_name} matches at its line"
            )
            return tree
        twins += [spec] if from_diff.is_of(diff, diff_name, tree, alone=False) else []
    why = f"no release from {specs[0]} to {specs[-1]} has the text of each hunk at the stated line"
    hint = "name the vLLM that the diff was made on: --tree DIR, or --tree git:REPO@REV for a commit between releases"
    if twins:
        why = f"the diff fits several places: in {', '.join(twins)}, each hunk matches at its stated line, but also at other lines"
        hint = f"--tree {twins[0]}, if the diff was made on that release"
    raise Refused(f"{diff_name}: {why}", hint=hint)


def of_effect(wanted: compose.Wanted, effect: compose.ModEffect, tree: Tree) -> compose.NewMod:
    """Make a mod of changes to a tree, with the lock that says what it was written for."""
    composed = compose.compose(wanted, effect, tree)
    files = {**composed.files, **lock_entries.first(composed.mod, [(composed.planned, tree)])}
    unknown = tuple(compose.unknown(wanted, tree.version))
    made = compose.NewMod(composed.mod, files, composed.planned, effect.notes, unknown)
    return made._replace(failed=effect.failed)
