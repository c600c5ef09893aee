"""A variant's changes to files, carried over to a tree, each to the file that it is in there."""

from collections.abc import Collection
from typing import NamedTuple

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding
from vllm_mods.base.tree import Tree
from vllm_mods.porting import follow, outline, structure, text


class FilePort(NamedTuple):
    """One file: ``path`` in the base, ``new_path`` and ``before`` in the target.

    ``before`` is None for a file that the mod makes, or that the target has not got; ``gone`` says that it need not.
    """

    path: str
    new_path: str
    before: bytes | None
    ported: structure.Ported
    gone: bool = False

    @property
    def carried(self) -> bool:
        """Whether the target has the change already."""
        return self.gone or (self.ported.text is not None and self.ported.text == self.before)


def port(
    change: FileChange, tree: Tree, base: Tree | None = None, *, made: Collection[str] = ()
) -> FilePort:
    """Carry a change of ``base`` over to a tree, beside the files that the mod has ``made``. Raises ``TreeError`` for a file that cannot be read."""
    path, data = change.path, tree.read(change.path)
    if change.after is None and data is None:
        old = outline.read(change.before or b"")
        defined = [one.name for one in old.inner] if old else []
        home = follow.home(tree, path, change.before or b"", defined, base) if defined else None
        if home is None or home[0].new in made:
            return FilePort(path, path, None, structure.Ported(b"", [], proof="file"), gone=True)
        message = f"the mod removes {path}, which is {home[0].new} in the target"
        problem = Finding(FindingCode.REMOVED, message, scope="")
        return FilePort(path, path, None, structure.Ported(None, [], (problem,)))
    if change.before is None or change.after is None:
        return _whole(change, data)
    names = _tops(change.before, change.after)
    if data is not None:
        done = _port(change, data, path)
        lost = (one.scope or "" for one in done.ported.problems if one.code == FindingCode.GONE)
        gone = {scope.split(".")[0] for scope in lost}
        if not gone or names - gone:
            return done  # whole, or partly in the file that it was in
    else:
        message = f"the target has no {path}, and its new place is unknown"
        problem = Finding(FindingCode.FILE_GONE, message, scope="")
        done = FilePort(path, path, None, structure.Ported(None, [], (problem,)))
    home = follow.home(tree, path, change.before, sorted(names), base) if names else None
    if home is None:
        return done
    followed, data = home
    done = _port(change, data, followed.new)
    return done._replace(ported=done.ported._replace(followed=(followed, *done.ported.followed)))


def _port(change: FileChange, data: bytes, path: str) -> FilePort:
    python = path.endswith((".py", ".pyi"))
    ported = text.port(change.before or b"", change.after or b"", data, python=python)
    return FilePort(change.path, path, data, ported)


def _whole(change: FileChange, data: bytes | None) -> FilePort:
    """Carry over a file that the mod makes or removes."""
    path = change.path
    if data in {change.before, change.after}:
        ported = structure.Ported(change.after or b"", [], proof="file")
    else:
        code = FindingCode.BOTH_ADD if change.before is None else FindingCode.REMOVED
        what = "makes" if change.before is None else "removes"
        message = f"the mod {what} {path}, but the target has it with different contents"
        ported = structure.Ported(None, [], (Finding(code, message, scope=""),))
    return FilePort(path, path, data, ported)


def _tops(before: bytes, after: bytes) -> set[str]:
    old, new = outline.read(before), outline.read(after)
    if old is None or new is None:
        return set()
    return {scope.split(".")[0] for scope in structure.touched(old, new) if scope}
