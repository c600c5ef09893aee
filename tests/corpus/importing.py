"""What ``import`` over the corpus's releases makes of a script, held against what it does."""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from memory_tree import MemoryTree

from corpus.releases import RELEASES
from vllm_mods.base import versions
from vllm_mods.base.errors import Refused
from vllm_mods.base.tree import Tree
from vllm_mods.making import over_releases, recording
from vllm_mods.making.compose import ModEffect, NewMod, Wanted
from vllm_mods.making.recording import Limits
from vllm_mods.planning import planner
from vllm_mods.trees.image import ImageTree

if TYPE_CHECKING:
    from collections.abc import Mapping

WORKSPACE = f"{planner.WORKSPACE}/"


Effect = dict[str, str | None]


class Found(NamedTuple):
    """``why`` it was refused; ``wrong`` names each release on which the mod does another thing.

    ``lost`` are releases on which the script works and the mod has no variant.
    """

    why: str
    wrong: tuple[str, ...]
    lost: tuple[str, ...]
    variants: int


def digest(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]


def _meant(effect: Effect | None) -> Effect:
    """Return what a script did, without the copies that it keeps."""
    return {path: data for path, data in (effect or {}).items() if not path.endswith(".bak")}


@cache
def trees() -> dict[str, Tree]:
    return {
        version: MemoryTree(dict(files), version, f"pypi:{version}", pristine=True)
        for version, files in RELEASES.items()
    }


def made_of(
    files: dict[str, str], wanted: Wanted, releases: Mapping[str, Tree] | None = None
) -> NewMod:
    """Make a mod of a script by running it, in containers where the trees are of images. Raises ``Refused``."""
    data = {path: text.encode() for path, text in files.items()}

    def run(tree: Tree) -> ModEffect:
        container = recording.container_of(tree) if isinstance(tree, ImageTree) else None
        limits = Limits(seconds=60)
        return recording.record(["./run.sh"], "mine", data, tree, limits, container=container)

    return over_releases.make(wanted, releases or trees(), run, lambda _: None)


def imported(
    files: dict[str, str],
    does: Mapping[str, Effect | None],
    releases: Mapping[str, Tree] | None = None,
) -> Found:
    try:
        made = made_of(files, Wanted("mine"), releases)
    except Refused as error:
        return Found(error.message, (), tuple(v for v, one in does.items() if one), 0)
    mod = made.mod
    wrong, lost = [], []
    for version, tree in (releases or trees()).items():
        planned = planner.plan([mod], tree).mods[0]
        meant = any(versions.in_range(version, one.vllm) for one in mod.variants)
        mine = {
            f"templates/{one.path.removeprefix(WORKSPACE)}"
            if one.path.startswith(WORKSPACE)
            else one.path: digest(one.after)
            for one in planned.changes
        }
        if not meant:
            lost += [version] if does[version] else []
        elif not planned.verdict.writes or mine != _meant(does[version]):
            wrong.append(version)
    return Found("", tuple(wrong), tuple(lost), len(mod.variants))
