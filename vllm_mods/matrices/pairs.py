"""Two mods on one tree: does either change what the other rests on, and does order matter? Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import Mod, ModPlan, Plan
from vllm_mods.base.tree import Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.matrices.answer import Answer, PairAnswer
from vllm_mods.matrices.cell import Together
from vllm_mods.planning import planner


def meeting(mods: Sequence[Mod], answers: Mapping[str, Answer]) -> tuple[tuple[str, str], ...]:
    """Return the pairs, by name, that have to be planned together on a tree.

    ``answers`` are those of each mod alone. Mods that both go in meet where one of them changes a
    file that the other changes too, or one that the other's fit rested on; else neither can tell
    whether the other is there. Mods whose manifests name each other meet in any case.
    """
    going = [mod for mod in mods if answers[mod.name].verdict.writes]
    return tuple(
        (one.name, other.name)
        for one, other in combinations(going, 2)
        if other.name in one.conflicts
        or one.name in other.conflicts
        or _changed(answers[one.name]) & _rests_on(answers[other.name])
        or _changed(answers[other.name]) & _rests_on(answers[one.name])
    )


def judge(
    first: Mod, other: Mod, needed: Sequence[Mod], tree: Tree, cache: SummaryCache
) -> PairAnswer:
    """Plan both orders, as far as the manifests leave both open, and compare the bytes.

    ``needed`` are the two and all that they require, whatever is required first.
    """
    names = (first.name, other.name)
    if other.name in first.conflicts or first.name in other.conflicts:
        message = f"{' and '.join(names)}: the manifest of one names the other in `conflicts`"
        return PairAnswer("conflict", (), message)
    below = [mod for mod in needed if mod.name not in names]
    plans: dict[tuple[str, ...], Plan] = {}
    for pair in ((first, other), (other, first)):
        planned = planner.plan((*below, *pair), tree, cache=cache)
        sequence = tuple(mod.mod.name for mod in planned.mods if mod.mod.name in names)
        plans[sequence] = planned
    whole = {order: planned for order, planned in plans.items() if planned.ok}
    if not whole:
        order, planned = next(iter(plans.items()))
        return PairAnswer(
            "conflict", (), f"{' and '.join(names)} do not go together: {_why(planned)}"
        )
    order, planned = next(iter(whole.items()))
    scopes = _common(*(mod for mod in planned.mods if mod.mod.name in names))
    if len(whole) < len(plans):
        wrong = next(planned for order, planned in plans.items() if order not in whole)
        return PairAnswer("order-matters", scopes, f"only {' before '.join(order)}: {_why(wrong)}")
    results = {
        tuple((change.path, sha256(change.after), change.mode) for change in planned.changes)
        for planned in whole.values()
    }
    if len(results) > 1:
        message = f"{' and '.join(names)} go in either way round, and the results differ"
        return PairAnswer("order-matters", scopes, message)
    declared = f", {' before '.join(order)} as their manifests say" if len(plans) == 1 else ""
    if scopes:
        both = "either order gives the same bytes" if not declared else "they go together"
        return PairAnswer("same-scope", scopes, f"{' and '.join(names)}: {both}{declared}")
    message = (
        f"{' and '.join(names)} go together{declared} and touch no class or function in common"
    )
    return PairAnswer("apart", (), message)


def gather(answers: Iterable[tuple[tuple[str, str], str, PairAnswer]]) -> tuple[Together, ...]:
    """Put the trees on which two mods get on alike into one row, and leave out the unread ones."""
    rows: dict[tuple[tuple[str, str], PairAnswer], list[str]] = {}
    for mods, tree, answer in answers:
        if answer.kind != "unknown":
            rows.setdefault((mods, answer), []).append(tree)
    return tuple(
        Together(mods, answer.kind, answer.scopes, tuple(trees), answer.message)
        for (mods, answer), trees in sorted(rows.items(), key=lambda row: row[0][0])
    )


def _changed(answer: Answer) -> frozenset[str]:
    return frozenset(file.path for file in answer.locked.files) if answer.locked else frozenset()


def _rests_on(answer: Answer) -> frozenset[str]:
    return _changed(answer) | frozenset(answer.locked.beside if answer.locked else ())


def _scopes(planned: ModPlan) -> dict[str, None]:
    """Name what a mod touches: the scopes of its hunks, and the files that it replaces whole."""
    names: dict[str, None] = {}
    for hunk in planned.hunks:
        for scope in hunk.scope.split(" | "):
            names[f"{hunk.path}: {scope or 'module level'}"] = None
    placed = {hunk.path for hunk in planned.hunks}
    for change in planned.changes:
        if change.path not in placed:
            names[f"{change.path}: whole file"] = None
    return names


def _common(first: ModPlan, other: ModPlan) -> tuple[str, ...]:
    theirs = _scopes(other)
    return tuple(scope for scope in _scopes(first) if scope in theirs)


def _why(planned: Plan) -> str:
    """Say what stops a plan: where the first mod that does not go in is stopped first.

    Without line numbers, so that neighbouring releases say the same.
    """
    for mod in planned.mods:
        if not mod.verdict.ok:
            place = next((finding for finding in mod.findings if finding.path), None)
            scope = f", `{place.scope}`" if place is not None and place.scope else ""
            where = f" at {place.path}{scope}" if place is not None else ""
            return f"{mod.mod.name} is then `{mod.verdict}`{where}"
    raise ValueError("every mod of the plan goes in")
