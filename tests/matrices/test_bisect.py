"""The search itself, on trees in memory; repositories are in tests/cli."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from memory_tree import MemoryTree
from mod_making import diff_of, lock_of, mod, variant

from vllm_mods.api.libraries import find_variant
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.model import Verdict
from vllm_mods.matrices.bisect import BisectOutcome, Point, over_commits, search
from vllm_mods.planning.lock_entries import with_variants
from vllm_mods.planning.planner import plan
from vllm_mods.trees.git import Commit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vllm_mods.base.model import Mod

PATH = "vllm/x.py"
BASE = "def f():\n    a = 1\n    b = 2\n    c = 3\n    return a\n"
MOD = mod(variant(diff_of(PATH, BASE, BASE.replace("b = 2", "b = 20"))))
BROKEN = BASE.replace("b = 2", "b = 3")
MOVED = f"import os\n\n\n{BASE}"


def line(texts: Sequence[str], touched: Callable[[int], bool]) -> tuple[Point, ...]:
    """Return a point per text; ``touched`` says whether its commit owns up to changing the file."""
    points = [Point("0")]
    for i in range(1, len(texts)):
        paths = frozenset({PATH}) if touched(i) else frozenset({"vllm/other.py"})
        points.append(Point(str(i), Commit(f"{i:040x}", (f"{i - 1:040x}",), "2026", "s", paths)))
    return tuple(points)


def opener(texts: Sequence[str]) -> Callable[[str], MemoryTree]:
    def opened(name: str) -> MemoryTree:
        return MemoryTree({PATH: texts[int(name)].encode()}, spec=name, pristine=True)

    return opened


def run(texts: Sequence[str], mod_: Mod = MOD, *, honest: bool = True) -> BisectOutcome:
    points = line(texts, lambda i: honest and texts[i] != texts[i - 1])
    return search([mod_], points, opener(texts))


def verdicts(found: BisectOutcome) -> tuple[Verdict, Verdict]:
    assert found.before is not None
    assert found.after is not None
    return found.before.planned.verdict, found.after.planned.verdict


def test_half_of_what_is_left_is_left_after_each_plan() -> None:
    texts = [BASE] * 500 + [MOVED] * 300 + [BROKEN] * 200
    found = run(texts)
    assert found.after is not None
    assert found.after.spec == "800"
    assert verdicts(found) == (Verdict.MOVED, Verdict.CONFLICT)
    assert (found.points, found.touching) == (999, 2)
    assert found.planned == 12
    assert "but the patch has" in found.findings[0].message


@pytest.mark.parametrize("at", [1, 2, 7, 62, 63])
def test_a_change_that_no_commit_owns_up_to_is_found_all_the_same(at: int) -> None:
    texts = [BASE] * at + [BROKEN] * (64 - at)
    found = run(texts, honest=False)
    assert found.after is not None
    assert found.after.spec == str(at)
    assert verdicts(found) == (Verdict.APPLIES, Verdict.CONFLICT)


def test_a_history_that_goes_back_and_forth_gives_one_proven_change() -> None:
    texts = [BASE] * 5 + [BROKEN] * 5 + [MOVED] * 5 + [BROKEN] * 5
    found = run(texts)
    assert found.after is not None
    assert found.after.spec in {"5", "15"}
    assert verdicts(found)[1] is Verdict.CONFLICT


@pytest.mark.slow
def test_a_file_that_only_the_newer_plan_rests_on_counts() -> None:
    base = "from vllm.y import g\n\n\ndef f():\n    return g(1)\n"
    patch = diff_of(PATH, base, base.replace("g(1)", "g(1, 2)"))
    trees = [{PATH: base, "vllm/y.py": "def g(a, b):\n    return a\n"}] * 20
    trees += [{PATH: base, "vllm/y.py": "def g(a):\n    return a\n"}] * 20
    points = [Point("0")]
    for i in range(1, len(trees)):
        paths = frozenset({"vllm/y.py"} if trees[i] != trees[i - 1] else {"README.md"})
        points.append(Point(str(i), Commit(str(i), ("",), "2026", "s", paths)))

    def opened(name: str) -> MemoryTree:
        files = {path: text.encode() for path, text in trees[int(name)].items()}
        return MemoryTree({"vllm/__init__.py": b"", **files}, spec=name)

    found = search([mod(variant(patch))], points, opened)
    assert verdicts(found) == (Verdict.APPLIES, Verdict.UNFIT)
    assert found.after is not None
    assert (found.after.spec, found.touching, found.planned) == ("20", 1, 7)


def test_ends_that_agree_are_said_to() -> None:
    found = run([BASE, BROKEN, BASE])
    assert found.before is None
    assert found.after is None
    assert found.planned == 2


@pytest.mark.slow
def test_the_way_in_which_the_ends_differ_is_what_is_searched_for() -> None:
    # it moves on the way, which is not what broke it
    assert verdicts(run([BASE, BASE, MOVED, MOVED, BROKEN])) == (Verdict.MOVED, Verdict.CONFLICT)
    # ends that both take it: by their verdicts
    assert verdicts(run([BASE, BASE, MOVED])) == (Verdict.APPLIES, Verdict.MOVED)
    # and the other way round, where a release carries the change
    carried = BASE.replace("b = 2", "b = 20")
    assert verdicts(run([BASE, MOVED, carried])) == (Verdict.MOVED, Verdict.UPSTREAM)
    assert verdicts(run([BROKEN, BROKEN, BASE])) == (Verdict.CONFLICT, Verdict.APPLIES)


def test_what_broke_is_said_of_the_variant_that_was_right() -> None:
    other = variant(
        diff_of("vllm/far.py", "x = 1\ny = 2\n", "x = 2\ny = 2\n"), name="far", vllm=">=0.19.1"
    )
    mine = variant(diff_of(PATH, BASE, BASE.replace("b = 2", "b = 20")), name="mine", vllm="<0.10")
    found = run([BASE, BASE, BROKEN], mod(mine, other))
    assert found.before is not None
    assert found.before.planned.variant is not None
    assert found.before.planned.variant.id == "mine"
    assert [one.path for one in found.findings if one.hunk] == [PATH]


def test_a_tree_that_cannot_be_read_is_no_verdict() -> None:
    texts = [BASE, BASE, BASE, BROKEN]

    class Unreadable(MemoryTree):
        def read(self, path: str) -> bytes | None:
            raise TreeError(f"no {path} here")

    def opened(name: str) -> MemoryTree:
        return Unreadable({}, spec="lost") if name in "12" else opener(texts)(name)

    with pytest.raises(TreeError, match=r"lost: no vllm/x\.py here"):
        search([MOD], line(texts, lambda _: True), opened)


class History:
    """A repository in memory: a line of commits, and the texts of all revisions."""

    spec, folder, typed, is_shallow = "git:repo", "/repo", "git -C /repo", True

    def __init__(self, texts: dict[str, str], line: Sequence[Commit]) -> None:
        self.texts, self.commits = texts, line

    def commit(self, revision: str) -> str:
        return revision.removesuffix("^{}")

    def line(self, _since: str, _until: str) -> Sequence[Commit]:
        return self.commits

    def tree(self, name: str) -> MemoryTree:
        return MemoryTree({PATH: self.texts[name].encode()}, spec=name, pristine=True)


def commit(name: str, *parents: str) -> Commit:
    return Commit(name, parents, "2026", "s", frozenset({PATH}))


def over(texts: dict[str, str], *commits: Commit, good: str = "good") -> BisectOutcome:
    repository: Any = History(texts, commits)
    return over_commits([MOD], repository, good, "bad")


def test_between_two_revisions_the_commits_of_the_newer_one_are_searched() -> None:
    texts = {"good": BASE, "one": MOVED, "two": BROKEN, "bad": BROKEN}
    line = commit("one", "good"), commit("two", "one"), commit("bad", "two")
    outcome = over(texts, *line)
    assert outcome.before is not None
    assert outcome.after is not None
    assert (outcome.good.spec, outcome.bad.spec) == ("good", "bad")
    assert (outcome.before.spec, outcome.after.spec, outcome.points) == ("one", "two", 3)


def test_where_the_older_one_parted_from_the_newer_the_search_begins() -> None:
    line = commit("one", "fork"), commit("bad", "one")
    texts = {"good": BASE, "fork": MOVED, "one": BROKEN, "bad": BROKEN}
    outcome = over(texts, *line)
    assert outcome.after is not None
    assert (outcome.after.spec, outcome.points) == ("one", 2)
    with pytest.raises(UsageError) as caught:
        over({**texts, "fork": BROKEN}, *line)
    assert caught.value.message == (
        "git:repo: good is not an ancestor of bad: the verdict is `applies` at good, but `conflict` at the merge base fork"
    )
    assert caught.value.hint == "--good fork --bad good"


def test_revisions_without_a_line_between_them_are_a_wrong_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    older = "--good bad --bad good  # the older one is --good"
    for good, why, hint in (
        ("good", "bad has no commits beyond good", older),
        ("bad", "bad and bad are the same commit", "--good REV --bad bad  # REV is an older one"),
    ):
        with pytest.raises(UsageError) as caught:
            over({}, good=good)
        assert (caught.value.message, caught.value.hint) == (f"git:repo: {why}", hint)
    with pytest.raises(UsageError) as caught:
        over({}, commit("bad"))
    assert caught.value.message == "git:repo: good and bad have no common history in this clone"
    assert caught.value.hint == "git -C /repo fetch --unshallow"
    monkeypatch.setattr(History, "is_shallow", False)
    with pytest.raises(UsageError) as caught:
        over({}, commit("bad"))
    assert caught.value.hint == "name two revisions that have a common ancestor"


def test_one_variant_alone_keeps_what_the_lock_says_of_it() -> None:
    first = variant(diff_of(PATH, BASE, BASE.replace("b = 2", "b = 20")), name="first")
    second = variant(diff_of(PATH, BASE, BASE.replace("b = 2", "b = 21")), name="second")
    whole = mod(first, second)
    tree = MemoryTree({PATH: BASE.encode()})
    only = mod(first, digest=whole.digest)
    whole = whole._replace(lock=lock_of(plan([only], tree).mods[0]))
    assert plan([with_variants(whole, (first,))], tree).mods[0].vouched
    other = plan([with_variants(whole, (second,))], tree).mods[0]
    assert (other.vouched, other.verdict) == (False, Verdict.APPLIES)
    with pytest.raises(UsageError, match="no variant `third`") as caught:
        find_variant(whole, "third")
    assert caught.value.hint == "--variant first or second"
