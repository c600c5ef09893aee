"""A launcher's ``run.sh`` as a mod of ours: of one tree, of none, or over releases; read where that tells, else run."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.base.errors import DiffError, Refused
from vllm_mods.base.model import FileChange, Variant
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff_writer
from vllm_mods.formats.diff import FileDiff
from vllm_mods.making import compose, from_diff, over_releases, reading, recording
from vllm_mods.making.compose import Composed, Wanted
from vllm_mods.making.effects import (
    Advise,
    Assume,
    Edit,
    Effect,
    Export,
    Install,
    Left,
    OutsideFile,
    Patch,
    Remove,
    Whole,
    in_site,
    is_template,
    normal,
)
from vllm_mods.making.fetching import Fetcher
from vllm_mods.making.folder import SCRIPT, LauncherFolder
from vllm_mods.making.over_releases import MadeOver, Release, ScriptEffect
from vllm_mods.making.recording import Limits
from vllm_mods.planning import outside, patching, planner
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part
from vllm_mods.planning.patching import Attempt
from vllm_mods.scripts.statements import BashError

_NO_FILE = "/dev/null"


class Understood(NamedTuple):
    """The effects of a script, patches read into parts; ``left`` is what a mod cannot be made of yet."""

    effects: tuple[Effect, ...]
    patches: dict[int, tuple[FileDiff, ...]]
    """The parts of each patch, by its place among the effects; paths are from the site root."""

    @property
    def left(self) -> tuple[Edit | Left, ...]:
        """What stands between the script and a whole mod."""
        return tuple(one for one in self.effects if isinstance(one, Edit | Left))


def understand(effects: Sequence[Effect], tree: Tree | None) -> Understood:
    """Read the patches among the effects; what cannot be done is left, with the reason.

    Without a tree, or one that has the package, no file can be written or removed.
    """
    found: list[Effect] = []
    patches: dict[int, tuple[FileDiff, ...]] = {}
    wholes = {in_site(one.path) or "" for one in effects if isinstance(one, Whole)}
    # modules, and packages that are brought whole
    own = {
        path.partition("/")[0]
        for path in wholes
        if "/" not in path or path.endswith("/__init__.py")
    }
    alone = not any(isinstance(one, Patch | Whole | Remove | Edit) for one in effects)
    for one in effects:
        why, what = "", one.source if isinstance(one, Patch) else getattr(one, "path", "")
        if isinstance(one, OutsideFile) and alone:
            why = f"a mod changes Python packages and brings chat templates, and {one.path} is neither"
        elif isinstance(one, Patch):
            try:
                patches[len(found)] = tuple(_parts(one))
            except (DiffError, Refused) as error:
                why = error.message
        elif isinstance(one, Remove) and tree is None:
            why = "what is removed needs --tree TREE"
        elif isinstance(one, Whole) and (path := in_site(one.path)):
            what, package = path, path.partition("/")[0]
            if tree is None:
                why = "whether vLLM has such a file decides what this is: --tree TREE"
            elif package not in own and not any(True for _ in tree.paths(package)):
                why = f"{tree.spec} does not hold the package {package}: --tree TREE, one that does"
        found.append(Left(one.place, what, why) if why else one)
    return Understood(tuple(found), patches)


def on_tree(understood: Understood, wanted: Wanted, tree: Tree) -> Composed:
    """Do on a tree what the effects say, and make a mod of what changed.

    Raises ``Refused`` for a patch that does not go in, and as ``compose`` does.
    """
    done = effect(understood, wanted.name, tree)
    wanted = wanted._replace(python=done.python)
    return compose.compose(wanted, done.required, done.templates, tree, done.optional)


def effect(understood: Understood, mod: str, tree: Tree) -> ScriptEffect:
    """Return what the effects do on a tree, in a mod of this name. Raises as ``on_tree`` does."""
    view = LayeredTree(tree)
    named = _named(understood, {mod})
    optional = {name: data for name, one, data in named if one.optional}
    for i, one in enumerate(understood.effects):
        if isinstance(one, Patch):
            for part in () if one.optional else understood.patches[i]:
                _patch(one, part, view)
        elif isinstance(one, Whole | Remove) and (path := in_site(one.path)):
            after = one.data if isinstance(one, Whole) else None
            view.lay([FileChange(path=path, before=view.read(path), after=after)])
    brought = templates(understood.effects)
    if not (view.changes() or brought or optional):
        raise nothing(understood)
    required = view.changes()
    for i, one in enumerate(understood.effects):
        if isinstance(one, Patch) and one.optional:
            _, done = _tried(one, understood.patches[i], view)
            view.lay(done.changes if done.ok else ())
    python = installed(understood.effects)
    return ScriptEffect(view.changes(), required, brought, python, optional)


def without_tree(understood: Understood, wanted: Wanted) -> dict[str, bytes]:
    """Return the files of a mod that does what the effects say, with patches as they were written.

    Raises ``Refused`` where nothing of it changes vLLM.
    """
    named = _named(understood, set())
    files = {f"any/{name}.patch": data for name, _, data in named}
    brought = templates(understood.effects)
    if not (files or brought):
        raise nothing(understood)
    paths = [part.path for patches in understood.patches.values() for part in patches]
    parts = compose.Parts(
        id="any",
        patches=list(files),
        overlay=[],
        templates=list(brought),
        outside=outside.of(paths, planner.WORKSPACE),
        optional=tuple(f"any/{name}.patch" for name, one, _ in named if one.optional),
    )
    wanted = wanted._replace(python=installed(understood.effects))
    parts = compose.stated(wanted, parts, None)
    text = compose.written(wanted, [parts], "vLLM of any version")
    files |= compose.template_files(brought) | wanted.brought()
    return {**files, "mod.toml": compose.encoded(text)}


def nothing(understood: Understood) -> Refused:
    """Return what is said of a script of which no effect on vLLM was read."""
    taken = [one for one in understood.effects if isinstance(one, Assume)]
    lines = "".join(f"\n  {one.place}: `{one.text}`: {one.how}" for one in taken)
    if taken:
        return Refused(
            f"nothing for a mod was read in the script, and whether that is so, only a run tells:{lines}",
            hint="--record --tree TREE runs it on a copy of that vLLM",
        )
    return Refused(
        "the script changes no file of vLLM and brings no template: there is nothing for a mod",
        hint="what it installs belongs into the image",
    )


def _named(understood: Understood, taken: set[str]) -> list[tuple[str, Patch, bytes]]:
    """Return the patches as they were written, each with a name that no other has."""
    found = []
    for i, one in enumerate(understood.effects):
        if isinstance(one, Patch):
            name = posixpath.splitext(one.source)[0]
            while name in taken:
                name += f"-{one.place.line}"
            taken.add(name)
            found.append((name, one, b"".join(map(_rendered, understood.patches[i]))))
    return found


def templates(effects: Sequence[Effect]) -> dict[str, bytes]:
    """Return the chat templates that are put into the workspace, by file name."""
    return {
        posixpath.basename(one.path): one.data
        for one in effects
        if isinstance(one, Whole) and is_template(one.path)
    }


def installed(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Return what is installed, each once."""
    return tuple(dict.fromkeys(one.requirement for one in effects if isinstance(one, Install)))


def _parts(one: Patch) -> Iterator[FileDiff]:
    """Read a patch, with the paths from the site root."""
    for part in from_diff.parts(one.data, one.source):
        names = [
            None if name == _NO_FILE else _target(one, name, part) for name in (part.old, part.new)
        ]
        old, new = names
        (read,) = from_diff.read(part, one.source)
        if old is not None and new is not None and old != new:
            named = f"{part.old} and {part.new}"
            raise DiffError(one.source, part.line, f"its two sides name different files: {named}")
        file = read._replace(old_path=old, new_path=new)
        yield file.reversed() if one.reverse else file


def _target(one: Patch, name: str, part: from_diff.DiffPart) -> str:
    names = [step for step in name.split("/") if step]
    kept = names[-1:] if one.strip is None else names[one.strip :]
    place = one.operand or normal(posixpath.normpath(posixpath.join(one.folder, *kept)))
    if name.startswith("/") and one.strip == 0:
        place = normal(name)
    path = in_site(place)
    if path is None or not kept:
        where = f"{place}, which is not among the Python packages" if kept else "no file"
        raise DiffError(one.source, part.line, f"{name} means {where}")
    return path


def _patch(one: Patch, part: FileDiff, view: LayeredTree) -> None:
    """Put one part of a patch into the view. Raises ``Refused`` if it has no proven place."""
    parts, done = _tried(one, (part,), view)
    if done.ok:
        view.lay(done.changes)
        return
    back = patching.backward(done.variant, parts, view)
    why = "".join(f"\n  {finding.message}" for finding in done.findings)
    raise Refused(
        f"{one.place}: {one.source} "
        + ("is in that tree already" if back.ok else f"does not go into {view.spec}{why}"),
        hint="--tree TREE, the vLLM that the mod was written for",
    )


def _tried(
    one: Patch, files: Sequence[FileDiff], view: LayeredTree
) -> tuple[tuple[Part, ...], Attempt]:
    parts = tuple(Part(source=one.source, diff=file, path=file.path) for file in files)
    return parts, patching.forward(Variant(id="any", vllm=">=0"), parts, view)


def _rendered(file: FileDiff) -> bytes:
    """Write a part of a patch with paths from the site root, its hunks as they are."""
    body = b""
    for hunk in file.hunks:
        sizes = f"-{hunk.old_start},{len(hunk.old)} +{hunk.new_start},{len(hunk.new)}"
        body += f"@@ {sizes} @@ {hunk.section}".rstrip().encode() + b"\n"
        body += b"".join(diff_writer.ended(kind.encode() + line) for kind, line in hunk.lines)
    is_new, is_gone = file.old_path is None, file.new_path is None
    return diff_writer.with_head(file.path, body, is_new=is_new, is_gone=is_gone)


class FolderMade(NamedTuple):
    """A mod over releases; ``handed`` says why the script was run, None where it was read alone."""

    over: MadeOver
    handed: str | None


def make(
    source: LauncherFolder,
    wanted: Wanted,
    releases: Sequence[Release],
    limits: Limits,
    tell: Callable[[str], None],
    *,
    fetcher: Fetcher | None = None,
) -> FolderMade:
    """Make a mod of a folder over releases, oldest first; ``fetcher`` takes what runs ask for. Raises ``Refused`` where it is none anywhere."""
    handed: list[str] = []

    def read(tree: Tree) -> ScriptEffect | None:
        try:
            effects = reading.read(source.name, source.files, tree, limits.fetched)
        except BashError as error:
            handed.append(f"{SCRIPT}:{error.line}: {error.why}")
            return None
        understood = understand(effects, tree)
        if understood.left:
            first = understood.left[0]
            why = first.what if isinstance(first, Edit) else first.why
            handed.append(f"{first.place}: `{first.text}`: {why}")
            return None
        return effect(understood, wanted.name, tree)

    def run(tree: Tree) -> ScriptEffect:
        done = recording.fed(source.name, source.files, tree, limits, fetcher)
        return ScriptEffect(
            changes=done.changes,
            required=done.changes,
            templates=done.templates,
            python=done.python,
            told=done.lost,
            paths=done.paths,
            everywhere=done.everywhere,
            fetched=() if fetcher is None else fetcher.files(),
        )

    over = over_releases.make(wanted, releases, read, run, tell)
    return FolderMade(over, handed[0] if handed else None)


def stated(wanted: Wanted, effects: Sequence[Effect]) -> Wanted:
    """Return what a mod says of itself, with what its script has for those who serve."""
    values: dict[str, set[str]] = {}
    for one in effects:
        if isinstance(one, Export) and one.brought:
            values.setdefault(one.name, set()).add(one.value)
    told = dict.fromkeys(one.args for one in effects if isinstance(one, Advise))
    return wanted._replace(
        # of one that is set twice nobody knows which one counts
        env=tuple((name, min(texts)) for name, texts in values.items() if len(texts) == 1),
        serve_args=tuple(word for args in told for word in args),
        files=tuple(
            {one.path: one.data for one in effects if isinstance(one, OutsideFile)}.items()
        ),
    )
