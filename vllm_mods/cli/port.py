"""``vllm-mods port`` and ``refresh``: a variant for another vLLM, and patches cut anew."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import Any, NamedTuple

import click

from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange, Mod, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.cli import answers, manner, options
from vllm_mods.cli.manner import option
from vllm_mods.library import writing as library_writing
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.matrices.choose import choose_releases
from vllm_mods.planning import lock_entries, planner
from vllm_mods.porting import job as porting
from vllm_mods.porting import recut, span, writing
from vllm_mods.porting import variant as making
from vllm_mods.porting.job import Job, PortOutcome
from vllm_mods.porting.writing import Unfinished
from vllm_mods.report import port as report
from vllm_mods.trees.release import Releases

_SPEC = re.compile(r"\s*(?:[<>=!~]=?|===)")


class _PortArguments(NamedTuple):
    """What the caller wants, but for the target: a base, a variant, a name and a range, or None."""

    mod: Mod
    library: Library
    releases: Releases
    base: str | None
    variant: str | None
    name: str | None
    spec: str | None
    repair: bool
    history: str | None
    others: Mapping[str, str]


@click.command(name="port")
@click.argument("mod", metavar="MOD", shell_complete=options.complete_mods)
@option("--to TREE", "A tree, or a range such as '>=0.22,<0.26'.", "target")
@option("--from TREE", "What the variant was written for [mod.lock].", "base")
@option("--variant ID", "The variant to port [the nearest].")
@option("--as ID", "What to call the new variant.", "name")
@option("--vllm SPEC", "The range that it states [just the target].", "spec")
@option("--output DIR", "Write a copy of the mod to DIR/patches instead.")
@option("--no-repair", "Put nothing right of what would not work.")
@options.history
@options.commits
@options.others
@option("--continue", "Take the edited files of a port.", "go_on")
@option("--abort", "Do away with an unfinished port.")
@options.own_libraries
@manner.offline
@manner.json_output
def port_command(
    *,
    mod: str,
    target: str | None,
    output: str | None,
    no_repair: bool,
    commits: str | None,
    others: tuple[str, ...],
    go_on: bool,
    abort: bool,
    **given: Any,  # noqa: ANN401  (the other fields of ``_PortArguments``)
) -> int:
    """Make a variant of a mod for another vLLM.

    What the variant changes in the tree that it was written for is merged with the target, the
    whole file and class by class; both have to give the same bytes. Files, classes and functions
    that are elsewhere by now are followed, and every one that was is named. A clean port becomes
    a new variant, if the target takes it. What clashes is laid out as git does it, for
    --continue; nothing else is written then. Exit code 0 for a new variant or none needed, 1 for
    a conflict or one that would not work.
    """
    if sum((go_on, abort, target is not None)) != 1:
        raise UsageError(
            "give one of --to, --continue and --abort", hint=f"vllm-mods port {mod} --to TREE"
        )
    library = options.own_library()
    asked = _PortArguments(
        others=options.beside(others, (library.load(mod),)),
        mod=_meant(library, mod, output, new=target is not None),
        library=library,
        releases=options.open_releases(commits),
        repair=not no_repair,
        **given,
    )
    if target is None:
        return _ended(asked, abort=abort)
    try:
        if _SPEC.match(target):
            return _range(asked, target)
        tree = options.open_one(target, asked.releases, asked.others)
        return _one(asked, _job(asked, asked.mod, tree, name=asked.name))
    finally:
        if output is not None:
            _take_away(library.load(mod), asked.mod, library)


def _one(asked: _PortArguments, job: Job) -> int:
    outcome = porting.run(job, lambda: making.between(asked.releases, job.base, job.target))
    notes: tuple[str, ...] = ()
    wrote = None
    if outcome.fits and outcome.new is not None:
        notes = _needless(job, outcome)
        writing.write_files(job.mod, {**outcome.new.files, **_lock(job.mod, outcome)})
        wrote = sorted(outcome.new.files)
    done = outcome.fits or (outcome.clean and outcome.new is None)
    return _told(outcome, writing.laid_out(outcome), wrote, notes, ok=done)


def _range(asked: _PortArguments, spec: str) -> int:
    """Port to each release that no variant fits."""
    specs = choose_releases((), asked.releases.files(), spec)
    if not specs:
        raise UsageError(f"no release of vLLM is in {spec}", hint="such as --to '>=0.22,<0.26'")
    if asked.name is not None or asked.spec is not None:
        raise UsageError(
            "--as and --vllm are for one tree, and --to is a range", hint="leave them out"
        )
    trees = (options.open_one(one, asked.releases, asked.others) for one in specs)
    roots = asked.library.roots
    found = span.run(
        asked.mod,
        trees,
        roots,
        lambda mod, tree, name: _job(asked, mod, tree, name=name),
    )
    if found.files:
        writing.write_files(asked.mod, found.files)
    work = None if found.stopped is None else writing.laid_out(found.stopped)
    return answers.answer(
        report.span_data(asked.mod, found, work),
        report.span_text(asked.mod, found, work),
        ok=found.stopped is None,
    )


def _ended(asked: _PortArguments, *, abort: bool) -> int:
    """Finish or give up a port with conflicts."""
    mod = asked.mod
    work = writing.unfinished(mod)
    if abort:
        writing.remove(work)
        return answers.answer({"mod": mod.name, "aborted": work.name}, f"removed {work.folder}")
    edited = writing.resolved(work)
    tree = options.open_one(work.target, asked.releases, dict(work.others))
    for path, (before, _) in edited.items():
        if tree.read(path) != before:
            raise Refused(
                f"{work.target}: {path} is not what it was when the port was begun; nothing was written",
                hint=f"vllm-mods port {mod.name} --abort, then port again",
            )
    variant = next((one for one in mod.variants if one.id == work.variant), None)
    if variant is None:
        raise UsageError(f"{mod.name} has no variant `{work.variant}` any more", hint="--abort")
    job = porting.Job(
        mod, variant, None, work.base, tree, work.name, work.vllm, asked.library.roots
    )
    cuts = [FileChange(path, before, after) for path, (before, after) in edited.items()]
    new = porting.finish(job, cuts, work.homes)
    outcome = porting.PortOutcome(job, (), (), new, (), tuple(cuts))
    wrote = None
    if outcome.fits:
        writing.write_files(mod, {**new.files, **_lock(mod, outcome)})
        writing.remove(work)
        wrote = sorted(new.files)
    return _told(outcome, None if outcome.fits else work, wrote, (), ok=outcome.fits)


def _job(asked: _PortArguments, mod: Mod, tree: Tree, *, name: str | None = None) -> Job:
    """Say what is to be ported to a tree."""
    # what the caller names is beside the target
    source = None if asked.base is None else options.open_one(asked.base, asked.releases)
    if asked.variant is None:
        version = source.version if source is not None else tree.version
        variant = making.nearest(mod, version, lock_entries.current(asked.mod))
    else:
        variant = _named(mod, asked.variant)
    if variant.replace:
        raise UsageError(
            f"variant `{variant.id}` of {mod.name} replaces text, and `port` carries patches only",
            hint=f"vllm-mods check {mod.name} --target {tree.spec}",
        )
    if not variant.patches:
        raise UsageError(
            f"variant `{variant.id}` of {mod.name} has no patches: there is nothing to port, its "
            "files go into any vLLM",
            hint=f"vllm-mods check {mod.name} --target {tree.spec}",
        )
    if name is not None and any(one.id == name for one in mod.variants):
        raise UsageError(f"{mod.name} has a variant `{name}` already", hint="--as ANOTHER")
    if asked.spec is None and tree.version is None:
        raise UsageError(
            f"{tree.spec} does not say its version, so nothing says what the variant is for",
            hint="--vllm SPEC, such as --vllm '==0.23.0'",
        )
    base = source or making.base_tree(asked.mod, variant, tree.version, asked.releases)
    upstream = options.upstream(asked.history)
    if upstream is not None:
        upstream.between(base, tree)  # says which of them it has not got
    return porting.Job(
        mod=mod,
        variant=variant,
        base=base,
        base_version=base.version or base.spec,
        target=tree,
        name=name or making.default_name(mod, tree.version),
        vllm=asked.spec or f"=={tree.version}",
        roots=asked.library.roots,
        repair=asked.repair,
        upstream=upstream,
        others=tuple(asked.others.items()),
    )


def _named(mod: Mod, name: str) -> Variant:
    for one in mod.variants:
        if one.id == name:
            return one
    known = ", ".join(one.id for one in mod.variants)
    raise UsageError(f"{mod.name} has no variant `{name}`", hint=f"--variant {known}")


def _meant(library: Library, name: str, output: str | None, *, new: bool) -> Mod:
    """Return a mod of the library, or its copy in a library of the caller's, which may be made now."""
    mod = library.load(name)
    if output is None:
        options.check_own(library, mod)
        return mod
    place = os.path.join(output, "patches", mod.name)
    library_writing.recover(output)
    if not new:
        return load_mod(place, library.roots)
    if os.path.lexists(place):
        raise Refused(
            f"{place} is there already: nothing was written",
            hint="--output ANOTHER, or name that library: --library",
        )
    library_writing.folder(place, library.files(mod))
    return load_mod(place, library.roots)


def _take_away(mod: Mod, copy: Mod, library: Library) -> None:
    """Remove a copy to which nothing was added: it would only stand in the way of the next try."""
    there = {
        os.path.relpath(os.path.join(above, name), copy.directory)
        for above, _, names in os.walk(copy.directory)
        for name in names
    }
    if there == library.files(mod).keys():
        shutil.rmtree(copy.directory)


def _lock(mod: Mod, outcome: PortOutcome) -> dict[str, bytes]:
    """Return mod.lock with the target in it, if it is of the mod as it was."""
    locked = lock_entries.current(mod)
    if locked is None or outcome.new is None:
        return {}
    version = outcome.job.target.version
    return {
        "mod.lock": lock_entries.extended(
            locked, outcome.new.mod, [(version or "", outcome.new.planned)]
        )
    }


def _needless(job: Job, outcome: PortOutcome) -> tuple[str, ...]:
    """Say it if a variant that is there would do as well."""
    assert outcome.new is not None  # noqa: S101  (the caller has looked)
    before = planner.plan_alone(job.mod, job.target)
    if before.variant is None or before.changes != outcome.new.planned.changes:
        return ()
    told = f"variant `{before.variant.id}` goes in there too ({before.verdict}), and gives the same bytes"
    return (f"{told}: the new one is not needed",)


def _told(
    outcome: PortOutcome,
    work: Unfinished | None,
    wrote: list[str] | None,
    notes: tuple[str, ...],
    *,
    ok: bool,
) -> int:
    return answers.answer(
        report.data(outcome, work, wrote), report.text(outcome, work, wrote, notes), ok=ok
    )


@click.command(name="refresh")
@click.argument("name", metavar="MOD", shell_complete=options.complete_mods)
@option("--variant ID", "Only this variant [all with patches].", "chosen")
@options.own_libraries
@manner.offline
@manner.json_output
def refresh(name: str, chosen: str | None) -> int:
    """Cut a mod's patches anew without changing what they do.

    Line numbers, context and section headers become those of a release that mod.lock records, and
    every recorded release has to get the same bytes as before. A patch that is so already stays
    as it is, to the byte.
    """
    library = options.own_library()
    mod = library.load(name)
    options.check_own(library, mod)
    variants = [one for one in mod.variants if one.patches and chosen in {None, one.id}]
    if not variants:
        known = ", ".join(one.id for one in mod.variants if one.patches)
        what = f"no variant `{chosen}` with patches" if chosen else "no patches"
        raise UsageError(f"{name} has {what}", hint=f"--variant {known}" if known else None)
    releases = options.open_releases()
    told = []
    for variant in variants:
        done = recut.run(mod, variant, releases.open, library.roots)
        if done.files:
            writing.overwrite(mod, done.files)
            mod = library.load(name)
        patches = sorted(done.files.keys() & {patch.source for patch in variant.patches})
        told.append(
            (variant.id, [os.path.join(mod.directory, one) for one in patches], done.releases)
        )
    keys = ("variant", "wrote", "releases")
    rows = [dict(zip(keys, row, strict=True)) for row in told]
    lines = []
    for variant_id, wrote, seen in told:
        what = "cut anew" if wrote else "is so already"
        lines.append(f"{name} {variant_id}: {what}, on {len(seen)} releases")
        lines += [f"  wrote {path}" for path in wrote]
    return answers.answer({"mod": name, "variants": rows}, "\n".join(lines))
