"""What one worker does: open a tree, and answer for some mods on it.

A worker may be this process or one beside it: tasks, settings and outcomes are plain data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from vllm_mods.matrices.answer import Answer, answer_of, failed
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


class Subject(NamedTuple):
    """What is asked of a tree: the plan of a mod, or with ``show`` what there is to show of it."""

    mod: str
    show: bool = False


class Setting(NamedTuple):
    """What all tasks of a run share.

    ``store`` says whether kept answers may be used and are kept, ``strict`` whether a second reader has
    to find the same scopes in every file that a mod changes. ``commits`` is where builds are found by
    the commits that their versions name, ``others`` are versions of distributions to be read beside vLLM.
    """

    mods: tuple[Mod, ...]
    cache_dir: str
    offline: bool = False
    store: bool = True
    strict: bool = False
    commits: str | None = None
    others: Mapping[str, str] = {}


class Task(NamedTuple):
    """Subjects to answer for on one tree."""

    spec: str
    subjects: tuple[Subject, ...]


class TaskFault(NamedTuple):
    """``of`` is ``tree`` or ``mod``. An error as data: not every exception survives pickling."""

    of: str
    message: str
    hint: str | None


class TaskOutcome(NamedTuple):
    """An answer per subject. ``version`` is vLLM's, as the tree says.

    ``fault`` is what is wrong with the call: a spec that names no tree, or a bad patch of a mod.
    """

    task: Task
    version: str | None
    answers: tuple[Answer, ...]
    fault: TaskFault | None = None


class Workshop:
    """All that one process needs for any number of tasks."""

    def __init__(self, setting: Setting, *, note: Callable[[str], None] | None = None) -> None:
        self._setting = setting
        self._mods = {mod.name: mod for mod in setting.mods}
        self._store = AnswerStore(Cache(setting.cache_dir) if setting.store else None)
        self._keys: dict[Subject, str] = {}
        self._fit = FitCache()
        self._note = note

    def known(
        self, spec: str, subjects: Sequence[Subject]
    ) -> dict[Subject, tuple[str | None, Answer]]:
        """Return the version and the answer for each subject whose answer is kept, without opening a release."""
        kind, _, name = spec.partition(":")
        # no other kind of tree has one unopened
        identity = self.releases.identity(name) if kind == "pypi" else None
        answers = {one: self._store.known(self._key(one), identity) for one in subjects}
        return {one: kept for one, kept in answers.items() if kept is not None}

    def run(self, task: Task) -> TaskOutcome:
        """Answer a task. A tree that cannot be read, or a bad mod, is an outcome too."""
        try:
            tree = self.open(task.spec)
        except VllmModsError as error:
            fault = TaskFault("tree", error.message, error.hint)
            return _all(task, _failed(error), fault if isinstance(error, UsageError) else None)
        try:
            answers = tuple(self._recall_or_ask(subject, tree)[0] for subject in task.subjects)
            return TaskOutcome(task, tree.version, answers)
        except VllmModsError as error:
            fault = TaskFault("mod", error.message, error.hint)
            return _all(task, _failed(error), None if isinstance(error, TreeError) else fault)
        finally:
            tree.close()
            if len(self._fit.modules) > _SUMMARIES:
                self._fit.modules.clear()

    @cached_property
    def releases(self) -> Releases:
        """The releases of the package index, with one pool of connections."""
        of = self._setting
        return Releases(
            offline=of.offline, cache_dir=of.cache_dir, note=self._note, commits=of.commits
        )

    @cached_property
    def origins(self) -> Origins:
        """The releases that variants were written for."""
        return Origins(self.releases)

    def sweep(self) -> None:
        """Drop what the cache has kept for too long."""
        self._store.sweep()

    def open(self, spec: str) -> Tree:
        """Open a tree. Raises ``TreeError`` or ``UsageError``."""
        of = self._setting
        if spec.startswith("pypi:"):
            return self.releases.open(spec.removeprefix("pypi:"), named=of.others)
        return open_tree(
            spec, offline=of.offline, cache_dir=of.cache_dir, note=self._note, others=of.others
        )

    def _recall_or_ask(self, subject: Subject, tree: Tree) -> tuple[Answer, bool]:
        """Return an answer, and whether it is kept: what rests on something that could not be read is not."""
        key = self._key(subject)
        kept = self._store.known(key, tree.identity)
        if kept is not None:
            return kept[1], True
        ask = self._show if subject.show else self._plan
        answer, final = ask(subject.mod, tree.apart())
        if final:
            self._store.remember(key, answer, tree)
        return answer, final

    def _show(self, name: str, tree: Tree) -> tuple[Answer, bool]:
        answer, final = self._recall_or_ask(Subject(name), tree)
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
            answer = answer_of(second_reading(planned) if self._setting.strict else planned)
        except (TreeError, Refused) as error:  # the receipt may be damaged
            answer = _failed(error)
        answer = answer._replace(packages=tuple(sorted(noted.packages.items())))
        if isinstance(noted.failure, Unreachable):
            return _failed(noted.failure), False
        return answer, noted.failure is None and not self.origins.missed

    def _needed(self, name: str) -> tuple[Mod, ...]:
        """Return a mod behind those that it requires."""
        needed: dict[str, Mod] = {}

        def take(name: str) -> None:
            for required in self._mods[name].requires:
                take(required)
            needed[name] = self._mods[name]

        take(name)
        return tuple(needed.values())

    def _yanked(self, packages: Iterable[str]) -> Iterator[str]:
        """Yield the files that have been taken back of other distributions: what a release took is another then."""
        for name in sorted(packages):
            with suppress(TreeError):
                files = self.releases.of(name).files()
                yield from (file.filename for file in files if file.yanked is not None)

    def _key(self, subject: Subject) -> str:
        if subject not in self._keys:
            mods = self._needed(subject.mod)
            key = f"{key_of(mods)} {subject.mod}" + " strict" * self._setting.strict
            others = self._setting.others
            asked = changed_distributions(mods) if others else ()
            key += "".join(f" {n}=={v}" for n, v in sorted(others.items()) if n in asked)
            packages = {one.package for mod in mods for one in mod.variants if one.package}
            key += "".join(f" without {name}" for name in self._yanked(packages))
            key += " shown" * subject.show
            self._keys[subject] = key
        return self._keys[subject]


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
    """Return kind, name and lines of every class and function; None for what the reader cannot read."""
    try:
        return [one[:5] for one in read(data).definitions]
    except UnparsableError:
        return None


def dead(task: Task, why: str) -> TaskOutcome:
    """Return the outcome of a task whose worker died with it."""
    return _all(task, failed(why, computed=False))


def is_meant(mod: Mod, version: str | None) -> bool:
    """Tell whether the mod promises this version, or without a promise the range of one of its variants names it."""
    return bool(versions.in_range(version, mod.vllm)) if mod.vllm else is_named(mod, version)


def is_named(mod: Mod, version: str | None) -> bool:
    """Tell whether the range of one of the mod's variants names this version."""
    return any(versions.in_range(version, variant.vllm) for variant in mod.variants)


def _all(task: Task, answer: Answer, fault: TaskFault | None = None) -> TaskOutcome:
    return TaskOutcome(task, None, (answer,) * len(task.subjects), fault)


def _failed(error: VllmModsError) -> Answer:
    words = f"{error.message}; {error.hint}" if error.hint else error.message
    return failed(words, computed=not isinstance(error, Unreachable))
