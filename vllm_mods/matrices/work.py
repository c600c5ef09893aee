"""What one worker does: open a tree, and answer for some mods on it.

A worker may be this process or one beside it: tasks, settings and outcomes are plain data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import Refused, TreeError, Unreachable, UsageError, VllmModsError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache as FitCache
from vllm_mods.formats import receipt
from vllm_mods.formats.concrete_syntax import UnparsableError
from vllm_mods.matrices.cell import Answer, Computed, answer_of, failed
from vllm_mods.matrices.explain import explain
from vllm_mods.matrices.noted_tree import NotedTree
from vllm_mods.matrices.store import AnswerStore, key_of
from vllm_mods.placing import scopes
from vllm_mods.placing.scopes import Scopes
from vllm_mods.planning import planner
from vllm_mods.planning.context import ask_for_packages
from vllm_mods.planning.origins import Origins
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.other_packages import changed_distributions
from vllm_mods.trees.release import Releases

# Summaries of source files that one process keeps: about 100 MB.
_SUMMARIES = 4000


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


class Workshop:
    """All that one process needs for any number of tasks."""

    def __init__(self, setting: Setting, *, note: Callable[[str], None] | None = None) -> None:
        self.setting = setting
        self.store = AnswerStore(Cache(setting.cache_dir) if setting.store else None)
        self._mods = {mod.name: mod for mod in setting.mods}
        self._keys: dict[str, str] = {}
        self._fit = FitCache()
        self._note = note

    def known(self, spec: str) -> Computed:
        """Return the answers that are kept, without opening a release."""
        kind, _, name = spec.partition(":")
        # no other kind of tree has one unopened
        identity = self.releases.identity(name) if kind == "pypi" else None
        kept = {
            mod: self.store.known(self._key(mod, show=self.setting.show), identity)
            for mod in self._mods
        }
        found = {mod: one for mod, one in kept.items() if one is not None}
        version = next((version for version, _ in found.values() if version), None)
        return Computed(spec, version, {mod: answer for mod, (_, answer) in found.items()})

    def run(self, task: Task) -> Computed:
        """Answer a task. A tree that cannot be read, or a bad mod, is an outcome too."""
        try:
            with self.open(task.spec) as tree:
                asked = (
                    self._recall_or_ask(mod, tree, show=self.setting.show)[0] for mod in task.mods
                )
                answers = dict(zip(task.mods, asked, strict=True))
                return Computed(task.spec, tree.version, answers)
        except VllmModsError as error:
            is_named = task.spec in self.setting.named or not isinstance(error, UsageError)
            is_fault = is_named and not isinstance(error, TreeError)
            fault = (error.message, error.hint) if is_fault else None
            return Computed(task.spec, None, dict.fromkeys(task.mods, _failed(error)), fault)
        finally:
            if len(self._fit.modules) > _SUMMARIES:
                self._fit.modules.clear()

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

    def _recall_or_ask(self, name: str, tree: Tree, *, show: bool) -> tuple[Answer, bool]:
        """Return an answer, and whether it is kept: what rests on something that could not be read is not."""
        key = self._key(name, show=show)
        kept = self.store.known(key, tree.identity)
        if kept is not None:
            return kept[1], True
        answer, final = (self._show if show else self._plan)(name, tree.apart())
        if final:
            self.store.remember(key, answer, tree)
        return answer, final

    def _show(self, name: str, tree: Tree) -> tuple[Answer, bool]:
        answer, final = self._recall_or_ask(name, tree, show=False)
        ask_for_packages(self._needed(name), tree)
        try:
            return answer._replace(hunks=tuple(explain(self._mods[name], answer, tree))), final
        except TreeError:
            return answer, False  # the cell itself says what cannot be read

    def _plan(self, name: str, tree: Tree) -> tuple[Answer, bool]:
        noted = NotedTree(tree)
        mods = self._needed(name)
        try:
            raw = None if tree.pristine else noted.read(receipt.RECEIPT)
            applied = None if raw is None else receipt.parse(raw)
            whole = planner.plan(mods, noted, receipt=applied, cache=self._fit, origin=self.origins)
            planned = next(one for one in whole.mods if one.mod.name == name)
            answer = answer_of(second_reading(planned) if self.setting.strict else planned)
        except (TreeError, Refused) as error:  # the receipt may be damaged
            answer = _failed(error)
        answer = answer._replace(packages=tuple(sorted(noted.packages.items())))
        if isinstance(noted.failure, Unreachable):
            return _failed(noted.failure), False
        return answer, noted.failure is None and not self.origins.missed

    def _needed(self, name: str) -> tuple[Mod, ...]:
        """Return a mod behind those that it requires."""
        mod = self._mods[name]
        behind = (one for required in mod.requires for one in self._needed(required))
        return tuple(dict.fromkeys((*behind, mod)))

    def _yanked(self, packages: Iterable[str]) -> Iterator[str]:
        """Yield the files that have been taken back of other distributions: what a release took is another then."""
        for name in sorted(packages):
            with suppress(TreeError):
                files = self.releases.of(name).files()
                yield from (file.filename for file in files if file.yanked is not None)

    def _key(self, name: str, *, show: bool) -> str:
        if name not in self._keys:
            mods = self._needed(name)
            key = f"{key_of(mods)} {name}" + " strict" * self.setting.strict
            others = self.setting.others
            asked = changed_distributions(mods) if others else ()
            key += "".join(f" {n}=={v}" for n, v in sorted(others.items()) if n in asked)
            packages = {one.package for mod in mods for one in mod.variants if one.package}
            key += "".join(f" without {name}" for name in self._yanked(packages))
            self._keys[name] = key
        return self._keys[name] + " shown" * show


def second_reading(planned: ModPlan) -> ModPlan:
    """Return a plan as it is, or unreadable where LibCST finds other scopes in a file of it than ``ast``."""
    differ = "the two parsers of Python find different classes and functions in the file that"
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


def _places(read: Callable[[bytes], Scopes], data: bytes) -> list[tuple[object, ...]] | None:
    """Return kind, name and lines of every scope; None for what the reader cannot read."""
    try:
        return [one[:5] for one in read(data).scopes]
    except UnparsableError:
        return None


def is_meant(mod: Mod, version: str | None) -> bool:
    """Tell whether the mod promises this version, or without a promise the range of one of its variants names it."""
    return bool(versions.in_range(version, mod.vllm)) if mod.vllm else is_named(mod, version)


def is_named(mod: Mod, version: str | None) -> bool:
    """Tell whether the range of one of the mod's variants names this version."""
    return any(versions.in_range(version, variant.vllm) for variant in mod.variants)


def _failed(error: VllmModsError) -> Answer:
    words = f"{error.message}; {error.hint}" if error.hint else error.message
    return failed(words, computed=not isinstance(error, Unreachable))
