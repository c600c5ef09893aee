"""A diff of somebody's, whatever its paths are from: which file of the tree each part means."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import DiffError, Refused
from vllm_mods.base.model import FileChange
from vllm_mods.base.tree import Tree
from vllm_mods.formats import diff, diff_forms, diff_names
from vllm_mods.formats.diff import FileDiff
from vllm_mods.making import compose
from vllm_mods.making.compose import ModEffect
from vllm_mods.planning.layered_tree import LayeredTree
from vllm_mods.planning.part_step import Part, PatchingStep

_HEADER = re.compile(
    rb"^--- ([^\n]*)\n\+\+\+ ([^\n]*)\n"  # git states an empty file without these two lines
    rb"|^diff --git ([^\n]*)\n(new|deleted) file mode [^\n]*\n(?:index [^\n]*\n?)?+(?!--- )",
    re.MULTILINE,
)
# a hunk may take out "-- a" and put in "++ b"
_NEXT = re.compile(rb"^(?:diff |Index: |=====|--- [^\n]*\n\+\+\+ [^\n]*\n@@ )", re.MULTILINE)
_REFUSED = {
    rb"^(rename|copy) .*\n\1 to ": ("the diff renames or copies a file", "git diff --no-renames"),
    rb"^GIT binary|^Binary .* differ$": ("a binary change has no text", "--from-trees OLD NEW"),
    rb"^\w.* mode 1[26]0000$": ("no mod can change a link or submodule", "remove it from the diff"),
}
_LEFT_OUT = {
    rb"^(?:new mode [0-7]+|new file mode 100755)$": "a mod made of a diff sets no file modes",
    rb"^Only in [^\n]*: [^\n]*(?<!__pycache__)$": "`diff -ruN` has the text of such files",
    rb"^diff -[^\n]*(?=\n(?:diff -|Only in )|\n?\Z)": "it has no lines, as for an empty file",
}
_NO_FILE = "/dev/null"
_ON_WHICH = "--tree auto looks for the release that the diff was made on"


class DiffPart(NamedTuple):
    """The part of a diff for one file: the names it gives, its 1-based line, and its hunks as a patch of ``x``."""

    old: str
    new: str
    line: int
    file: FileDiff


def changes(data: bytes, where: str, tree: Tree) -> ModEffect:
    """Return what a diff changes in a tree; noted is which file each path in it means.

    A file is the one whose path ends as the diff's does and in which every hunk has its place; a
    new one goes where its neighbours in the diff are. Raises ``Refused`` where no file is, or several
    are, and ``DiffError`` for what is no diff.
    """
    parts = tuple(_parts(data, where))
    if not parts:
        raise diff_forms.without_changes(data, where)
    if len(re.findall(rb"^@@ -", data, re.MULTILINE)) > sum(len(part.file.hunks) for part in parts):
        why = "a hunk belongs to no file: the '---' and '+++' lines before it are missing"
        raise DiffError(where, 1, why, hint="make the diff again with `git diff` or `diff -u`")
    view, paths = LayeredTree(tree), sorted(tree.paths("vllm"))
    meant: dict[str, str] = {}
    named = {part.old[1:] for part in parts}  # new ones last, but for those of a series' commits
    for part in sorted(parts, key=lambda part: part.old == _NO_FILE and part.new[1:] not in named):
        if part.old != _NO_FILE:
            change = _place(part, where, paths, view)
        else:
            path = _new_path(part, where, meant)
            if view.read(path) is not None:
                why = f"{where}:{part.line}: {part.new} is new, but {tree.spec} already has {path}"
                raise Refused(why, hint="--tree TREE names a vLLM without that file")
            after = b"".join(part.file.hunks[0].new) if part.file.hunks else b""
            change = FileChange(path=path, before=None, after=after)
        view.lay([change])
        if None in {change.before, change.after}:
            paths = sorted(view.paths("vllm"))
        meant[part.new if part.old == _NO_FILE else part.old] = change.path
    notes = [
        f"{named} in the diff was taken as {path}"
        for named, path in meant.items()
        if path not in (named, named.partition("/")[2])
    ]
    for pattern, why in _LEFT_OUT.items():
        lines = dict.fromkeys(re.findall(pattern, data, re.MULTILINE))
        notes += (f"left out `{line.decode(errors='replace')}`: {why}" for line in lines)
    effect = ModEffect(view.changes(), notes=tuple(notes))
    return compose.without_backups(effect, lambda path: tree.read(path) is not None)


def is_of(data: bytes, where: str, tree: Tree, *, alone: bool = True) -> bool:
    """Tell whether a tree has what each hunk of a diff expects, at the line that it states and, if ``alone``, in no other place.

    Of a series, the first commit on a file tells. Raises ``DiffError`` for what is no diff, or has no line to tell a tree by.
    """
    first = {(x.new if x.old == _NO_FILE else x.old)[1:]: x for x in [*_parts(data, where)][::-1]}
    expecting = [part for part in first.values() if any(hunk.old for hunk in part.file.hunks)]
    if not expecting:
        why = "the diff adds only new files, so nothing shows its release"
        raise DiffError(where, 1, why, hint="name its release: --tree pypi:VERSION")
    paths = sorted(tree.paths("vllm"))
    return all(
        any(
            _is_at_its_lines(part.file, tree.read(path) or b"")
            and not (alone and _patched(part.file, path, tree) is None)
            for path in _candidates(part.old, paths) or _candidates(part.new, paths)
        )
        for part in expecting
    )


def _is_at_its_lines(file: FileDiff, data: bytes) -> bool:
    rows = data.splitlines(keepends=True)
    places = ((one.stated - 1, one.old) for one in file.hunks)
    return all(tuple(rows[at : at + len(old)]) == old for at, old in places)


def _parts(data: bytes, where: str) -> Iterator[DiffPart]:
    """Take a diff apart. Raises ``DiffError`` for what is none, and where files are renamed or copied."""
    if len(data) > limits.PATCH:
        why = f"it has more than {limits.PATCH}"
        raise DiffError(where, 1, why, hint="remove files outside vllm/, or make several mods")
    diff_forms.refuse_foreign(data, where)
    data = data.removeprefix(diff_forms.BYTE_ORDER_MARK)
    for pattern, (why, hint) in _REFUSED.items():
        if found := re.search(pattern, data, re.MULTILINE):
            raise DiffError(where, data.count(b"\n", 0, found.start()) + 1, why, hint=hint)
    at = 0
    while match := _HEADER.search(data, at):
        blob = re.search(rb"^index (\w+)\.\.", data[at : match.start()], re.MULTILINE)
        end = _NEXT.search(data, match.end())
        at = end.start() if end else len(data)
        line = data.count(b"\n", 0, match.start()) + 1
        try:
            old, new, twice, kind = match.groups()
            if twice:
                old, new = b"/dev/null", twice[len(twice) // 2 + 1 :]
            old, new = (_name(name) for name in ((new, old) if kind == b"deleted" else (old, new)))
        except diff_names.BadName as error:
            raise DiffError(where, line, error.message, hint=error.hint) from error
        file = _read(old, new, line, data[match.end() : at], where)
        yield DiffPart(old, new, line, file._replace(old_blob=blob and blob[1].decode()))


def _name(raw: bytes) -> str:
    if diff_names.is_no_file(raw) or diff_names.is_epoch(raw) or raw.endswith(b"\t(nonexistent)"):
        return _NO_FILE
    name = diff_names.bare(raw).strip().decode("utf-8", "replace")
    return name if "/" in name else name.replace("\\", "/")  # of Windows


def _read(old: str, new: str, line: int, body: bytes, where: str) -> FileDiff:
    """Read the hunks below a header at a line as a patch of ``x``. Raises ``DiffError``."""
    old, new = (name if name == _NO_FILE else f"{x}/x" for name, x in ((old, "a"), (new, "b")))
    try:
        (file,) = diff.parse(f"--- {old}\n+++ {new}\n".encode() + body, where)
    except DiffError as error:
        raise DiffError(where, line + error.line - 1, error.why, hint=error.hint) from error
    return file


def _place(part: DiffPart, where: str, paths: Sequence[str], tree: Tree) -> FileChange:
    old, new = (_candidates(name, paths) for name in (part.old, part.new))
    candidates = [path for path in old if path in new] or sorted({*old, *new})
    texts = {path: tree.read(path) or b"" for path in candidates}
    stated = {path: text for path, text in texts.items() if _is_at_its_lines(part.file, text)}
    # whoever names a tree in which it stands at its lines says that it was made on that
    patched = {one: _patched(part.file, one, tree, base=stated.get(one)) for one in candidates}
    deletes = part.new == _NO_FILE  # all of it, or it is another file
    fitting = [one for one, after in patched.items() if after == b"" or (after and not deletes)]
    if len(fitting) == 1:
        (path,) = fitting
        after = None if deletes else patched[path]
        return FileChange(path=path, before=texts[path], after=after)
    at = f"{where}:{part.line}: {part.old}"
    named = ", ".join((fitting or candidates)[:4])
    if fitting:
        why = f"{at} could be any of {len(fitting)} files: {named}"
        raise Refused(why, hint="write the full path into the diff")
    if not candidates:
        raise Refused(f"{at}: {tree.spec} has no such file", hint=_ON_WHICH)
    hunks = part.file.hunks
    is_in = any(_patched(part.file.reversed(), path, tree) is not None for path in candidates)
    if is_in or not any(all(b"".join(one.old) in text for one in hunks) for text in texts.values()):
        also = " (or the change is already applied)" if is_in else ""
        why = f"{at}: the text that the diff changes is not in {named} of {tree.spec}{also}"
        raise Refused(why, hint=_ON_WHICH)
    why = "the changes have no context lines"
    if any(kind == " " for one in hunks for kind, _ in one.lines):
        why = f"the text that the diff changes is in {named} of {tree.spec}, but not at the stated lines"
    twins = any(text.count(b"".join(one.old)) > 1 for one in hunks for text in texts.values())
    on_which = "--tree pypi:VERSION names the release that the diff was made on"
    why = f"{at}: {why}, so the right place is uncertain"
    hint = f"{on_which if twins else _ON_WHICH}; or make the diff again with three lines of context: git diff -U3, or diff -u"
    raise Refused(why, hint=hint)


def _candidates(name: str, paths: Sequence[str]) -> list[str]:
    """Return the paths that end as a name does, of its longest end that any path has."""
    parts = _steps(name)
    tails = ("/".join(parts[start:]) for start in range(len(parts)))
    ending = ([path for path in paths if f"/{path}".endswith(f"/{tail}")] for tail in tails)
    return next(filter(None, ending), [])


def _patched(file: FileDiff, path: str, tree: Tree, *, base: bytes | None = None) -> bytes | None:
    """Return a file with every hunk in its one place, None if it has not got them all."""
    view = LayeredTree(tree)
    part = Part("", file._replace(old_path=path, new_path=path), path, at_base=True, base=base)
    return None if PatchingStep(part, view).put_in() else view.read(path)


def _new_path(part: DiffPart, where: str, meant: Mapping[str, str]) -> str:
    """Say where a new file goes: as far from the diff's path as the files beside it are."""
    names = _steps(part.new)
    extras = filter(None, (_difference(named, path) for named, path in meant.items()))
    paths = {"/".join([*prefix, *names[cut:]]) for cut, prefix in extras}
    paths = paths or set(re.findall(r"(?:^|/)(vllm/.+)$", part.new))
    if len(paths) == 1:
        return paths.pop()
    places = ", ".join(sorted(paths))
    what = f"could go to {places}" if places else "the diff does not say where the file goes"
    why = f"{where}:{part.line}: {part.new} is new, and {what}"
    raise Refused(why, hint="write its full path into the diff: vllm/…")


def _difference(name: str, place: str) -> tuple[int, list[str]] | None:
    """Return how many folders of a diff's path to leave out, and which to put in front."""
    named, path = _steps(name), place.split("/")
    backwards = zip(reversed(named), reversed(path), strict=False)
    same = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], backwards))
    return (len(named) - same, path[: len(path) - same]) if same else None


def _steps(name: str) -> list[str]:
    return [step for step in name.split("/") if step not in {"", ".", ".."}]
