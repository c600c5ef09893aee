"""A tree with some files replaced, as a folder of links for programs that read files; real folders stand on the way to what is replaced."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path

from vllm_mods.base.tree import Tree

PYTHON = (".py", ".pyi")
"""How the names of files end that a type checker reads."""

# Their ``__getattr__`` gives the names of a module of torch, which a stub knows, and the variables that are declared there.
_LOOKED_UP = {
    "vllm/platforms/interface.py": (b"class Platform:", b"class Platform(torch.Device):"),
    "vllm/envs.py": (b"", b""),
}
_PREFIX, _NEW = "vllm-mods-fit-", 60  # seconds: one that is newer may not be locked yet
_MEMORY = "/dev/shm"  # noqa: S108  (a folder is made in it)


class Overlay:
    """A folder that shows ``vllm`` of a tree, and files in place of some of its own."""

    def __init__(self, tree: Tree) -> None:
        own = self._temporary(_in_memory(32 << 20 if tree.root else 1 << 30))
        self._root = os.path.abspath(tree.root or f"{own}/tree")
        self._folder = f"{own}/shown"
        if tree.root is None:
            for path in tree.paths("vllm"):
                if path.endswith(PYTHON):
                    _write(os.path.join(self._root, path), tree.read(path))

    def show(self, files: dict[str, bytes | None]) -> str:
        """Return the folder with these files in place of the tree's, and no other ones."""
        shutil.rmtree(self._folder, ignore_errors=True)
        os.mkdir(self._folder, 0o700)
        self._link("vllm")
        for path, data in files.items():
            for folder in reversed(Path(path).parents[:-1]):
                self._open(str(folder))
            Path(self._folder, path).unlink(missing_ok=True)
            _write(os.path.join(self._folder, path), data)
        return self._folder

    def _temporary(self, place: str | None) -> str:
        """Make a folder that is gone with this, with the process, or when another is made after the process was killed."""
        for left in Path(place).glob(f"{_PREFIX}*") if place else ():
            with contextlib.suppress(OSError):  # another user's, or in use
                if time.time() - left.stat().st_mtime > _NEW:
                    os.close(_locked(left))
                    shutil.rmtree(left)
        # No `TemporaryDirectory`: before Python 3.11.8, where it may not remove a link, it changes the mode of
        # the file behind it.
        folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
        weakref.finalize(self, os.close, _locked(folder))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _open(self, path: str) -> None:
        """Make a real folder of a link to one, or of nothing, with links to what is in the tree's."""
        folder = Path(self._folder, path)
        if folder.is_dir() and not folder.is_symlink():
            return
        folder.unlink(missing_ok=True)
        folder.mkdir()
        source = os.path.join(self._root, path)
        for name in os.listdir(source) if os.path.isdir(source) else ():
            # there are a thousand links as it is; folders have no dot
            if name.endswith(PYTHON) or ("." not in name and name != "__pycache__"):
                self._link(f"{path}/{name}")

    def _link(self, path: str) -> None:
        source = os.path.join(self._root, path)
        if os.path.exists(source):
            os.symlink(source, os.path.join(self._folder, path))


class LaidOut:
    """Folders that show the last two trees."""

    def __init__(self) -> None:
        self._overlays: list[tuple[Tree, Overlay]] = []

    def show(self, tree: Tree, *layers: Mapping[str, bytes | None]) -> str:
        """Return a folder with the Python of a tree below layers of files, of which ``None`` takes one away, until this is asked again. Raises ``TreeError``."""
        lowest, below = tree.layers()
        shown = python_of(below, *layers)
        for path, heads in _LOOKED_UP.items():
            if data := shown.get(path, lowest.read(path)):
                shown[path] = data.replace(*heads).replace(b"__getattr__", b"_looked_up_")
        return self._overlay(lowest).show(shown)

    def close(self) -> None:
        """Remove the folders; others are made if this is asked again."""
        self._overlays.clear()

    def _overlay(self, tree: Tree) -> Overlay:
        for known, overlay in self._overlays:
            # the same release opened twice is two trees of one identity
            if known is tree or (tree.identity and known.identity == tree.identity):
                return overlay
        self._overlays.append((tree, Overlay(tree)))
        del self._overlays[:-2]
        return self._overlays[-1][1]


def load_python(tree: Tree) -> None:
    """Have all Python of vLLM of a remote tree here, of which each file would cost a round trip. Raises ``TreeError``."""
    if tree.remote:
        tree.load([path for path in tree.paths("vllm") if path.endswith(PYTHON)])


def python_of(*layers: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Return the Python of layers of files, each over those before it."""
    return {p: data for layer in layers for p, data in layer.items() if p.endswith(PYTHON)}


def _in_memory(room: int) -> str | None:
    """Return where a file costs a tenth of one on a disk, unless ``TMPDIR`` names a place, or so many bytes are not free."""
    has_room = os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= room
    return _MEMORY if has_room and "TMPDIR" not in os.environ else None


def _locked(folder: str | Path) -> int:
    """Lock a folder as long as a file is open, and return that; ``OSError`` if somebody else has it."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def _write(path: str, data: bytes | None) -> None:
    if data is not None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_bytes(data)
