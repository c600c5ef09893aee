"""Changes to files, as between two trees, made the files of a mod and planned. Writes nothing."""

import contextlib
import itertools
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from vllm_mods.base import versions
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import DiffError, Refused, TreeError, UsageError
from vllm_mods.base.model import FileChange, Mod, ModPlan
from vllm_mods.base.tree import Folder, Tree
from vllm_mods.fit.world import SummaryCache
from vllm_mods.formats import diff_writer, platforms, toml_writer
from vllm_mods.formats.schema import NAME, NAME_IN_WORDS
from vllm_mods.formats.tree_names import canonical
from vllm_mods.library import mod_folder, writing
from vllm_mods.making.fetching import DownloadedFile
from vllm_mods.planning import outside, planner

UNSTATED = "LicenseRef-unstated"
_BUILT = ("vllm/_version.py", "vllm/commit_id.py")
_WORKSPACE = f"{planner.WORKSPACE}/"
_ASIDE = re.compile(
    r"(.*/|)(?:\.([^/]+)\.sw[a-p]|#([^/]+)#|([^/]+?)(?:~|\.(?:orig|rej|bak|backup|old|save)(?![a-z])[\w.~-]*))\Z"
)
"""What ``patch``, ``sed -i.bak``, editors and scripts leave beside a file."""
_PASSED_OVER = ("__pycache__/", ".vllm-mods/", ".git/")


class Wanted(NamedTuple):
    """What a mod is to be called and to say of itself; None for what nobody said."""

    name: str
    summary: str | None = None
    license: str | None = None
    vllm: str | None = None
    variant: str | None = None


class ModEffect(NamedTuple):
    """What a mod is made of: changes to a tree, ``templates`` by file name, ``notes`` for the mod's reader.

    ``optional`` are the names of the last steps, which a mod does without where they fail, each with the files as it found them;
    ``failed`` the entries of a registry that it lacks, each with the reason.
    """

    changes: tuple[FileChange, ...]
    templates: Mapping[str, bytes] = {}
    python: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    fetched: tuple[DownloadedFile, ...] = ()
    notes: tuple[str, ...] = ()
    optional: tuple[tuple[str, Mapping[str, bytes | None]], ...] = ()
    failed: tuple[str, ...] = ()


class Parts(NamedTuple):
    """What a variant has; ``lists`` are those that it states, by their keys."""

    id: str
    vllm: str
    made_on: str
    lists: Mapping[str, Sequence[object]]
    outside: tuple[str, ...]
    packages: tuple[tuple[str, str], ...]
    """Name and range of the distributions beside vLLM that it changes."""


class Composed(NamedTuple):
    """A mod's files by name, its plan, and the ``parts`` of its variant."""

    mod: Mod
    files: dict[str, bytes]
    planned: ModPlan
    parts: Parts


class ReleaseRow(NamedTuple):
    """What became of a release: its variant and verdict, or why it has no variant."""

    version: str
    variant: str | None
    verdict: str | None
    why: str | None = None


class NewMod(NamedTuple):
    """A ``mod`` that was made, its ``files`` by their names in its folder, and the plan of it.

    ``planned`` is None where no tree was named. ``notes`` are what one should know, ``unknown`` what only a person
    can state in ``mod.toml``, ``releases`` what became of each release of a range, ``folder`` where the mod was
    written, None for nowhere. ``failed`` are the entries of a registry that it lacks, each with the reason.
    """

    mod: Mod
    files: Mapping[str, bytes]
    planned: ModPlan | None = None
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    releases: tuple[ReleaseRow, ...] = ()
    folder: str | None = None
    failed: tuple[str, ...] = ()

    def written(self, library: Folder) -> Self:
        """Write it into a library. Raises ``Refused`` where there is a mod of this name."""
        folder = os.path.join(os.fspath(library), "patches", self.mod.name)
        writing.folder(folder, self.files)
        return self._replace(folder=folder)


def without_backups(effect: ModEffect, has: Callable[[str], bool]) -> ModEffect:
    """Leave out new files that are only backups or rejects of a file beside them, each with a note; ``has`` tells which were there."""
    aside: dict[str, str] = {}
    for path in (one.path for one in effect.changes if one.before is None):
        if match := _ASIDE.match(path):
            beside = f"{match[1]}{match[2] or match[3] or match[4]}"
            of = [one for one in (beside, f"{beside}.py") if has(one)]
            aside |= {path: f"left out {path}: it looks like a backup of {of[0]}"} if of else {}
    kept = tuple(one for one in effect.changes if one.path not in aside)
    return effect._replace(changes=kept, notes=(*effect.notes, *aside.values()))


def difference(old: Tree, new: Tree) -> ModEffect:
    """Compare the packages that both trees have; what differs and is left out is noted, with the reason.

    Bytecode, and what describes a distribution (``RECORD``), follows from the files and is left out.
    Raises ``TreeError`` for a file that can't be read.
    """
    changes: list[FileChange] = []
    notes: list[str] = []
    for path in sorted({*_paths(old), *_paths(new)}):
        if path.endswith(".pyc") or any(f"/{part}" in f"/{path}" for part in _PASSED_OVER):
            continue
        before, after = old.read(path), new.read(path)
        if before == after:
            continue
        if ".dist-info/" in path or ".egg-info/" in path:
            why = "this file describes the distribution, and `apply` updates such files"
            notes.append(f"left out {path}: {why}")
        elif path in _BUILT:
            notes.append(f"left out {path}: the build of each release generates this file")
        else:
            changes.append(FileChange(path=path, before=before, after=after))
    effect = ModEffect(tuple(changes), notes=tuple(notes))
    return without_backups(effect, lambda path: old.read(path) is not None)


def _paths(tree: Tree) -> set[str]:
    try:
        return set(tree.paths(""))
    except TreeError:
        return set(tree.paths("vllm"))


def compose(
    wanted: Wanted, effect: ModEffect, tree: Tree, *, cache: SummaryCache | None = None
) -> Composed:
    """Make a mod of changes to the files of a tree.

    Text that was there becomes a patch, a new file and one that is no text an overlay. Raises
    ``Refused`` for a change that a mod cannot make, and where what was composed does not make these
    very changes; ``UsageError`` for a name that is none, or a range that nothing tells.
    """
    if not re.fullmatch(NAME, wanted.name):
        raise UsageError(f"{wanted.name!r} is not a valid name for a mod", hint=NAME_IN_WORDS)
    if not (effect.changes or effect.templates):
        why = f"nothing differs from {tree.spec}, so there are no changes to make a mod of"
        hint = f"vllm-mods new {wanted.name} --from-trees {tree.spec} EDITED  # EDITED is a copy of that tree, with your changes"
        raise Refused(why, hint=hint)
    try:
        versions.in_range("0", wanted.vllm or "")
    except ValueError as error:
        raise UsageError(f"--vllm: {error}", hint="--vllm '>=0.20,<0.23'") from error
    if wanted.vllm is None and tree.version is None:
        why = f"{tree.spec} does not state its version, so the range of the mod is unknown"
        raise UsageError(why, hint="--vllm SPEC, such as --vllm '==0.21.0'")

    def compose_with(context: int) -> Composed:
        files, parts = _parts(wanted, effect, tree, context)
        on = f"vLLM {tree.version or tree.spec}"
        files[mod_folder.MANIFEST] = written(wanted, [parts], on, effect.env)
        mod = mod_folder.load_files(wanted.name, files)
        return Composed(mod, files, planner.plan_alone(mod, tree, cache=cache), parts)

    try:
        composed = compose_with(diff_writer.CONTEXTS[0])
        for context in diff_writer.CONTEXTS[1:]:
            if composed.planned.verdict == "misplaced":
                composed = compose_with(context)
    except DiffError as error:  # its file is not written: nobody could look there
        why = f"the changes to {tree.spec} cannot be one patch: {error.why}"
        raise Refused(why, hint=error.hint) from error
    _check(composed, effect.changes)
    return composed


def _parts(
    wanted: Wanted, effect: ModEffect, tree: Tree, context: int
) -> tuple[dict[str, bytes], Parts]:
    variant = wanted.variant or ".".join(re.split(r"[.+]", tree.version or "any")[:2])
    folder = f"{wanted.variant}/overlay" if wanted.variant else "overlay"
    files = {one.file: one.data for one in effect.fetched}
    names = _names(effect.templates)
    for file, data in effect.templates.items():
        files[f"templates/{names[file]}/{mod_folder.TEMPLATE}"] = data
    overlay: list[dict[str, object]] = []
    binary: list[dict[str, object]] = []
    steps = [wanted.name]
    for name, _ in effect.optional:
        while name in steps:
            name += f"-{len(steps)}"  # noqa: PLW2901  (none is left out)
        steps.append(name)
    needed, *optional = patches = {f"{variant}/{name}.patch": b"" for name in steps}
    whole: list[FileChange] = []
    for change in sorted(effect.changes, key=lambda change: change.path):
        between = (found.get(change.path, change.before) for _, found in effect.optional)
        states = [change.before, *between, change.after]
        for source, (before, after) in zip(patches, itertools.pairwise(states), strict=True):
            part = change._replace(before=before, after=after)
            if source == needed and not _as_patch(part):
                whole += [part] * (before != after)
            else:
                patches[source] += diff_writer.file_diff(part.path, before, after, context=context)
    for change in whole:
        if change.after is None:
            why = f"{change.path} is a binary file, and a mod cannot remove binary files"
            raise Refused(why, hint="keep the file, or disable it in another way")
        source = f"{folder}/{change.path}"
        files[source] = change.after
        entry: dict[str, object] = {"source": source, "path": change.path}
        known = {} if change.before is None else {"replaces": [sha256(change.before)]}
        built = platforms.of_code(change.after)
        if built is not None and re.search(r"\.so(?:\.\d+)*\Z", change.path):
            binary.append(entry | {"sha256": sha256(change.after), "platform": built} | known)
        else:
            overlay.append(entry | known)
    patches = {source: patch for source, patch in patches.items() if patch}
    beyond = outside.of((change.path for change in effect.changes), planner.WORKSPACE)
    owners = {tree.owner(path) for path in beyond}
    packages = ((canonical(name), f"=={version}") for name, version in sorted(filter(None, owners)))
    parts = Parts(
        id=variant,
        vllm=wanted.vllm or versions.only(str(tree.version)),
        made_on=f"# Made on vLLM {tree.version or tree.spec}.",
        lists={
            "patches": [*patches],
            "optional": [one for one in optional if one in patches],
            "overlay": overlay,
            "binary": binary,
            "templates": [{"name": name, "file": file} for file, name in names.items()],
            "fetch": [
                {"url": one.url, "sha256": sha256(one.data), "file": one.file}
                for one in effect.fetched
            ],
            "python": effect.python,
        },
        outside=beyond,
        packages=tuple(one for one in packages if one[0] != "vllm"),
    )
    return files | patches, parts


def _check(composed: Composed, changes: Sequence[FileChange]) -> None:
    planned = composed.planned
    if not planned.verdict.writes:
        why = "".join(f"\n  {one.message}" for one in planned.findings if one.level == "error")
        why = f"the mod would have the verdict `{planned.verdict}` on the tree that it was made from; nothing was written{why}"
        raise Refused(why, hint="fix this, then make the mod again")
    if not makes(planned, changes):
        why = "the new patches do not reproduce the changes; nothing was written"
        raise Refused(why, hint="this is a bug in vllm-mods: report the bug with the changed files")


def makes(planned: ModPlan, changes: Sequence[FileChange]) -> bool:
    """Tell whether a plan writes, and makes these very changes, its templates aside."""
    made = {change.path: change.after for change in planned.changes}
    code = {path: data for path, data in made.items() if not path.startswith(_WORKSPACE)}
    return planned.verdict.writes and code == {one.path: one.after for one in changes}


def written(
    wanted: Wanted, variants: Sequence[Parts], version: str, env: Sequence[tuple[str, str]]
) -> bytes:
    """Write a manifest. ``version`` is what it changes, where nobody said what it is for.

    Raises ``Refused`` for a path in it that is not UTF-8.
    """
    summary = wanted.summary or f"Changes to {version}"
    named = {"schema": 1, "name": wanted.name, "version": "0.1.0", "summary": summary}
    missing = "# The licence was not given: state the terms for passing it on."
    terms = [] if wanted.license else [missing]
    beyond = sorted({path for parts in variants for path in parts.outside})
    stated = {"license": wanted.license or UNSTATED} | ({"outside": beyond} if beyond else {})
    rows = [*toml_writer.rows(named), *terms, *toml_writer.rows(stated)]
    if env:
        rows += ["", "[env]", *toml_writer.rows(dict(env))]
    for parts in variants:
        rows += ["", *_variant(parts)]
    try:
        return "\n".join([*rows, ""]).encode()
    except UnicodeEncodeError as error:
        line = error.object[error.object.rfind("\n", 0, error.start) + 1 :].partition("\n")[0]
        why = f"a path is not UTF-8, so mod.toml cannot name it: {line!a}"
        raise Refused(why, hint="rename the file") from error


def _variant(parts: Parts) -> Iterator[str]:
    value = toml_writer.value
    yield from (parts.made_on, "[[variant]]")
    yield from toml_writer.rows({"id": parts.id, "vllm": parts.vllm})
    if len(parts.packages) == 1:
        ((name, spec),) = parts.packages
        yield from toml_writer.rows({"package": name, "version": spec})
    elif parts.packages:
        named = " and ".join(f"{name} {spec}" for name, spec in parts.packages)
        yield f"# The variant changes {named}, but can state only one `package`."
    for key, rows in parts.lists.items():
        if rows and isinstance(rows[0], dict):
            yield from (f"{key} = [", *(f"  {value(row)}," for row in rows), "]")
        elif rows:
            yield f"{key} = {value(rows)}"


def _names(files: Iterable[str]) -> dict[str, str]:
    """Name templates by their files, each of them otherwise."""
    names: dict[str, str] = {}
    for file in files:
        stem = posixpath.splitext(file)[0].lower()
        name = re.sub(r"[^a-z0-9._-]", "-", stem).strip("-._") or "template"
        names[file] = f"{name}-{len(names)}" if name in names.values() else name
    return names


def unknown(wanted: Wanted, version: str | None) -> Iterator[str]:
    """Yield what only a person can say of a mod made on a version, or on several."""
    if wanted.summary is None:
        yield "summary: what the mod is for"
    if wanted.license is None:
        yield "license: the licence of the changes"
    if wanted.vllm is None:
        so_far = f"; so far only {version}" * bool(version)
        yield f"vllm: the versions that the mod works on{so_far} (`vllm-mods matrix {wanted.name} --library DIR --vllm RANGE` tries a range)"
    yield "evidence: a log line that shows that the mod's code ran"


def _as_patch(change: FileChange) -> bool:
    """Tell whether a change is one of lines to a file that is there."""
    with contextlib.suppress(UnicodeDecodeError):
        before, after = change.before, change.after or b""
        return before is not None and "\0" not in before.decode() + after.decode()
    return False
