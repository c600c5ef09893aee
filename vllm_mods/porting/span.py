"""A mod ported over several releases with as few new variants as do. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.model import Mod, ModPlan
from vllm_mods.base.tree import Tree
from vllm_mods.formats import manifest_editor
from vllm_mods.library import mod_folder
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.porting import job as porting
from vllm_mods.porting import variant as making
from vllm_mods.porting.job import Job, PortOutcome


class SpanRow(NamedTuple):
    """A release, the variant that goes in there, and its verdict: ``ported`` for a new one.

    ``tree`` tells the builds of one version from each other.
    """

    release: str
    tree: str
    variant: str | None
    verdict: str


class PortSpan(NamedTuple):
    """What came out: the mod as it would be, its new files, and the port that could not be done."""

    mod: Mod
    rows: tuple[SpanRow, ...]
    files: dict[str, bytes]
    stopped: PortOutcome | None


def run(
    mod: Mod,
    trees: Iterable[Tree],
    roots: Sequence[str],
    first: Callable[[Mod, Tree, str], Job],
) -> PortSpan:
    """Go through trees, the oldest first, and port where no variant goes in.

    A variant that was made on the way is ported on; otherwise ``first`` says what to port to
    a tree, and under which name. Stops at the first tree that takes none. A lock of the mod as it was
    gets the releases that were ported to.
    """
    rows: list[SpanRow] = []
    given, plans = mod, list[tuple[str, ModPlan]]()
    files: dict[str, bytes] = {}
    spans: dict[str, list[Tree]] = {}
    last: tuple[Tree, str] | None = None
    job: Job | None = None
    stopped = None
    for tree in trees:
        version = tree.version or tree.spec
        planned = planner.plan_alone(mod, tree)
        if planned.verdict.ok:
            used = planned.variant.id if planned.variant is not None else None
            rows.append(SpanRow(version, tree.spec, used, planned.verdict.value))
            if used in spans:
                spans[used].append(tree)
                last = (tree, used)
            continue
        name = making.default_name(mod, tree.version)
        if last is None:
            job = first(mod, tree, name)._replace(unwritten=files)
        else:
            assert job is not None  # noqa: S101  (the last variant was made by one)
            source = next(one for one in mod.variants if one.id == last[1])
            old = last[0].version or last[0].spec
            job = job._replace(
                mod=mod,
                variant=source,
                base=last[0],
                base_version=old,
                target=tree,
                name=name,
                vllm=f"=={version}",
                unwritten=files,
            )
        outcome = porting.run(job)
        if outcome.new is None or not outcome.fits:
            stopped = outcome
            break
        mod, files = outcome.new.mod, dict(outcome.new.files)
        plans.append((version, outcome.new.planned))
        spans[name], last = [tree], (tree, name)
        rows.append(SpanRow(version, tree.spec, name, "ported"))
    for name, over in spans.items():
        package = next(one.package for one in mod.variants if one.id == name)
        for key, values in (
            ("vllm", [tree.version or tree.spec for tree in over]),
            ("version", [LayeredTree(tree).package(package) for tree in over if package]),
        ):
            known = sorted({one for one in values if one}, key=versions.sort_key)
            if len(known) > 1:
                wider = f">={known[0]},<={known[-1]}"
                files[mod_folder.MANIFEST] = manifest_editor.set_in_variant(
                    files[mod_folder.MANIFEST], mod_folder.MANIFEST, name, key, wider
                )
    locked = lock_entries.current(given)
    if locked is not None and files:
        new = making.load_mod(given, files, roots)
        files[mod_folder.LOCK] = lock_entries.extend(locked, new, plans)
    return PortSpan(mod, tuple(rows), files, stopped)
