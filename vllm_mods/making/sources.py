"""A tree's source as files for a sandbox, laid out as in a launcher's container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.base.tree import Tree

_COMPILED = re.compile(r".*\.(?:pyc|so(?:\.\d+)*)\Z")


class Sources(NamedTuple):
    """Files by path from the site root, and the tree that they were read from: of a release, its sdist."""

    tree: Tree
    files: dict[str, bytes]


def read(tree: Tree, also: Sequence[str]) -> Sources:
    """Read the source of vLLM and of other packages of a tree, compiled code left out.

    Raises ``UsageError`` for a tree that cannot be read whole, or has not got a package.
    """
    whole = _whole(tree)
    files: dict[str, bytes] = {}
    for package in ("vllm", *also):
        for source in (
            whole,
            tree,
        ):  # an sdist has vLLM alone, and a release the packages beside it
            paths = [path for path in source.paths(package) if not _COMPILED.match(path)]
            if paths:
                files |= {path: data for path in paths if (data := source.read(path)) is not None}
                break
        else:
            raise UsageError(f"{tree.spec} has no package {package}", hint="--also PACKAGE")
    return Sources(whole, files)


def _whole(tree: Tree) -> Tree:
    """Return a tree with all of its source here. Raises ``UsageError`` for one that is read in parts."""
    if not tree.remote:
        return tree
    if tree.releases is not None:
        return tree.releases.whole(tree.spec.removeprefix("pypi:"))
    raise UsageError(
        f"{tree.spec} is read in parts, and a command needs all of it",
        hint=f"pip download --no-deps vllm=={tree.version}, and --tree wheel:FILE",
    )
