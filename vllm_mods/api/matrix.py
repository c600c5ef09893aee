"""Mods on many trees: a matrix, the locks that follow from it, and the commit that changes a verdict."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from vllm_mods.api.access import Access
from vllm_mods.api.installed import status
from vllm_mods.api.libraries import check_own_mod, find_variant
from vllm_mods.applying.ground import check_mods
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.errors import UsageError, VllmModsError
from vllm_mods.base.model import Mod
from vllm_mods.formats import mod_lock
from vllm_mods.library.catalog import Library, root_of
from vllm_mods.library.writing import replace
from vllm_mods.matrices import bisect as searching, choose, locks, ranges, run
from vllm_mods.matrices.cell import Cell, CellProblem, ClientLine, MatrixResult
from vllm_mods.matrices.work import Setting, Workshop
from vllm_mods.planning import lock_entries
from vllm_mods.planning.origins import Origins
from vllm_mods.trees.other_packages import check_versions


def matrix(
    mods: Sequence[Mod],
    trees: Sequence[str] = (),
    *,
    vllm: str | None = None,
    pre: bool = False,
    jobs: int | None = 1,
    kept: bool = True,
    strict: bool = False,
    relock: bool = False,
    verify: bool = False,
    explain: bool = False,
    others: Mapping[str, str] | None = None,
    progress: run.Progress | None = None,
    access: Access | None = None,
) -> MatrixResult:
    """Plan each mod alone on each tree.

    ``mods`` are those of ``Library.mods``, ``trees`` what ``open_tree`` takes. Without trees, the releases that ``vllm`` (a PEP 440
    specifier) names, or else every one that a mod's ranges name and the newest three beyond;
    pre-releases with ``pre``. ``kept`` says whether answers of earlier runs may be used and are kept;
    ``strict`` plans without ``mod.lock`` and compares the locks, ``relock`` plans without them to make new ones. ``verify`` downloads each
    release whole first, and compares its hash; ``explain`` has the hunks of each cell in the result. ``others`` are versions of other packages,
    by name, to be read beside releases, wheels and sdists; without it, those that a release took.
    ``progress`` is called with how many of how many cells are done. More than one of ``jobs`` (None: one per
    processor) starts processes, and then a script has to stand behind ``if __name__ == "__main__"``.

    Returns a ``MatrixResult``: ``ok``, and its ``cells`` tree by tree. A tree that cannot be read is a cell
    ``unreadable``. Raises ``UsageError`` for a named tree that is none, a range that no release is in or
    that is given beside trees, a package that no mod changes and a bad patch.

    >>> grid = vm.matrix(vm.Library("library").mods("fast", "stale"), ["site-packages"])
    >>> [(cell.mod, cell.version, cell.verdict.value) for cell in grid.cells]
    [('fast', '0.19.1', 'applies'), ('stale', '0.19.1', 'conflict')]
    """
    access = access or Access()
    mods = tuple(mods)
    check_mods(mods)
    # what an old lock says must not lean on itself
    unlocked = relock or strict
    setting = Setting(
        tuple(lock_entries.without_trees(mod) for mod in mods) if unlocked else mods,
        cache_folder(os.environ),
        offline=access.offline,
        store=kept,
        strict=strict,
        show=explain,
        commits=access.commits,
        others=check_versions(others or {}, mods),
        named=frozenset(trees),
    )
    if trees and (vllm is not None or pre):
        why = "--tree cannot be used with --vllm or --pre"
        raise UsageError(why, hint="leave one out; --tree pypi:VERSION names a release")
    workshop = Workshop(setting, note=access.note)
    specs = tuple(dict.fromkeys(trees)) or choose.choose_releases(
        mods, workshop.releases.files(), vllm, pre=pre
    )
    _verify(specs if verify else (), access)
    cells = run.compute(workshop, specs, jobs or len(os.sched_getaffinity(0)), progress)
    problems: list[CellProblem] = []
    for hold in (ranges.range_problems, *((locks.against_committed,) if strict else ())):
        for mod in mods:
            problems += hold(mod, [cell for cell in cells if cell.mod == mod.name])
    clients = tuple(_client_lines(mods)) if explain else ()
    workshop.store.sweep()
    for spec in filter(os.path.isdir, {*trees}):
        with suppress(VllmModsError):  # the cells tell of it
            new = tuple(one.note for one in status(spec).plugins)
            cells = tuple(c._replace(findings=c.findings + new * (c.tree == spec)) for c in cells)
    return MatrixResult(cells, tuple(problems), mods, strict, clients)


def _client_lines(mods: Iterable[Mod]) -> Iterator[ClientLine]:
    from vllm_mods.templates import client_table  # noqa: PLC0415  (for a page alone)
    from vllm_mods.templates.source import open_template  # noqa: PLC0415

    for mod in mods:
        places = {(one.name, one.root) for variant in mod.variants for one in variant.templates}
        for name, root in sorted(places):
            library = Library(root)
            if name in library.template_names():
                lines = client_table.notes(library, open_template(library, name), None)
                yield from (ClientLine(mod.name, line) for line in lines)


def _verify(specs: Iterable[str], access: Access, *, unstated: bool = False) -> None:
    """Have the wheels of some releases as a whole, one after the other, each once. Raises ``TreeError``.

    With ``unstated``, one of which the index states no hash is passed over with a note.
    """
    for spec in specs:
        kind, _, name = spec.partition(":")
        if kind == "pypi":
            access.releases.verify(name, unstated=unstated)


def choose_mods(library: Library, names: Sequence[str], pairing: str | None) -> tuple[Mod, ...]:
    """Read a pairing's mods and the named ones, or without either all of the caller's libraries, else the bundled ones.

    Raises ``UsageError`` where all would be two of one name: a tree holds one of them.
    """
    if pairing is not None:
        return library.select((*library.mods_of(library.pairing(pairing)), *names))
    own = library.own_names()
    if not (names or own) and library.roots[1:]:
        why = f"the libraries that were named have no mods: {', '.join(library.roots[1:])}"
        raise UsageError(why, hint="vllm-mods list  # then name one of these")
    return library.select(names or own or library.names())


def choose_own_mods(
    library: Library, mods: Sequence[Mod], named: Sequence[str], note: Callable[[str], None]
) -> tuple[Mod, ...]:
    """Return the mods whose lock may be written. Raises ``UsageError`` for a ``named`` one that may not."""
    mine = tuple(mod for mod in mods if library.is_writable(mod.directory))
    for mod in mods:
        if mod not in mine:
            if mod.name in named or not mine:
                check_own_mod(library, mod)
            note(f"{mod.name} is bundled with vllm-mods: its mod.lock is not changed")
    return mine


def write_locks(
    mods: Sequence[Mod], cells: Sequence[Cell], access: Access
) -> tuple[tuple[Mod, locks.Updated], ...]:
    """Write into each ``mod.lock`` what a matrix (of ``relock``) found; what it says of other releases stays.

    A release that is new to a lock is downloaded whole first, and held to the hash that the index states.
    Raises ``UsageError`` where a tree could not be read, and nothing is written then.
    """
    _verify(locks.news(mods, cells), access, unstated=True)
    names = {mod.name for mod in mods}
    unread = [cell.tree for cell in cells if cell.mod in names and not cell.readable]
    if unread:
        why = f"no mod.lock was written: {unread[0]} could not be read"
        raise UsageError(why, hint="run the command again when every release can be read")
    origins = Origins(access.releases)
    updates = tuple((mod, locks.update(mod, cells, origins.places(mod))) for mod in mods)
    for root in dict.fromkeys(map(root_of, mods)):
        here = [(mod.name, updated.lock) for mod, updated in updates if root_of(mod) == root]
        replace(root, {f"patches/{name}/mod.lock": mod_lock.dump(lock) for name, lock in here})
    return updates


def bisect(
    library: Library, mod: str, good: str, bad: str, *, repo: str, variant: str | None = None
) -> searching.BisectOutcome:
    """Find the commit of a clone of vLLM's repository at which a mod's verdict changes.

    ``mod`` is the name of one of the ``library``; ``good`` is the older revision of the clone's
    folder ``repo``, ``bad`` the newer one; commits along first parents are searched, and nothing is checked
    out. ``variant`` asks for that variant of the mod alone.

    Returns a ``BisectOutcome``: ``ok`` if the verdict changes between them, and the neighbours ``before``
    and ``after`` the change. Raises ``UsageError`` for ends between which there is nothing, ``TreeError``
    for a tree that cannot be read.

    >>> vm.bisect(vm.Library("library"), "fast", "v1", "v2", repo="site-packages")
    Traceback (most recent call last):
    ...
    vllm_mods.base.errors.UsageError: ...
    """
    mods = library.select((mod,))
    if variant is not None:
        alone = lock_entries.with_variants(mods[-1], (find_variant(mods[-1], variant),))
        mods = (*mods[:-1], alone)
    from vllm_mods.trees.git import Repository  # noqa: PLC0415  (raises where there is no git)

    return searching.over_commits(mods, Repository(repo), good, bad)
