"""What one worker does: open a tree, and answer for some mods on it.

A worker may be this process or one beside it: tasks, settings and outcomes are plain data.
"""

import gc
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property
from typing import NamedTuple, TypeVar

from vllm_mods.base import versions
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import Refused, TreeError, Unreachable, UsageError, VllmModsError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan, Verdict
from vllm_mods.base.tree import Tree, TreeView
from vllm_mods.fit.world import SummaryCache as FitCache
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.matrices.cell import Cell
from vllm_mods.matrices.explain import explain
from vllm_mods.matrices.store import AnswerStore, key_of
from vllm_mods.placing import scopes
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.context import ask_for_packages
from vllm_mods.planning.origins import Origins
from vllm_mods.trees.index import release_file
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.other_packages import changed_distributions
from vllm_mods.trees.receipt_tree import receipt_of
from vllm_mods.trees.release import Releases

_Given = TypeVar("_Given")


class Setting(NamedTuple):
    """What all tasks of a run share.

    ``store`` says whether kept answers may be used and are kept, ``strict`` whether a second reader has
    to find the same scopes in every file that a mod changes, ``show`` whether answers have hunks to be shown. ``commits``
    is where builds are found by the commits that their versions name, ``others`` are versions of distributions to be read
    beside vLLM, ``named`` trees that the user typed: one that is none at all is a wrong call.
    """

    mods: tuple[Mod, ...]
    cache_dir: str
    offline: bool = False
    store: bool = True
    strict: bool = False
    show: bool = False
    commits: str | None = None
    others: Mapping[str, str] = {}
    named: frozenset[str] = frozenset()


class Task(NamedTuple):
    """Mods to answer for on one tree, ``again`` after a worker died with it."""

    spec: str
    mods: tuple[str, ...]
    again: bool = False


class NotedTree(TreeView):
    """A tree over an opened one that is asked for a plan, and notes what the answer says of it and whether all could be read.

    ``packages`` are the other distributions that were asked for and are there, with their versions. ``failure`` is
    the first error of the tree: what was planned after one is good for nothing else.
    """

    identity: str | None

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree)
        self.root = tree.root
        self.identity = tree.identity
        self.packages: dict[str, str] = {}
        self.failure: TreeError | None = None

    def _noted(self, ask: Callable[[], _Given]) -> _Given:
        try:
            return ask()
        except TreeError as error:
            self.failure = self.failure or error
            raise

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file."""
        return self._noted(lambda: self.below.read(path))

    def paths(self, under: str = "vllm") -> Iterable[str]:
        """Return the paths below a folder."""
        return self._noted(lambda: tuple(self.below.paths(under)))

    def load(self, paths: Collection[str]) -> None:
        """Have the files here."""
        self._noted(lambda: self.below.load(paths))

    def folders(self) -> Collection[str]:
        """Return the folders in the site root that the tree knows."""
        return self._noted(self.below.folders)

    def package(self, name: str) -> str | None:
        """Return the version of another distribution, and note it."""
        version = self._noted(lambda: self.below.package(name))
        if version:
            self.packages[name] = version
        return version

    @property
    def platform(self) -> str | None:
        """What the tree is built for."""
        return self._noted(lambda: self.below.platform)

    def is_released(self, path: str, data: bytes) -> bool | None:
        """Ask whether these bytes were shipped."""
        return self._noted(lambda: self.below.is_released(path, data))


class Workshop:
    """All that one process needs for any number of tasks."""

    def __init__(self, setting: Setting, *, note: Callable[[str], None] | None = None) -> None:
        self.setting = setting
        self.store = AnswerStore(Cache(setting.cache_dir) if setting.store else None)
        self._mods = {mod.name: mod for mod in setting.mods}
        self._key = cache(self._key_of)
        self._fit = FitCache()
        self._note = note

    def close(self) -> None:
        """Remove the folders that the fit made."""
        self._fit.laid_out.close()

    def known(self, spec: str) -> Iterator[Cell]:
        """Yield the answers that are kept, without opening a release."""
        kind, _, name = spec.partition(":")
        # no other kind of tree has one unopened
        identity = self.releases.identity(name) if kind == "pypi" else None
        for mod in self._mods:
            kept = self.store.known(self._key(mod, show=self.setting.show), identity)
            if kept is not None:
                yield kept._replace(tree=spec)

    def run(self, task: Task) -> tuple[Cell, ...]:
        """Answer a task. A tree that cannot be read is an answer too.

        Raises ``UsageError`` for a bad mod, and for a named tree that is none.
        """
        try:
            with self.open(task.spec) as tree:
                cells = (
                    self._recall_or_ask(mod, tree, show=self.setting.show)[0] for mod in task.mods
                )
                return tuple(cell._replace(tree=task.spec) for cell in cells)
        except VllmModsError as error:
            is_named = task.spec in self.setting.named or not isinstance(error, UsageError)
            if is_named and not isinstance(error, TreeError):
                # not every exception survives pickling
                raise UsageError(error.message, hint=error.hint) from error
            return self.unread(task, _words(error), computed=not isinstance(error, Unreachable))
        finally:
            gc.collect(0)  # of what is older nothing large is in a cycle

    def unread(self, task: Task, message: str, *, computed: bool) -> tuple[Cell, ...]:
        """Return the answers of a tree that could not be read, or that nobody could look at."""
        blank = (blank_cell(self._mods[name], task.spec, None) for name in task.mods)
        return tuple(failed(cell, message, computed=computed) for cell in blank)

    @cached_property
    def releases(self) -> Releases:
        """The releases of the package index, with one pool of connections."""
        of = self.setting
        return Releases(
            offline=of.offline, cache_dir=of.cache_dir, note=self._note, commits=of.commits
        )

    @cached_property
    def origins(self) -> Origins:
        """The releases that variants were written for."""
        return Origins(self.releases)

    def open(self, spec: str) -> Tree:
        """Open a tree. Raises ``TreeError`` or ``UsageError``."""
        of = self.setting
        if spec.startswith("pypi:"):
            return self.releases.open(spec.removeprefix("pypi:"), named=of.others)
        return open_tree(
            spec, offline=of.offline, cache_dir=of.cache_dir, note=self._note, others=of.others
        )

    def _recall_or_ask(self, name: str, tree: Tree, *, show: bool) -> tuple[Cell, bool]:
        """Return an answer, and whether it is kept: what rests on something that could not be read is not."""
        key = self._key(name, show=show)
        kept = self.store.known(key, tree.identity)
        if kept is not None:
            return kept, True
        cell, final = (self._show if show else self._plan)(name, tree.apart())
        if final:
            self.store.remember(key, cell, tree)
        return cell, final

    def _show(self, name: str, tree: Tree) -> tuple[Cell, bool]:
        cell, final = self._recall_or_ask(name, tree, show=False)
        ask_for_packages(self._needed(name), tree)
        try:
            return cell._replace(hunks=tuple(explain(self._mods[name], cell, tree))), final
        except TreeError:
            return cell, False  # it says what cannot be read

    def _plan(self, name: str, tree: Tree) -> tuple[Cell, bool]:
        noted = NotedTree(tree)
        mods = self._needed(name)
        cell = blank = blank_cell(self._mods[name], tree.spec, tree.version)
        try:
            applied = None if tree.pristine else receipt_of(noted)
            whole = planner.plan(mods, noted, receipt=applied, cache=self._fit, origin=self.origins)
            planned = next(one for one in whole.mods if one.mod.name == name)
            cell = filled(blank, second_reading(planned) if self.setting.strict else planned)
        except (TreeError, Refused) as error:  # the receipt may be damaged
            cell = failed(blank, _words(error), computed=not isinstance(error, Unreachable))
        cell = cell._replace(packages=tuple(sorted(noted.packages.items())))
        if isinstance(noted.failure, Unreachable):
            return failed(blank, _words(noted.failure), computed=False), False
        return cell, cell.readable and noted.failure is None and not self.origins.missed

    def _needed(self, name: str) -> tuple[Mod, ...]:
        """Return a mod behind those that it requires."""
        mod = self._mods[name]
        behind = (one for required in mod.requires for one in self._needed(required))
        return tuple(dict.fromkeys((*behind, mod)))

    def _key_of(self, name: str, *, show: bool) -> str:
        mods = self._needed(name)
        key = f"{key_of(mods)} {name}" + " strict" * self.setting.strict + " shown" * show
        others = self.setting.others
        asked = changed_distributions(mods) if others else ()
        key += "".join(f" {n}=={v}" for n, v in sorted(others.items()) if n in asked)
        for package in sorted({one.package for mod in mods for one in mod.variants if one.package}):
            with suppress(TreeError):
                files = self.releases.of(package).files()
                # without those that were taken back a release took others
                yanked = (one.filename for one in files if one.yanked is not None)
                key += "".join(f" without {file}" for file in yanked)
        return key


def second_reading(planned: ModPlan) -> ModPlan:
    """Return a plan as it is, or unreadable where LibCST finds other scopes in a file of it than ``ast``."""
    differ = "two Python parsers find different classes and functions in the file that"
    findings = [
        Finding(FindingCode.SCOPES_DIFFER, f"{change.path}: {differ} {what}", path=change.path)
        for change in planned.changes
        if change.path.endswith((".py", ".pyi"))
        for data, what in ((change.before, "the tree has"), (change.after, "the mod produces"))
        if data is not None
        and _places(scopes.read_scopes, data) != _places(scopes.read_strictly, data)
    ]
    if not findings:
        return planned
    return planned._replace(
        verdict=Verdict.UNREADABLE, findings=(*findings, *planned.findings), changes=(), hunks=()
    )


def _places(read: Callable[[bytes], scopes.Scopes], data: bytes) -> list[tuple[object, ...]] | None:
    """Return kind, name and lines of every class and function; None for what the reader cannot read."""
    try:
        return [one[:5] for one in read(data).definitions]
    except UnparsableError:
        return None


def is_meant(mod: Mod, version: str | None) -> bool:
    """Tell whether the mod promises this version, or without a promise the range of one of its variants names it."""
    return bool(versions.in_range(version, mod.vllm)) if mod.vllm else is_named(mod, version)


def is_named(mod: Mod, version: str | None) -> bool:
    """Tell whether the range of one of the mod's variants names this version."""
    return any(versions.in_range(version, variant.vllm) for variant in mod.variants)


def named_version(spec: str) -> str:
    """Return the version that the name of a release or of its file has in it, else ``unknown``."""
    kind, _, name = spec.partition(":")
    if kind not in {"pypi", "wheel", "sdist"}:
        return "unknown"
    file = release_file(os.path.basename(name), "")
    return file.version if file is not None else (name if kind == "pypi" else "unknown")


def blank_cell(mod: Mod, spec: str, version: str | None) -> Cell:
    """Return the cell of a mod and a tree of which nothing else is known; ``version`` is what the tree says."""
    label = version or named_version(spec)
    # If the tree is unreadable and its version unknown, keep the cell: reporting too much is safer.
    meant = is_meant(mod, label) or (version is None and label == "unknown")
    verdict = Verdict.UNREADABLE
    return Cell(mod.name, mod.version, label, spec, None, verdict, in_range=False, meant=meant)


def filled(blank: Cell, planned: ModPlan) -> Cell:
    """Return a cell with what a plan says, without the bytes."""
    return blank._replace(
        verdict=planned.verdict,
        variant=planned.variant.id if planned.variant is not None else None,
        in_range=planned.in_range,
        findings=planned.findings,
        offsets=tuple(hunk.offset for hunk in planned.hunks if hunk.offset),
        locked=lock_entries.entry(planned),
        witness=planned.witness,
        left_out=tuple(one.patch for one in planned.optional if not one.verdict.ok),
    )


def failed(blank: Cell, message: str, *, computed: bool) -> Cell:
    """Return a cell that says why nothing is known."""
    code = FindingCode.UNREADABLE if computed else FindingCode.NOT_COMPUTED
    return blank._replace(findings=(Finding(code, message),), computed=computed)


def _words(error: VllmModsError) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message
