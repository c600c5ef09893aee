"""Find where on a line of a repository's commits a mod's verdict changes.

Every verdict is ``plan``'s. A line may change more than once: what is found is one place where it
changes, proven by a plan of the tree before and one of the tree after.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import Finding, Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats import diff
from vllm_mods.planning import lock_entries, planner

if TYPE_CHECKING:
    from vllm_mods.trees.git import Commit, Repository


class Point(NamedTuple):
    """A tree on the line: ``name`` is what opens it.

    ``commit`` tells what it changed of the one before it; without it, that may be anything.
    """

    name: str
    commit: "Commit | None" = None


class Judged(NamedTuple):
    """A tree that was planned: ``version`` is vLLM's, as far as the tree says."""

    point: Point
    spec: str
    version: str | None
    planned: ModPlan


class BisectOutcome(NamedTuple):
    """What a search found. ``before`` and ``after`` are neighbours, ``None`` if the ends agree.

    ``findings`` say what of ``before``'s variant is no longer as it was. ``points`` counts commits,
    ``touching`` those that may have changed a file that a verdict rests on, ``planned`` the plans made.
    """

    good: Judged
    bad: Judged
    before: Judged | None = None
    after: Judged | None = None
    findings: tuple[Finding, ...] = ()
    points: int = 0
    touching: int = 0
    planned: int = 0

    @property
    def ok(self) -> bool:
        """Whether the verdict changes between the ends."""
        return self.after is not None


def search(
    mods: Sequence[Mod], points: Sequence[Point], opener: Callable[[str], Tree]
) -> BisectOutcome:
    """Search between the first and the last of the points, for the last of the mods.

    The mods before it are those it requires. If one end takes the mod (or has it) and the other
    does not, that is what the search is for; only ends that agree in this are told apart by their
    verdicts. Raises ``TreeError`` if a tree cannot be read.
    """
    line = _TreeLine(mods, points, opener)
    good, bad = 0, len(points) - 1
    before, after = line.judge(good), line.judge(bad)
    outcome = BisectOutcome(good=before, bad=after)
    marks: tuple[Callable[[ModPlan], object], ...] = (
        lambda plan: (plan.verdict.ok, plan.verdict.writes),
        lambda plan: plan.verdict,
    )
    # the property in which the two ends differ: the search is for the place where it changes
    mark = next((one for one in marks if one(before.planned) != one(after.planned)), None)
    if mark is not None:
        while bad - good > 1:
            middle = (good + bad) // 2
            judged = line.judge(middle)
            if mark(judged.planned) == mark(before.planned):
                good, before = middle, judged
            else:
                bad, after = middle, judged
        outcome = outcome._replace(before=before, after=after, findings=line.broken(before, after))
    commits = sum(point.commit is not None for point in points)
    return outcome._replace(points=commits, touching=line.touching, planned=line.planned)


def over_commits(mods: Sequence[Mod], repo: "Repository", good: str, bad: str) -> BisectOutcome:
    """Search the first parents of revision ``bad``, back to what revision ``good`` has.

    Raises ``UsageError`` if nothing lies between them, and if the verdict changes on the way from
    ``good`` back to where the two parted, which is not on that line.
    """
    since, until = repo.commit(good), repo.commit(bad)
    if since == until:
        why = f"{repo.spec}: {good} and {bad} are the same commit"
        raise UsageError(why, hint=f"--good REV --bad {bad}  # REV is an older one")
    commits = repo.line(since, until)
    if not commits:
        why = f"{repo.spec}: {bad} has no commits beyond {good}"
        raise UsageError(why, hint=f"--good {bad} --bad {good}  # the older one is --good")
    if not commits[0].parents:
        why = f"{repo.spec}: {good} and {bad} have no common history in this clone"
        fetch = f"{repo.typed} fetch --unshallow"
        other = "name two revisions that have a common ancestor"
        raise UsageError(why, hint=fetch if repo.is_shallow else other)
    fork = commits[0].parents[0]
    points = [Point(name) for name in dict.fromkeys((since, fork))]
    outcome = search(mods, [*points, *(Point(one.sha, one) for one in commits)], repo.tree)
    if outcome.after is not None and outcome.after.point.commit is None:
        why = f"{repo.spec}: {good} is not an ancestor of {bad}: the verdict is `{outcome.good.planned.verdict}` at {good}, but `{outcome.after.planned.verdict}` at the merge base {fork[:12]}"
        raise UsageError(why, hint=f"--good {fork[:12]} --bad {good}")
    return outcome


class _TreeLine:
    """The trees as far as they were planned, and the files that the plans rest on."""

    def __init__(
        self, mods: Sequence[Mod], points: Sequence[Point], opener: Callable[[str], Tree]
    ) -> None:
        self.mods = mods
        self.points = points
        self.opener = opener
        self.cache = SummaryCache()
        self.planned = 0
        self.watched = {
            path for mod in mods for one in mod.variants for path in diff.touched(mod, one)
        }

    def judge(self, index: int) -> Judged:
        judged = self.ask(self.mods, self.points[index])
        self.watched.update(judged.planned.beside)
        return judged

    def ask(self, mods: Sequence[Mod], point: Point) -> Judged:
        planned = planner.plan(mods, self.opener(point.name), cache=self.cache)
        self.planned += 1
        name = mods[-1].name
        mod_plan = next(one for one in planned.mods if one.mod.name == name)
        for finding in mod_plan.findings:
            if finding.code == FindingCode.UNREADABLE:
                raise TreeError(f"{planned.spec}: {finding.message}")
        return Judged(point, planned.spec, planned.version, mod_plan)

    @property
    def touching(self) -> int:
        """How many of the points behind the first changed a file in question."""
        commits = (point.commit for point in self.points[1:])
        return sum(one is None or not self.watched.isdisjoint(one.paths) for one in commits)

    def broken(self, before: Judged, after: Judged) -> tuple[Finding, ...]:
        """Say what changed in the words of the variant that was right before."""
        variant = before.planned.variant
        if variant is None or after.planned.verdict.ok or variant == after.planned.variant:
            return after.planned.findings
        mods = (*self.mods[:-1], lock_entries.with_variants(self.mods[-1], (variant,)))
        alone = self.ask(mods, after.point).planned
        return after.planned.findings if alone.verdict.ok else alone.findings
