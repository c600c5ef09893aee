"""Trees that mod.lock vouches for: hunks go where it says, and the result has to be what it says.

Nothing is parsed here: the hashes of the files, and of those beside them that the fit looked at,
say that somebody has done that before.
"""

from collections.abc import Iterator

from vllm_mods.base.digest import sha256
from vllm_mods.base.model import FileChange, PlacedHunk
from vllm_mods.base.tree import Tree
from vllm_mods.formats.mod_lock import Lock, LockedTree
from vllm_mods.placing.candidates import stands
from vllm_mods.placing.target import Target, splice
from vllm_mods.planning import part_step
from vllm_mods.planning.layered_tree import LayeredTree

WORKSPACE = ".vllm-mods/templates"
"""Where chat templates go unless the caller names a workspace, and so what a lock records."""


def states(locked: Lock, view: LayeredTree, workspace: str) -> Iterator[LockedTree]:
    """Yield every recorded state whose touched files, before the mod, are those of the tree: those of its version first."""
    for tree in sorted(locked.trees, key=lambda tree: view.version not in tree.vllm):
        wanted = ((_here(file.path, workspace), file.before) for file in tree.files)
        # of Python, only what a type checker was asked of proves anything
        proven = tree.proof or not any(file.path.endswith(".py") for file in tree.files)
        if proven and tree.files and all(sha256(view.read(path)) == was for path, was in wanted):
            yield tree


def witness(beside: tuple[str, ...], view: LayeredTree) -> str:
    """Return one digest for the files that a fit rested on: another one makes it no proof."""
    lines = (f"{path} {sha256(view.read(path))}\n" for path in beside)
    return sha256("".join(lines).encode()) or ""


def place(
    tree: LockedTree, parts: tuple[part_step.Part, ...], view: Tree, workspace: str
) -> tuple[tuple[FileChange, ...], tuple[PlacedHunk, ...]] | None:
    """Put a variant's parts where the lock says.

    None if something is not as the lock says, or is more than a change of lines: then the long way decides.
    """
    result = LayeredTree(view)
    lines = {(hunk.patch, hunk.path, hunk.number): hunk for hunk in tree.hunks}
    placed: list[PlacedHunk] = []
    for part in parts:
        file = part.diff
        if part.other is not None:
            return None
        if file is None:
            before = result.read(part.path)
            mode = part_step.NEW_FILE_MODE if before is None else None
            result.lay([FileChange(path=part.path, before=before, after=part.whole, mode=mode)])
            continue
        data = result.read(file.path)
        if file.old_path != file.new_path or data is None:
            return None
        target = Target(data, None)
        spots = []
        for hunk in file.hunks:
            known = lines.get((part.source, file.path, hunk.number))
            if known is None or not stands(hunk, target, known.line):
                return None
            spots.append((known.line, hunk))
            placed.append(part_step.placed_hunk(part, hunk, known.line, known.scope, "file"))
        after = splice(target.lines, spots)
        if after is None:
            return None
        result.lay([FileChange(path=file.path, before=data, after=after, mode=file.mode)])
    changes = result.changes()
    expected = {_here(file.path, workspace): file.after for file in tree.files}
    if {change.path: sha256(change.after) for change in changes} != expected:
        return None
    return changes, tuple(placed)


def _here(path: str, workspace: str) -> str:
    """Turn a recorded template path into the one of this call's workspace."""
    prefix = f"{WORKSPACE}/"
    return f"{workspace}/{path[len(prefix) :]}" if path.startswith(prefix) else path
