"""A launcher's mod as one mod over releases: read where that tells what it does, else run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from vllm_mods.base.model import Tree
from vllm_mods.making import from_script, over_releases, reading, recording
from vllm_mods.making.compose import Wanted
from vllm_mods.making.effects import Edit
from vllm_mods.making.fetching import Fetcher
from vllm_mods.making.folder import SCRIPT, LauncherFolder
from vllm_mods.making.over_releases import MadeOver, Release, ScriptEffect
from vllm_mods.making.recording import Limits
from vllm_mods.scripts.statements import BashError


class FolderMade(NamedTuple):
    """A mod over releases; ``handed`` says why the script was run, None where it was read alone."""

    over: MadeOver
    handed: str | None


def make(
    source: LauncherFolder,
    wanted: Wanted,
    releases: Sequence[Release],
    limits: Limits,
    tell: Callable[[str], None],
    *,
    fetcher: Fetcher | None = None,
) -> FolderMade:
    """Make a mod of a folder over releases, oldest first; ``fetcher`` takes what runs ask for. Raises ``Refused`` where it is none anywhere."""
    handed: list[str] = []

    def read(tree: Tree) -> ScriptEffect | None:
        try:
            effects = reading.read(source.name, source.files, tree, limits.fetched)
        except BashError as error:
            handed.append(f"{SCRIPT}:{error.line}: {error.why}")
            return None
        understood = from_script.understand(effects, tree)
        if understood.left:
            first = understood.left[0]
            why = first.what if isinstance(first, Edit) else first.why
            handed.append(f"{first.place}: `{first.text}`: {why}")
            return None
        return from_script.effect(understood, wanted.name, tree)

    def run(tree: Tree) -> ScriptEffect:
        done = recording.fed(source.name, source.files, tree, limits, fetcher)
        return ScriptEffect(
            changes=done.changes,
            required=done.changes,
            templates=done.templates,
            python=done.python,
            told=done.lost,
            paths=done.paths,
            everywhere=done.everywhere,
            fetched=() if fetcher is None else fetcher.files(),
        )

    over = over_releases.make(wanted, releases, read, run, tell)
    return FolderMade(over, handed[0] if handed else None)
