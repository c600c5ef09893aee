"""A thin copy of an installed vLLM with mods in it: what is installed stays as it is.

Folders and files of the copy are real, for vLLM follows links of its own files and would end up in the installation;
only what is big and no source is a link. The same mods on the same files are at the same path, which vLLM's compile
cache has in its keys.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import shlex
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from vllm_mods.applying import carry_out
from vllm_mods.applying.ground import Terms, check_mods
from vllm_mods.applying.opening import check_finished, open_tree
from vllm_mods.base.cache import cache_folder
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused, TreeError, UsageError, refusing, refusing_to_write
from vllm_mods.base.model import Mod, Plan
from vllm_mods.base.tree import Folder
from vllm_mods.base.versions import parse
from vllm_mods.formats import receipt, tree_names
from vllm_mods.library import trust
from vllm_mods.library.writing import check_own
from vllm_mods.site import transaction
from vllm_mods.site.transitions import Transition
from vllm_mods.trees import pip
from vllm_mods.trees.folder import MARKER, FolderTree
from vllm_mods.trees.receipt_tree import receipt_of

_BIG = 1 << 20
_KEPT_SECONDS = 7 * 86400  # a copy that nobody uses


class Shadow(NamedTuple):
    """A copy of the site root ``of`` at ``root``, and the ``plan`` of its mods; in use as long as anybody holds the ``lock``."""

    of: str
    root: str
    plan: Plan
    notes: tuple[str, ...]
    lock: int

    @property
    def environ(self) -> dict[str, str]:
        """The environment in which Python imports vLLM from the copy: this one's, and what the mods ask for beside it."""
        wanted = dict(pair for mod_plan in self.plan.mods for pair in mod_plan.mod.env)
        behind = filter(None, (os.environ.get("PYTHONPATH"),))
        return {**wanted, **os.environ, "PYTHONPATH": os.pathsep.join((self.root, *behind))}


@contextlib.contextmanager
def shadow(
    mods: Sequence[Mod], target: Folder, *, planned: Callable[[Plan], object] | None = None
) -> Iterator[Shadow]:
    """Give a thin copy of an installed vLLM with mods in it; the installation is only read.

    ``target`` is that of ``apply``, or a release (``pypi:VERSION``), which pip unpacks into the cache. ``planned`` is
    called with the plan. The copy lies in the cache, and is used again as long as the mods and the installation are
    the same. Raises as ``apply`` does, and ``TreeError`` for a release that cannot be had.

    >>> with vm.shadow(vm.Library("library").mods("fast"), "site-packages") as copy:
    ...     vm.status(copy.root).ok, copy.environ["PYTHONPATH"].startswith(copy.root)
    (True, True)
    >>> vm.status("site-packages").mods
    ()
    """
    check_mods(mods)
    trust.demand(mods)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        kind, _, version = os.fspath(target).partition(":")
        if kind == "pypi" and not os.path.exists(target):
            unpack = functools.partial(_unpack, version)
            target, lock = stack.enter_context(_in_cache(f"vllm-{_plain(version)}", unpack))
            os.set_inheritable(lock, True)  # links of the copy lead there
        with refusing():
            tree, state = open_tree(target, None, recovering=None)
            check_finished(tree, state, "with")
            plan, transition = carry_out.decide(mods, tree, state, notes, Terms(planned=planned))
            names = _copied(tree, transition)
            key = _key(tree.root, names, transition)
        make = functools.partial(_make, tree, names, transition)
        root, lock = stack.enter_context(_in_cache(key, make))
        yield Shadow(tree.root, root, plan, tuple(notes), lock)


@contextlib.contextmanager
def _in_cache(name: str, make: Callable[[str], object]) -> Iterator[tuple[str, int]]:
    """Give a folder of the cache, which ``make`` makes where it is not there yet, and the lock that keeps it."""
    folder = os.path.join(cache_folder(os.environ), "shadow")
    root = os.path.join(folder, name)
    with contextlib.ExitStack() as stack:
        with refusing_to_write(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            check_own(folder)
            _remove_unused(folder)
            lock = os.open(f"{root}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_SH if os.path.isdir(root) else fcntl.LOCK_EX)
            os.utime(lock)
            if not os.path.isdir(root):
                shutil.rmtree(f"{root}.new", ignore_errors=True)  # of a run that was killed
                make(f"{root}.new")
                os.rename(f"{root}.new", root)
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield root, lock


def _plain(version: str) -> str:
    """Return a version as an index has it. Raises ``UsageError``."""
    if (known := parse(version)) is None:
        why = f"pypi:{version}: this is not the version of a release"
        raise UsageError(why, hint="--target pypi:VERSION  # such as pypi:0.21.0")
    return str(known)


def _unpack(version: str, place: str) -> None:
    """Have pip unpack a release, without what it depends on: the command brings that."""
    words = ("--no-compile", "--no-user", "--ignore-requires-python", "--target", place)
    pip.run("install", *words, f"vllm=={version}", what=f"vllm {version}")
    if not os.path.isfile(f"{place}/{MARKER}"):
        why = f"pip unpacked vllm {version} elsewhere, because of one of your pip settings"
        raise TreeError(why, hint="pip config list; env | grep PIP_")


def _copied(tree: FolderTree, transition: Transition | None) -> list[str]:
    """Return what of the site root is copied: vLLM, our folder and whatever else changes, with their distributions."""
    changes = transition.changes if transition else ()
    paths = [MARKER, *(change.path for change in changes)]
    if other := [path for path in paths if path.startswith("/") or path.endswith(".pth")]:
        why = f"the mods change {other[0]}, which Python does not read from a copy of {tree.root}; nothing was written"
        raise Refused(why, hint=f"vllm-mods apply MOD --target {tree.root}")
    owners = {tree.owner(path) for path in paths}
    infos = (name for name in tree.folders() if tree_names.dist_info(name) in owners)
    names = {receipt.STATE, *infos, *(path.partition("/")[0] for path in paths)}
    return sorted(name for name in names if os.path.lexists(f"{tree.root}/{name}"))


def _key(root: str, names: Sequence[str], transition: Transition | None) -> str:
    """Return a name for the copy, which follows from the files as they are and from what becomes of them."""
    facts: list[object] = [root]
    if transition is not None:
        results = ((change.path, sha256(change.after)) for change in transition.changes)
        facts += [transition.mods, *results]
    for name in names:
        for folder, folders, files in os.walk(f"{root}/{name}"):
            folders[:] = sorted(set(folders) - {"__pycache__"})
            for path in (os.path.join(folder, file) for file in sorted(files)):
                info = os.lstat(path)
                facts.append((path, info.st_size, info.st_mtime_ns, info.st_mode))
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def _make(
    tree: FolderTree, names: Sequence[str], transition: Transition | None, place: str
) -> None:
    os.mkdir(place)
    changes = transition.changes if transition else ()
    copy = functools.partial(_copy_file, {f"{tree.root}/{change.path}" for change in changes})
    for name in names:
        source, target = f"{tree.root}/{name}", f"{place}/{name}"
        if not os.path.isdir(source):
            copy(source, target)
            continue
        try:
            shutil.copytree(source, target, symlinks=True, copy_function=copy)
        except shutil.Error as error:
            file, _, why = error.args[0][0]
            raise Refused(f"{file} cannot be copied: {why}", hint=f"ls -l {file}") from error
    for name in os.listdir(tree.root):
        if name.startswith("vllm") and name.endswith(".libs"):  # where vLLM's binaries look
            os.symlink(f"{tree.root}/{name}", f"{place}/{name}")
    for folder, _, _ in os.walk(place):
        os.chmod(folder, 0o700)
    if transition is not None:
        transaction.commit(place, transition)


def _copy_file(changed: Collection[str], source: str, target: str) -> None:
    is_written = source.endswith((".py", ".pyc")) or source in changed
    if not is_written and os.path.getsize(source) >= _BIG:
        os.symlink(source, target)
        return
    shutil.copy2(source, target)
    os.chmod(target, os.stat(target).st_mode | 0o600)


def _remove_unused(folder: str) -> None:
    for name in os.listdir(folder):
        path = f"{folder}/{name}"
        if name.endswith(".lock") and time.time() - os.stat(path).st_mtime > _KEPT_SECONDS:
            with open(path, "rb") as lock, contextlib.suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for ending in ("", ".new"):
                    shutil.rmtree(path.removesuffix(".lock") + ending, ignore_errors=True)
                os.unlink(path)


class UsedCopy(NamedTuple):
    """A copy at ``root`` that is in use, its ``mods``, and the process and command that asked for it, if it still runs."""

    root: str
    mods: tuple[str, ...]
    pid: int
    command: str


def used_copies() -> Iterator[UsedCopy]:
    """Yield the copies that are in use, once for each that asked for one."""
    held: list[list[str]] = []
    inode_of: dict[str, int] = {}
    with contextlib.suppress(OSError), open("/proc/locks") as locks:
        held = [line.split()[-4:-2] for line in locks]  # proc_locks(5): a process, and a file
    with contextlib.suppress(OSError), os.scandir(f"{cache_folder(os.environ)}/shadow") as entries:
        inode_of = {entry.path: entry.inode() for entry in entries if entry.name.endswith(".lock")}
    for lock, inode in sorted(inode_of.items()):
        root = lock.removesuffix(".lock")
        pids = [int(pid) for pid, file in held if file.endswith(f":{inode}")]
        if pids and (applied := receipt_of(FolderTree(root))):
            mods = tuple(f"{mod.name}@{mod.version}" for mod in applied.mods)
            yield from (UsedCopy(root, mods, pid, _command(pid)) for pid in pids)


def _command(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
        return shlex.join(words.read().decode("utf-8", "replace").split("\0")[:-1])
    return ""
