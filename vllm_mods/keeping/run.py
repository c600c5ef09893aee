"""Every mod of a library and every release that is new to it, each a branch. Nothing is pushed."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import ManifestError, VllmModsError
from vllm_mods.base.model import Mod
from vllm_mods.keeping import branches, keeping
from vllm_mods.keeping.branches import LibraryHome
from vllm_mods.keeping.keeping import KeptRelease, Ways
from vllm_mods.library.catalog import Library
from vllm_mods.planning import lock_entries
from vllm_mods.porting import writing
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from vllm_mods.trees.history import Upstream


class Branch(NamedTuple):
    """A mod on a release, and the branch with what that needed; ``commit`` is None where nothing was made."""

    kept: KeptRelease
    name: str
    commit: str | None


class Keeping(NamedTuple):
    """A mod to be kept up, the text for a commit, a command that checks what came out, and upstream's repository."""

    mod: str
    message: Callable[[KeptRelease], str]
    test: str | None = None
    upstream: Upstream | None = None


def run(
    library: str, wanted: Keeping, names: Sequence[str], releases: Releases
) -> Iterator[Branch]:
    """Bring a mod up to releases, the oldest first; each branch begins where the one before ends.

    A branch that is there is left alone, whoever made it. What a person has to finish holds up the
    releases of that mod after it, which are ported from what comes out.
    ``names`` are versions. Raises ``UsageError`` for a library in no repository, and whatever reading
    its mods does.
    """
    home = branches.home(library)
    head = branches.tip(home, "HEAD")
    if head is None:
        raise ManifestError(library, ("its repository has no commit yet",), hint="git commit")
    at = head
    for release in sorted(names, key=versions.sort_key):
        branch = f"{branches.PREFIX}{wanted.mod}/{release}"
        if not branches.is_name(home, branch):
            why = f"no branch can be called {branch}: give the mod another name"
            yield Branch(KeptRelease(wanted.mod, release, "stuck", left=(why,)), branch, None)
            break
        tip = branches.tip(home, f"refs/heads/{branch}")
        if tip is not None and _unfinished(home, tip, wanted.mod):
            wait = f"the port on {branch} is not finished, and the releases after it wait for that"
            yield Branch(KeptRelease(wanted.mod, release, "waits", left=(wait,)), branch, tip)
            break
        if tip is not None:
            at = tip
            yield Branch(KeptRelease(wanted.mod, release, "there"), branch, tip)
            continue
        result = _keep(home, at, release, wanted, releases)
        at = result.commit or at
        yield result._replace(name=branch)
        if result.kept.did in {"left", "stuck"}:
            break


def _unfinished(home: LibraryHome, commit: str, name: str) -> bool:
    inside = [path.split("/") for path in branches.files(home, commit)]
    return any(
        path[:2] == ["patches", name] and writing.is_unfinished(path[2])
        for path in inside
        if len(path) > 3
    )


def new_to(mod: Mod, versions_: Sequence[str], since: str | None) -> tuple[str, ...]:
    """Return the versions that are newer than ``since``, else than all that a mod's lock knows."""
    locked = lock_entries.current(mod)
    known = [version for tree in (locked.trees if locked else ()) for version in tree.vllm]
    last = since or max(known, key=versions.sort_key, default="0")
    return tuple(one for one in versions_ if versions.sort_key(one) > versions.sort_key(last))


def _keep(home: LibraryHome, at: str, release: str, wanted: Keeping, releases: Releases) -> Branch:
    name, message = wanted.mod, wanted.message
    with branches.laid_out(home, at) as folder:
        try:
            library = Library(folder)
            ways = Ways(releases, library.roots, wanted.upstream)
            kept = keeping.keep(library.load(name), releases.open(release), ways)
        except VllmModsError as error:
            return Branch(KeptRelease(name, release, "stuck", left=(error.message,)), "", None)
        if kept.did in {"fits", "stuck"}:
            return Branch(kept, "", None)
        if wanted.test is not None and kept.did != "left":
            with tempfile.TemporaryDirectory(prefix="vllm-mods-") as scratch:
                copy = shutil.copytree(folder, f"{scratch}/library")
                kept = keeping.check(wanted.test, copy, kept)
        keeping.note(folder, message(kept).splitlines()[0])
        sha = branches.commit(home, f"{branches.PREFIX}{name}/{release}", at, folder, message(kept))
        return Branch(kept, "", sha)
