"""What ``apply`` would write into the vLLM of an image, as entries of a layer.

The few files that a plan is about are laid out in a scratch folder as the image has them, and the
very code that drafts an ``apply`` drafts on them: receipt, originals, RECORD and stale bytecode come
out as they would in a container, and what ``apply`` refuses is refused here.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vllm_mods.base.errors import Refused
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats import receipt
from vllm_mods.images.model import DIR, FILE, LINK, Base, children
from vllm_mods.site import bytecode, site
from vllm_mods.site.staging import draft
from vllm_mods.site.step_list import NEW_FILE_MODE, Draft, Op
from vllm_mods.site.transitions import Transition


def content(
    base: Base,
    site_root: str,
    applied: receipt.Receipt | None,
    transition: Transition,
    *,
    epoch: int,
    tool: str = receipt.TOOL,
) -> tuple[list[TarEntry], list[str]]:
    """Return what a transition of the tree at ``site_root`` (resolved, no slash in front) comes to.

    That is the new files and folders, with everything but what their parents decide, and the files of the
    base that a whiteout hides; paths are from the image's root. ``applied`` is the receipt that the tree has,
    ``epoch`` the mtime of every file that is written, ``tool`` who the receipt says has written it. Absolute
    paths of the transition are the image's, for chat templates in a workspace. Raises ``Refused`` as
    ``apply`` does, with places as the image has them.
    """
    scratch = os.path.realpath(tempfile.mkdtemp(prefix="vllm-mods-"))
    try:
        piece = _Slice(base, scratch, site_root, epoch, tool)
        piece.lay(transition, applied)
        moved = _inside(transition, scratch)
        outside = {os.path.dirname(one.path) for one in moved.changes if one.path.startswith("/")}
        where = site.Site(root=f"{scratch}/{site_root}", workspaces=tuple(sorted(outside)))
        drafted = draft(where, applied and _moved(applied, lambda path: _in(path, scratch)), moved)
        return piece.content(drafted)
    except Refused as error:
        # Places in the scratch folder mean nothing to anybody.
        hint = error.hint and error.hint.replace(scratch, f"{base.reference}:")
        raise Refused(error.message.replace(scratch, f"{base.reference}:"), hint=hint) from error
    except OSError as error:
        why = f"{scratch}: {error.strerror}; nothing was built"
        hint = "TMPDIR=/another/disk vllm-mods build …  # the folder for temporary files"
        raise Refused(why, hint=hint) from error
    finally:
        _sweep(scratch)


@dataclass
class _Slice:
    """The part of an image that an apply looks at, laid out in a folder, and what a draft on it does to the image."""

    base: Base
    scratch: str
    site_root: str
    epoch: int
    tool: str
    modes: dict[str, int] = field(default_factory=dict)

    def lay(self, transition: Transition, applied: receipt.Receipt | None) -> None:
        self.folder(self.site_root)
        self.below(f"{self.site_root}/{receipt.STATE}")
        for file in applied.files if applied is not None else ():
            if file.kind == receipt.FOLDER:  # whether it will be empty depends on all that is in it
                self.below(f"{self.site_root}/{file.path}")
            elif file.kind == receipt.RECORD:
                self.file(f"{self.site_root}/{file.path}")
        for change in transition.changes:
            if ".." not in change.path.split("/"):  # the draft refuses it without a look
                self.target(change.path)
        for folder in _dist_infos(self.base, self.site_root, transition):
            self.file(f"{folder}/RECORD")
        # Last, inner ones first: nothing could be put into a folder without the write bit.
        for path, mode in sorted(self.modes.items(), reverse=True):
            os.chmod(f"{self.scratch}/{path}", mode)

    def target(self, path: str) -> None:
        """Lay out a file that is to be changed, and the bytecode of it."""
        if path.startswith("/"):
            self.file(path[1:])
            return
        self.file(f"{self.site_root}/{path}")
        if path.endswith(".py"):
            for entry in children(self.base, f"{self.site_root}/{bytecode.cache(path)}"):
                if bytecode.is_of(entry.path.removeprefix(f"{self.site_root}/"), path):
                    self.file(entry.path)

    def below(self, folder: str) -> None:
        if self.folder(folder):
            for entry in self.base.paths(folder):
                self.file(entry.path)

    def folder(self, path: str) -> bool:
        """Lay out a folder and those around it; False where the image has none at that path."""
        if not path or path in self.modes:
            return True
        if not self.folder(os.path.dirname(path)):
            return False
        entry = self.base.entry(path)
        if entry is None or entry.kind != DIR:
            self.file(path)  # for the draft to refuse, as it does on a disk
            return False
        os.mkdir(f"{self.scratch}/{path}")
        self.modes[path] = entry.mode
        return True

    def file(self, path: str) -> None:
        entry = self.base.entry(path)
        place = f"{self.scratch}/{path}"
        if not self.folder(os.path.dirname(path)) or entry is None or os.path.lexists(place):
            return
        if entry.kind == LINK:
            os.symlink(entry.target, place)
        elif entry.kind == DIR:
            self.folder(path)
        elif entry.kind == FILE:
            with open(place, "wb") as file:
                file.write(self.base.read(path) or b"")
            os.chmod(place, entry.mode)  # last: whoever writes, and is not root, loses setuid
            os.utime(place, (entry.mtime, entry.mtime))
        else:
            os.mkfifo(place)

    def content(self, drafted: Draft) -> tuple[list[TarEntry], list[str]]:
        made = map(self.place, drafted.journal.made)
        nodes = [TarEntry(path, None, 0o755, self.epoch) for path in made]
        nodes += [self.node(op, drafted.receipt) for op in drafted.ops if not op.removes]
        gone = [self.place(op.step.path) for op in drafted.ops if op.removes]
        gone += [self.place(folder.path) for folder in drafted.journal.gone]
        return nodes, gone

    def node(self, op: Op, final: receipt.Receipt | None) -> TarEntry:
        path = self.place(op.step.path)
        if op.step.path == receipt.RECEIPT and final is not None:
            moved = _moved(final, lambda path: path.removeprefix(self.scratch))
            files = tuple(sorted(moved.files, key=lambda file: file.path))
            data = receipt.dump(moved._replace(files=files, tool=self.tool))
            return TarEntry(path, data, NEW_FILE_MODE, self.epoch)
        if op.source is None:
            mode = NEW_FILE_MODE if op.mode is None else op.mode
            return TarEntry(path, op.data or b"", mode, self.epoch)
        # An original: the file itself, with its mode, owner and time.
        info = os.lstat(op.source)
        source = self.base.entry(self.place(op.source))
        data = site.read(op.source) or b""
        owner = None if source is None else (source.uid, source.gid)
        return TarEntry(path, data, stat.S_IMODE(info.st_mode), int(info.st_mtime), owner)

    def place(self, path: str) -> str:
        """Return where a path of the draft is in the image."""
        path = path.replace(f"@workspace{self.scratch}/", "@workspace/")
        if path.startswith(f"{self.scratch}/"):
            return path[len(self.scratch) + 1 :]
        return f"{self.site_root}/{path}"


def _dist_infos(base: Base, site_root: str, transition: Transition) -> Iterator[str]:
    """Yield the dist-infos whose RECORD may list what is written.

    vLLM's own for what is in vllm/: an engine lists a folder by sending all that is in it, which for
    a site root is gigabytes.
    """
    own = f"{site_root}/vllm-{transition.vllm}.dist-info"
    tops = {change.path.split("/", 1)[0] for change in transition.changes} - {"", receipt.STATE}
    if tops <= {"vllm"} and base.entry(f"{own}/RECORD") is not None:
        yield own
        return
    for entry in children(base, site_root):
        if entry.path.endswith(".dist-info"):
            yield entry.path


def _inside(transition: Transition, scratch: str) -> Transition:
    changes = (one._replace(path=_in(one.path, scratch)) for one in transition.changes)
    restored = frozenset(_in(path, scratch) for path in transition.restored)
    return transition._replace(changes=tuple(changes), restored=restored)


def _moved(applied: receipt.Receipt, place: Callable[[str], str]) -> receipt.Receipt:
    files = tuple(file._replace(path=place(file.path)) for file in applied.files)
    return applied._replace(files=files, workspace=applied.workspace and place(applied.workspace))


def _in(path: str, scratch: str) -> str:
    return scratch + path if path.startswith("/") else path


def _sweep(scratch: str) -> None:
    """Remove the slice, folders that the image has without the write bit included."""
    for folder, names, _files in os.walk(scratch):
        for name in names:
            if not os.path.islink(f"{folder}/{name}"):
                os.chmod(f"{folder}/{name}", 0o700)
    shutil.rmtree(scratch)
