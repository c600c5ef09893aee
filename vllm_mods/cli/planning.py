"""From what was typed to a plan: the part that ``check`` and ``apply`` share."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import click

from vllm_mods import planner, receipt
from vllm_mods.cli import options
from vllm_mods.errors import Refused, TreeError, UsageError
from vllm_mods.model import Verdict
from vllm_mods.versions import in_range

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vllm_mods.library import Library
    from vllm_mods.model import Mod, ModPlan, Plan, Tree
    from vllm_mods.pairing import Pairing
    from vllm_mods.receipt import Receipt
    from vllm_mods.trees.folder import FolderTree


@contextmanager
def refusing() -> Iterator[None]:
    """Make a refusal, with nothing changed, of a tree that cannot be read."""
    try:
        yield
    except TreeError as error:
        raise Refused(f"nothing was changed: {error.message}", hint=error.hint) from error


class Asked(NamedTuple):
    """A plan with what it started from. ``left_out`` is what --only-supported left out."""

    planned: Plan
    there: Receipt | None
    left_out: tuple[ModPlan, ...]


def open_folder(target: str, workspace: str | None) -> FolderTree:
    """Open a tree that can be written. Raises ``UsageError`` for one that cannot."""
    from vllm_mods.trees.folder import FolderTree, find_site_root  # noqa: PLC0415

    kind = target.split(":", 1)[0]
    if kind in {"pypi", "wheel", "sdist", "git", "image"} and not os.path.exists(target):
        raise UsageError(
            f"{target} can be checked but not changed: --target takes a folder here",
            hint="a folder that holds vllm/, such as site-packages",
        )
    root = find_site_root(target)
    there = receipt_of(FolderTree(root, spec=target))
    if there is not None and there.workspace is not None:
        _check_outside(there, target)
        if workspace is not None and os.path.realpath(workspace) != there.workspace:
            raise UsageError(
                f"the chat templates of this tree are in {there.workspace}, not in {workspace}",
                hint=f"--workspace {there.workspace}, or `vllm-mods revert --target {target}` first",
            )
        workspace = there.workspace
    return FolderTree(
        root, spec=target, workspace=os.path.realpath(workspace) if workspace else None
    )


def _check_outside(there: Receipt, target: str) -> None:
    """Refuse a receipt that would have files outside of the tree replaced: no mod ever did that."""
    for file in there.files:
        if file.path.startswith("/") and (file.before is not None or file.kind != receipt.FILE):
            raise Refused(
                f"the receipt of {target} says that a mod replaced {file.path}, outside of the tree, which "
                "vllm-mods does not do: it was written by somebody else; nothing was changed",
                hint=f"less {target}/{receipt.RECEIPT}  # where does this tree come from?",
            )


def receipt_of(tree: Tree) -> Receipt | None:
    """Return what a tree says was applied to it, None if it says nothing."""
    raw = None if tree.remote else tree.read(receipt.RECEIPT)
    return None if raw is None else receipt.parse(raw)


def advise(pairing: Pairing, tree: Tree) -> None:
    """Tell of a tree that is not of the version that a pairing names: the mods decide."""
    from vllm_mods.pairing import specifier  # noqa: PLC0415

    if pairing.vllm is not None and not in_range(tree.version, specifier(pairing.vllm)):
        options.note(
            f"pairing {pairing.name} is for vLLM {pairing.vllm}; this tree is {tree.version or 'of unknown version'}"
        )


def ask(
    library: Library,
    names: Sequence[str],
    tree: Tree,
    *,
    workspace: str | None,
    strict_version: bool,
    only_supported: bool,
    pairing: Pairing | None = None,
) -> Asked:
    """Plan a pairing's mods and the named ones, or without either the default ones, on a tree."""
    if pairing is not None:
        chosen = (*library.mods_of(pairing), *names)
        advise(pairing, tree)
    else:
        chosen = tuple(names) or library.defaults()
    if not chosen and pairing is None:
        raise UsageError("no mod is named, and none is marked as default", hint="vllm-mods list")
    there = receipt_of(tree)

    def planned_for(mods: Sequence[Mod]) -> Plan:
        return planner.plan(
            mods,
            tree,
            receipt=there,
            workspace=os.path.realpath(workspace) if workspace else planner.WORKSPACE,
            strict_version=strict_version,
        )

    planned = planned_for(library.select(chosen))
    options.remember("plan", planned)
    left_out: tuple[ModPlan, ...] = ()
    if only_supported:
        left_out = tuple(one for one in planned.mods if one.verdict is Verdict.UNSUPPORTED)
        if left_out:
            planned = planned_for(
                [one.mod for one in planned.mods if one.verdict is not Verdict.UNSUPPORTED]
            )
    for one in left_out:
        click.echo(f"left out: {one.mod.name} is unsupported on this tree", err=True)
    return Asked(planned=planned, there=there, left_out=left_out)
