"""Every mod of a library and every release that is new to it, each a branch. Nothing is pushed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

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


class Keeping(NamedTuple):
    """A mod to be kept up, and what returns the text of a commit."""

    mod: str
    message: Callable[[KeptRelease], str]


def run(
    library: str, wanted: Keeping, names: Sequence[str], releases: Releases
) -> Iterator[KeptRelease]:
    """Bring a mod up to releases, the oldest first; each branch begins where the one before ends.

    A branch that exists is left alone, whoever made it. A port that a person has to finish holds up the
    later releases of that mod, since they are ported from its result.
    ``names`` are versions. Raises ``UsageError`` for a library in no repository, and whatever reading
    its mods does.
    """
    home = branches.home(library)
    at = branches.tip(home, "HEAD")
    if at is None:
        raise ManifestError(library, ("its repository has no commit yet",), hint="git commit")
    for release in sorted(names, key=versions.sort_key):
        kept = _keep(home, at, release, wanted, releases)
        yield kept
        if kept.did in {"left", "stuck", "waits"}:
            break
        at = kept.commit or at


def new_to(mod: Mod, versions_: Sequence[str], since: str | None) -> tuple[str, ...]:
    """Return the versions that are newer than ``since``, else than all that a mod's lock knows."""
    locked = lock_entries.current(mod)
    known = [version for tree in (locked.trees if locked else ()) for version in tree.vllm]
    last = since or max(known, key=versions.sort_key, default="0")
    return tuple(one for one in versions_ if versions.sort_key(one) > versions.sort_key(last))


def _keep(
    home: LibraryHome, at: str, release: str, wanted: Keeping, releases: Releases
) -> KeptRelease:
    """Bring a mod, as it is in the commit ``at``, up to one release, on a branch of that release's name."""
    name = f"{branches.PREFIX}{wanted.mod}/{release}"
    kept = KeptRelease(wanted.mod, release, "stuck", branch=name)
    if not branches.is_name(home, name):
        why = f"no branch can be called {name}: give the mod another name"
        return kept._replace(left=(why,))
    tip = branches.tip(home, f"refs/heads/{name}")
    if tip is not None and _unfinished(home, tip, wanted.mod):
        wait = f"the port on {name} is not finished, and the releases after it wait for that"
        return kept._replace(did="waits", left=(wait,), commit=tip)
    if tip is not None:
        return kept._replace(did="there", commit=tip)
    with branches.laid_out(home, at) as folder:
        try:
            library = Library(folder)
            ways = Ways(releases, library.roots)
            kept = keeping.keep(library.load(wanted.mod), releases.open(release), ways)
        except VllmModsError as error:
            return kept._replace(left=(error.message,))
        kept = kept._replace(branch=name)
        if kept.did in {"fits", "stuck"}:
            return kept
        return kept._replace(commit=branches.commit(home, name, at, folder, wanted.message(kept)))


def _unfinished(home: LibraryHome, commit: str, mod: str) -> bool:
    paths = (path.split("/") for path in branches.files(home, commit))
    return any(
        len(parts) > 3 and parts[:2] == ["patches", mod] and writing.is_unfinished(parts[2])
        for parts in paths
    )
