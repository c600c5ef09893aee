"""A mod carried over to another vLLM, into its library or a copy of it."""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.api.access import Access
from vllm_mods.api.libraries import check_own_mod, find_variant
from vllm_mods.base import versions
from vllm_mods.base.errors import Refused, UsageError
from vllm_mods.base.model import FileChange, Mod
from vllm_mods.library import reading, writing as library_writing
from vllm_mods.library.catalog import Library
from vllm_mods.library.mod_folder import load_mod
from vllm_mods.planning import lock_entries, planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.porting import job as porting, variant as variants, writing


class PortResult(NamedTuple):
    """What became of a port.

    ``wrote`` are the paths of the files that were written; ``unfinished`` is what is left to a person, laid
    out as git does it; ``notes`` are what one should know. ``enough`` says which variant gives the same
    result there, so that no new one was written.
    """

    outcome: porting.PortOutcome
    wrote: tuple[str, ...] = ()
    unfinished: writing.Unfinished | None = None
    notes: tuple[str, ...] = ()
    enough: str = ""

    @property
    def ok(self) -> bool:
        """Whether the target has a variant that goes in, or needs none."""
        return self.outcome.fits or (self.outcome.clean and self.outcome.new is None)


def port(
    library: Library,
    mod: str,
    to: str,
    *,
    base: str | None = None,
    variant: str | None = None,
    name: str | None = None,
    vllm: str | None = None,
    repair: bool = True,
    others: Mapping[str, str] | None = None,
    output: str | None = None,
    access: Access | None = None,
) -> PortResult:
    """Make a variant of a mod for another vLLM.

    ``mod`` is the name of one of the ``library``, which has to be the caller's own, unless ``output`` names another
    folder, to which a copy is written. ``to`` is a tree. ``base`` is the tree that the ``variant`` was written for
    (without these, what ``mod.lock`` says and the nearest one); ``name`` and ``vllm`` are those of the new variant;
    ``repair`` puts right what would not work; ``others`` are versions of packages, by name, beside the target.

    Returns ``PortResult``. What clashes is no error: it is laid out for a person, and ``continue_port`` takes it.
    Raises ``UsageError`` for a variant that there is not, ``Refused`` where a file to be written is there already.

    >>> done = vm.port(vm.Library("library"), "fast", "newer", base="site-packages")
    >>> done.ok, done.wrote, done.enough.partition(",")[0]
    (True, (), 'variant `a` already gives the same result as this port on the target (moved)')
    """
    access = access or Access()
    made = [one for one in (f"{output}/patches", f"{output}") if not os.path.lexists(one)]
    copy = _own_copy(library, mod, output)
    try:
        target = access.open(to, others=others or {})
        source = None if base is None else access.open(base)
        if variant is None:
            version = source.version if source is not None else target.version
            ported = variants.nearest(copy, version, lock_entries.current(copy))
        else:
            ported = find_variant(copy, variant)
        if ported.replace or not ported.patches:
            why = f"variant `{ported.id}` of {copy.name} replaces files or has no patches, and `port` can port patches only"
            raise UsageError(why, hint=f"vllm-mods check {copy.name} --target {target.spec}")
        if name is not None and any(one.id == name for one in copy.variants):
            raise UsageError(f"{copy.name} has a variant `{name}` already", hint="--as ANOTHER")
        if vllm is None and target.version is None:
            why = (
                f"{target.spec} does not state its version, so the range of the variant is unknown"
            )
            raise UsageError(why, hint="--vllm SPEC, such as --vllm '==0.23.0'")
        source = source or variants.base_tree(copy, ported, target.version, access.releases)
        job = porting.Job(
            mod=copy,
            variant=ported,
            base=source,
            base_version=source.version or source.spec,
            target=target,
            name=name or variants.default_name(copy, target.version),
            vllm=vllm or versions.only(str(target.version)),
            roots=library.roots,
            repair=repair,
            others=tuple((others or {}).items()),
        )
        outcome = porting.run(job, lambda: variants.between(access.releases, source, target))
        result = PortResult(outcome)
        if outcome.fits and outcome.new is not None:
            enough = _enough(job, outcome.new)
            wrote = () if enough else writing.write_variant(job, outcome.new)
            result = PortResult(outcome, wrote, enough=enough)
        return result._replace(unfinished=writing.lay_out(outcome))
    finally:
        if output is not None:
            _remove_plain_copy(library, mod, copy, made)


def _remove_plain_copy(library: Library, mod: str, copy: Mod, made: Iterable[str]) -> None:
    """Remove a copy to which nothing was added, with the folders ``made`` for it: it would only stand in the way of the next try."""
    if set(reading.paths_below(copy.directory)) == library.files(library.load(mod)).keys():
        shutil.rmtree(copy.directory)
        for folder in made:
            os.rmdir(folder)


def continue_port(
    library: Library, mod: str, *, output: str | None = None, access: Access | None = None
) -> PortResult:
    """Make the variant of an unfinished port of which a person has edited the files.

    ``mod`` and ``output`` are those of ``port``. Raises ``Refused`` where something is left to edit, and where
    the target is not what it was; ``UsageError`` where no port is unfinished.
    """
    copy = _own_copy(library, mod, output, new=False)
    work = writing.unfinished(copy)
    edited = writing.resolved(work)
    tree = (access or Access()).open(work.target, others=dict(work.others))
    for path, (before, _) in edited.items():
        if tree.read(path) != before:
            why = f"{work.target}: {path} has changed since the port began; nothing was written"
            raise Refused(why, hint=f"vllm-mods port {copy.name} --abort, then port again")
    variant = next((one for one in copy.variants if one.id == work.variant), None)
    if variant is None:
        why = f"the unfinished port of {copy.name} starts from the variant `{work.variant}`, which mod.toml no longer has"
        raise UsageError(why, hint=f"vllm-mods port {copy.name} --abort  # or put the variant back")
    job = porting.Job(copy, variant, None, work.base, tree, work.name, work.vllm, library.roots)
    cuts = [FileChange(path, before, after) for path, (before, after) in edited.items()]
    if all(cut.before == cut.after for cut in cuts) and not (variant.overlay or variant.templates):
        why = f"the edited files of {copy.name} are those of {work.target}, so there is no variant to write"
        raise Refused(why, hint=f"vllm-mods port {copy.name} --abort")
    new = porting.finish(job, cuts, work.homes)
    outcome = porting.PortOutcome(job, (), (), new, (), tuple(cuts))
    if not outcome.fits:
        return PortResult(outcome, unfinished=work)
    notes = tuple(_not_as_written(job, cuts))
    wrote = writing.write_variant(job, new)
    writing.remove(work)
    return PortResult(outcome, wrote, notes=notes)


def _not_as_written(job: porting.Job, cuts: Sequence[FileChange]) -> Iterator[str]:
    """Yield a note for each hunk of the variant that the finished files do not have as it was written."""
    finished = LayeredTree(job.target, cuts)
    planned = planner.plan_alone(job.mod, finished, job.variant)
    if planned.verdict.ok and not planned.verdict.writes:
        return
    edited = {cut.path for cut in cuts}
    for hunk in planner.hunk_states(job.mod, job.variant, finished):
        if hunk.state != "carried" and hunk.path in edited:
            yield f"{hunk.label} was changed or left out in the edited file"


def abort_port(library: Library, mod: str, *, output: str | None = None) -> writing.Unfinished:
    """Remove what an unfinished port laid out for a person, and return what it was."""
    copy = _own_copy(library, mod, output, new=False)
    work = writing.unfinished(copy)
    writing.remove(work)
    if output is not None:
        _remove_plain_copy(library, mod, copy, ())
    return work


def _own_copy(library: Library, name: str, output: str | None, *, new: bool = True) -> Mod:
    """Return a mod of the caller's own library, or its copy in ``output``, which is made if it is to be ``new``."""
    mod = library.load(name)
    if output is None:
        check_own_mod(library, mod)
        return mod
    place = os.path.join(output, "patches", mod.name)
    library_writing.recover(output)
    if new:
        library_writing.folder(place, library.files(mod))
    return load_mod(place, library.roots)


def _enough(job: porting.Job, new: variants.NewVariant) -> str:
    """Say which variant does the same in the target without a new one; ``""`` where none does."""
    before = planner.plan_alone(job.mod, job.target)
    own = before.variant
    if own is None or before.changes != new.planned.changes:
        return ""
    wide = f"; widen its range in mod.toml ({own.vllm}) to include {job.target_version}"
    return f"variant `{own.id}` already gives the same result as this port on the target ({before.verdict}){'' if before.in_range else wide}"
