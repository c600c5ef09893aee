"""Files put into a library, all of them or none, also where it is killed in between.

What is new is laid out in a folder of its own beside what it replaces, and moved from there when it is whole.
Who is killed before that leaves a folder that the next run removes, and after that one that it finishes.
"""

import contextlib
import fcntl
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Set as AbstractSet

from vllm_mods.base.errors import Refused, refusing_to_write
from vllm_mods.base.output import fill_folder, write_below
from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.library import catalog, mod_folder, reading

LAID_OUT, READY = ".vllm-mods.new", ".vllm-mods.ready"
_LAST = (mod_folder.MANIFEST, mod_folder.LOCK)  # they name the others


def replace(root: str, files: Mapping[str, bytes], *, new: AbstractSet[str] = frozenset()) -> None:
    """Put files into a library, by their paths in it; those that are ``new`` may not be there.

    Raises ``Refused``, with all as it was, where one of these is there or something cannot be written.
    """
    with refusing_to_write(root), alone(root):
        _recover(root)
        for name in files:
            if not is_plain_path(name):
                raise Refused(f"{name!r} is outside {root}; nothing was written", hint=f"ls {root}")
        for name in sorted(new):
            if os.path.lexists(os.path.join(root, name)):
                why = f"{root}/{name} already exists; nothing was written"
                raise Refused(why, hint=f"ls {root}/{name}")
        ready = os.path.join(root, READY)
        fill_folder(os.path.join(root, LAID_OUT), files, ready)
        _move(root, ready)


def recover(root: str) -> None:
    """Finish or remove what a killed run left in a library. Raises ``Refused`` for what none has left."""
    if any(os.path.lexists(os.path.join(root, name)) for name in (LAID_OUT, READY)):
        with refusing_to_write(root), alone(root):
            _recover(root)


def folder(place: str, files: Mapping[str, bytes]) -> None:
    """Write a new folder, whole or not at all. Raises ``Refused`` if it is there, or cannot be written."""
    parent, name = os.path.split(os.path.abspath(place))
    if os.path.lexists(place):
        why = f"{place} already exists; nothing was written"
        raise Refused(why, hint=f"rm -r {place}, or choose another name")
    staged = os.path.join(parent, f".{name}.new")
    with refusing_to_write(place):
        os.makedirs(parent, exist_ok=True)
        if os.path.lexists(staged):
            check_own(staged)
            with alone(staged):
                shutil.rmtree(staged)
        os.mkdir(staged)
        with alone(staged):
            fill_folder(staged, files, place)


def _recover(root: str) -> None:
    staged, ready = os.path.join(root, LAID_OUT), os.path.join(root, READY)
    if os.path.lexists(staged):
        check_own(staged)
        shutil.rmtree(staged)
    if os.path.lexists(ready):
        check_own(ready)
        _move(root, ready)


def _move(root: str, ready: str) -> None:
    """Move every file to its place; put back what was there if one cannot be."""
    names = list(reading.paths_below(ready))
    before: dict[str, bytes | None] = {}
    new_folders: list[str] = []
    try:
        for name in sorted(names, key=lambda name: (os.path.basename(name) in _LAST, name)):
            new_folders += _make_folders(root, ready, name)
            before[name] = reading.read(os.path.join(root, name), root)
            os.replace(os.path.join(ready, name), os.path.join(root, name))
    except BaseException:
        for name, data in before.items():
            place = os.path.join(root, name)
            if os.path.lexists(os.path.join(ready, name)):
                continue  # it was not moved
            if data is not None:
                write_below(ready, name, data)
                os.replace(os.path.join(ready, name), place)
            elif os.path.lexists(place):
                os.unlink(place)
        for above in reversed(new_folders):
            with contextlib.suppress(OSError):
                os.rmdir(above)
        raise
    finally:
        shutil.rmtree(ready)


def _make_folders(root: str, ready: str, name: str) -> Iterator[str]:
    """Make the folders that a file is moved into; yield each that was not there.

    Refuse a file that is none, or would come to lie where no library has files.
    """
    parts = name.split("/")
    above = [os.path.join(root, *parts[:n]) for n in range(1, len(parts))]
    is_file = stat.S_ISREG(os.lstat(os.path.join(ready, name)).st_mode)
    if parts[0] not in catalog.PARTS or not is_file or any(map(os.path.islink, above)):
        raise _not_ours(os.path.join(ready, name))
    for folder in above:
        if not os.path.isdir(folder):
            os.mkdir(folder)
            yield folder


def check_own(place: str) -> None:
    """Refuse a folder that is none, or somebody else's."""
    info = os.lstat(place)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
        raise _not_ours(place)


def _not_ours(place: str) -> Refused:
    return Refused(
        f"{place} was not created by vllm-mods; nothing was written",
        hint=f"ls -ld {place}  # who created it?",
    )


@contextlib.contextmanager
def alone(place: str, *, waits: bool = False) -> Iterator[None]:
    """Hold a folder, so that no other run changes it, or takes what is in it for left over."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            why = f"another vllm-mods is writing to {place}; nothing was written"
            raise Refused(why, hint="wait until it has finished") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)
