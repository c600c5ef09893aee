"""A mod and the releases that are new to it, each a branch: what is done to the mod, and what a person has to look at."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base import versions
from vllm_mods.base.errors import VllmModsError
from vllm_mods.base.model import Mod, ModPlan, Variant, Verdict
from vllm_mods.base.tree import Tree
from vllm_mods.formats import manifest_editor
from vllm_mods.keeping import branches
from vllm_mods.library import catalog, mod_folder
from vllm_mods.planning import lock_entries, planner
from vllm_mods.porting import job as porting, variant as making, writing as port_writing
from vllm_mods.trees.release import Releases


class KeptRelease(NamedTuple):
    """What became of a mod on a release.

    ``did`` is ``fits`` (nothing to do), ``widened``, ``ported``, ``ended`` (the release carries the change), ``left``
    (a port that a person has to finish lies in the mod's folder) or ``stuck`` (none could be begun), by ``run`` also
    ``there`` and ``waits``. ``before`` and ``after`` are its row of the matrix; ``told`` was decided by rule, ``left``
    is for a person. ``branch`` is the name for what that needed, ``commit`` None where nothing was made.
    """

    mod: str
    release: str
    did: str
    before: str = ""
    after: str = ""
    told: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    branch: str = ""
    commit: str | None = None


class Ways(NamedTuple):
    """What to go by: releases, and the folders of the library."""

    releases: Releases
    roots: Sequence[str]


def run(
    home: branches.LibraryHome,
    at: str,
    mod: str,
    names: Sequence[str],
    releases: Releases,
    *,
    message: Callable[[KeptRelease], str],
) -> Iterator[KeptRelease]:
    """Bring a mod up to releases, the oldest first; the first branch begins ``at`` a commit, each other where the one before ends.

    A branch that exists is left alone, whoever made it; unless the mod has changed below it, and nobody else's commit
    is on it: then it is made again. A port that a person has to finish holds up the later releases of that mod, since
    they are ported from its result. ``names`` are versions, ``message`` returns the text of a commit. Raises
    whatever reading its mods does.
    """
    wanted = sorted(names, key=versions.sort_key)
    for n, release in enumerate(wanted, 1):
        kept = KeptRelease(mod, release, "stuck", branch=f"{branches.PREFIX}{mod}/{release}")
        kept = _keep_on_branch(home, at, kept, releases, message)
        if kept.did in {"left", "stuck", "waits"}:
            later = [f"later releases wait: {', '.join(wanted[n:])}"] * bool(wanted[n:])
            yield kept._replace(left=(*kept.left, *later))
            break
        yield kept
        at = kept.commit or at


def new_to(
    mod: Mod, versions_: Sequence[str], since: str | None, also: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the versions that are newer than ``since``, else than all that a mod's lock knows, else than its ranges' first; and those in ``also``."""
    locked = lock_entries.current(mod)
    known = [version for tree in (locked.trees if locked else ()) for version in tree.vllm]
    known += [one.base for one in (locked.written if locked else ()) if one.base in versions_]
    first = versions.lowest(variant.vllm for variant in mod.variants) or "0"
    newest = versions.sort_key(since or max(known, key=versions.sort_key, default=first))
    return tuple(one for one in versions_ if one in also or versions.sort_key(one) > newest)


def _keep_on_branch(
    home: branches.LibraryHome,
    at: str,
    kept: KeptRelease,
    releases: Releases,
    message: Callable[[KeptRelease], str],
) -> KeptRelease:
    """Bring a mod, as it is in the commit ``at``, up to one release, on a branch of that release's name."""
    name = kept.branch
    if not branches.is_name(home, name):
        return kept._replace(left=(f"no branch can be named {name}: rename the mod",))
    tip = branches.tip(home, f"refs/heads/{name}")
    if tip is not None and not branches.is_outdated(home, at, tip, kept.mod):
        return _leave(home, tip, kept)
    with branches.laid_out(home, at) as folder:
        try:
            library = catalog.Library(folder)
            ways = Ways(releases, library.roots)
            kept = keep(library.load(kept.mod), releases.open(kept.release), ways)
        except VllmModsError as error:
            return kept._replace(left=(error.message,))
        place = os.path.normpath(os.path.join(home.repository.folder, home.path))
        left = tuple(one.replace(folder, place) for one in kept.left)
        kept = kept._replace(branch=name, left=left)
        if kept.did in {"fits", "stuck"}:
            return kept
        if tip is not None and not branches.is_own(home, at, tip):
            merge = f"the mod has changed since {name} began, and that branch has commits of others: merge or rebase the branch"
            return _leave(home, tip, kept)._replace(left=(merge,))
        commit = branches.commit(home, name, at, folder, message(kept), again=tip is not None)
        return kept._replace(commit=commit)


def _leave(home: branches.LibraryHome, tip: str, kept: KeptRelease) -> KeptRelease:
    """Return what becomes of a release whose branch is left alone."""
    paths = [one for one in branches.files(home, tip) if one.startswith(f"patches/{kept.mod}/")]
    if any(port_writing.is_unfinished(path.split("/")[2]) for path in paths):
        wait = f"the port on {kept.branch} is not finished"
        return kept._replace(did="waits", left=(wait,), commit=tip)
    return kept._replace(did="there", commit=tip)


def keep(mod: Mod, tree: Tree, ways: Ways) -> KeptRelease:
    """Bring a mod up to a release: write into its folder what that needs.

    Raises ``TreeError`` for a release that cannot be read, ``Refused`` for a folder that cannot be written.
    """
    version = tree.version or tree.spec
    planned = planner.plan_alone(mod, tree)
    before = _row(planned)
    kept = KeptRelease(mod.name, version, "fits", before, before)
    if planned.verdict is Verdict.UPSTREAM:
        return _end(mod, kept, ways)
    if planned.verdict.writes:
        return _take(mod, planned, tree, kept, ways)
    if planned.verdict.ok:
        return kept
    try:
        return _port(mod, tree, ways, kept)
    except VllmModsError as error:
        reasons = (error.message, *((error.hint,) if error.hint else ()))
        return kept._replace(did="stuck", left=reasons)


def _row(planned: ModPlan) -> str:
    name = f" (variant {planned.variant.id})" if planned.variant is not None else ""
    return f"{planned.verdict}{name}"


def _end(mod: Mod, kept: KeptRelease, ways: Ways) -> KeptRelease:
    """End the range of the variant that is meant for a release which carries the change.

    A range that would name no release then is left as it is: its variant is for a person to take out.
    """
    version = kept.release
    known = [file.version for file in ways.releases.files()]
    manifest = mod.manifest
    gone = []
    for variant in (one for one in mod.variants if versions.in_range(version, one.vllm)):
        parts = [part.strip() for part in variant.vllm.split(",")]
        kept_parts = [part for part in parts if not part.startswith("<")]
        ended = ",".join([*kept_parts, f"<{versions.public(version)}"])
        if any(versions.in_range(release, ended) for release in known):
            manifest = manifest_editor.set_in_variant(
                manifest, mod_folder.MANIFEST, variant.id, "vllm", ended
            )
        else:
            gone.append(
                f"variant `{variant.id}` ({variant.vllm}) covers only releases that already have the change: remove the variant"
            )
    reason = f"vLLM {version} already has every change, so the range ends before it"
    if manifest == mod.manifest:
        return kept._replace(left=tuple(gone))
    port_writing.write_files(mod, {mod_folder.MANIFEST: manifest})
    return kept._replace(did="ended", after="upstream", told=(reason,), left=tuple(gone))


def _take(mod: Mod, planned: ModPlan, tree: Tree, kept: KeptRelease, ways: Ways) -> KeptRelease:
    """Widen the range to a release that takes a variant as it is, and record that in the lock."""
    assert planned.variant is not None  # noqa: S101  (it writes)
    left_out = [part for part in planned.variant.vllm.split(",") if "!" in part]
    if not versions.in_range(kept.release, ",".join(left_out)):
        return kept  # by whoever wrote the range
    files = {mod_folder.MANIFEST: mod.manifest}
    by_rule: tuple[str, ...] = ("the patches are unchanged",)
    if not planned.in_range:
        wide, more = _widen_range(mod, planned.variant, kept.release, ways)
        by_rule += more
        files[mod_folder.MANIFEST] = manifest_editor.set_in_variant(
            mod.manifest, mod_folder.MANIFEST, planned.variant.id, "vllm", wide
        )
    locked = lock_entries.current(mod)
    if locked is not None and not any(kept.release in tree.vllm for tree in locked.trees):
        new = making.load_mod(mod, files, ways.roots)
        again = planner.plan_alone(new, tree)
        files[mod_folder.LOCK] = lock_entries.extend(locked, new, again, tree, kept.release)
    if planned.in_range and mod_folder.LOCK not in files:
        return kept
    port_writing.write_files(mod, files)
    return kept._replace(did="recorded" if planned.in_range else "widened", told=by_rule)


def _widen_range(
    mod: Mod, variant: Variant, release: str, ways: Ways
) -> tuple[str, tuple[str, ...]]:
    """Return a variant's range with a release in it, and why releases between are left out of it.

    A release that comes into the range with it is planned on as well. Raises ``TreeError`` for one that cannot be read.
    """
    number = versions.public(release)
    bounds = [bound for clause in variant.vllm.split(",") for bound in _bounds(clause.strip())]
    wide = [*(bound for bound in bounds if not bound.startswith("<")), f"<={number}"]
    if not versions.in_range(number, ",".join(wide)):  # it is older
        wide = [f">={number}", *(bound for bound in bounds if not bound.startswith(">"))]
    reasons = []
    for version in sorted(ways.releases.versions(), key=versions.sort_key):
        was_in = version == number or versions.in_range(version, variant.vllm)
        is_new = versions.in_range(version, ",".join(wide)) and not was_in
        if not is_new or not versions.is_final(version):
            continue
        between = planner.plan_alone(mod, ways.releases.open(version))
        if not between.verdict.ok or between.variant is None or between.variant.id != variant.id:
            wide.append(f"!={version}")
            reasons.append(
                f"the variant does not apply to vLLM {version}, so the range leaves it out"
            )
    return ",".join(wide), tuple(reasons)


def _bounds(clause: str) -> list[str]:
    """Return a clause as bounds: ``==`` a version or all that begin as it does (``.*``), and ``~=`` one, are two."""
    if not clause.startswith(("==", "~=")):
        return [clause]
    number = versions.public(clause.lstrip("=~ ").removesuffix(".*"))
    if not clause.startswith("~=") and not clause.endswith(".*"):
        return [f">={number}", f"<={number}"]
    begin = number if clause.endswith(".*") else number.rpartition(".")[0]
    head, dot, last = begin.rpartition(".")
    return [f">={number}", f"<{head}{dot}{int(last) + 1}"]


def _port(mod: Mod, tree: Tree, ways: Ways, kept: KeptRelease) -> KeptRelease:
    variant = making.nearest(mod, tree.version, lock_entries.current(mod))
    base = making.base_tree(mod, variant, tree.version, ways.releases)
    old, name = base.version or base.spec, making.default_name(mod, tree.version)
    job = porting.Job(mod, variant, base, old, tree, name, f"=={kept.release}", ways.roots)
    outcome = porting.run(job, lambda: making.between(ways.releases, base, tree))
    repaired = tuple(f"repaired: {one}" for one in outcome.repaired)
    merged = [one for one in outcome.files if one.ported.text]
    by_rule = [f"followed: {one.old} is now {one.new} ({one.how})" for one in outcome.followed]
    by_rule += repaired
    by_rule += [f"{one.new_path}: merged, proof `{one.ported.proof}`" for one in merged]
    if outcome.fits and outcome.new is not None:
        port_writing.write_variant(job, outcome.new)
        after = _row(outcome.new.planned)
        return kept._replace(did="ported", after=after, told=tuple(by_rule), left=repaired)
    work = port_writing.lay_out(outcome)
    if work is None:
        return kept._replace(did="fits", after="upstream", told=tuple(by_rule))
    place = os.path.relpath(work.folder, catalog.root_of(mod))
    placed = [(file.new_path, one) for file in outcome.files for one in file.ported.problems]
    problems = [f"`{one.scope or 'module level'}` of {path}: {one.message}" for path, one in placed]
    if outcome.new is not None:
        problems += [one.message for one in outcome.new.planned.findings if one.level == "error"]
    branch = f"{branches.PREFIX}{mod.name}/{kept.release}"
    finish = f"`git checkout {branch}`, edit {place}, then `vllm-mods port {mod.name} --continue --library .`"
    return kept._replace(did="left", told=tuple(by_rule), left=(*problems, finish))
