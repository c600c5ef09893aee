"""Files of a target tree, looked at and written without ever following a link.

The small steps that the transaction is made of. Every path is relative to the site root,
or absolute and inside a workspace.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import Refused
from vllm_mods.base.untrusted import is_plain_path
from vllm_mods.formats import tree_names
from vllm_mods.formats.receipt import STATE, TEMPLATES

# What `link` answers where there are no hard links, not across these two places, or not for us.
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is opened that must not be there yet."""


class Site(NamedTuple):
    """The resolved site root, and the absolute folders outside it that may be written."""

    root: str
    workspaces: tuple[str, ...] = ()

    def absolute(self, path: str) -> str:
        """Return the absolute form of a path of the tree; ``""`` is the root."""
        return path if path.startswith("/") else f"{self.root}/{path}" if path else self.root


class Look(NamedTuple):
    """Looks at paths of one site; folders are remembered, and so are those that are not there."""

    site: Site
    folders: dict[str, os.stat_result | None]

    def file(self, path: str) -> os.stat_result | None:
        """Return a file's status, None if there is none.

        Raises ``Refused`` if the path leaves the tree, leads through a symbolic link or
        through a file, or is not a regular file.
        """
        parent, name = self.parent(path)
        info = None if parent is None else status(name)
        if info is None:
            return None
        if stat.S_ISLNK(info.st_mode):
            raise _link(path, path, name)
        if not stat.S_ISREG(info.st_mode):
            what = "a folder" if stat.S_ISDIR(info.st_mode) else "not a regular file"
            raise Refused(f"{path} is {what}; nothing was changed", hint=f"ls -la {name}")
        return info

    def mode(self, path: str) -> int | None:
        """Return the permission bits of a regular file, None if there is none."""
        info = self.file(path)
        return None if info is None else stat.S_IMODE(info.st_mode)

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a regular file, None if there is none."""
        return None if self.file(path) is None else read(self.site.absolute(path))

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if it is not there."""
        is_there = self.parent(f"{folder}/x")[0] is not None
        return sorted(os.listdir(self.site.absolute(folder))) if is_there else []

    def parent(self, path: str) -> tuple[os.stat_result | None, str]:
        """Return the status of the folder a path is in, and the absolute path."""
        base, parts = _split(self.site, path)
        if base not in self.folders:
            self.folders[base] = os.stat(base)  # the user named it: it may well be a link
        place, info = base, self.folders[base]
        for part in parts[:-1]:
            place = f"{place}/{part}"
            info = self._folder(place, path)
            if info is None:
                break
        return info, f"{base}/{'/'.join(parts)}"

    def above(self, path: str) -> tuple[str, os.stat_result]:
        """Return the nearest folder around a path that is there, by its absolute path, and its status."""
        for folder in parents(path):
            place = self.site.absolute(folder)
            if place not in self.folders:
                self.folders[place] = status(place)
            if (info := self.folders[place]) is not None:
                return place, info
        root = "/" if path.startswith("/") else self.site.root
        return root, os.stat(root)

    def missing(self, path: str) -> tuple[str, ...]:
        """Return the folders that have to be made for a file, outermost first."""
        absolute, look = self.site.absolute, self._folder
        gone = takewhile(lambda folder: look(absolute(folder), path) is None, parents(path))
        return tuple(gone)[::-1]

    def _folder(self, place: str, path: str) -> os.stat_result | None:
        if place not in self.folders:
            info = status(place)
            if info is not None and stat.S_ISLNK(info.st_mode):
                raise _link(path, place.removeprefix(f"{self.site.root}/"), place)
            if info is not None and not stat.S_ISDIR(info.st_mode):
                why = f"{path}: {place} is a file, not a folder; nothing was changed"
                raise Refused(why, hint=f"ls -la {place}")
            self.folders[place] = info
        return self.folders[place]


def parents(path: str) -> Iterator[str]:
    """Yield the folders that a path is in, inner ones first, without the root."""
    while (path := os.path.dirname(path)) not in {"", "/"}:
        yield path


def status(path: str) -> os.stat_result | None:
    """Return the status of what lies at an absolute path, links not followed, None if nothing."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def read(path: str) -> bytes | None:
    """Return the bytes of a regular file at an absolute path, None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > limits.UNPACKED_FILE:
            why = f"{path} has more than {limits.UNPACKED_FILE}, the limit for a file of a tree"
            raise Refused(why, hint=f"ls -la {path}")
        return file.read(limits.UNPACKED_FILE)


def digest(path: str) -> str | None:
    """Return the sha256 of a regular file at an absolute path, None if there is none."""
    return sha256(read(path))


def check_writable(
    path: str, info: os.stat_result | None, look: Look, *, keep_links: bool = False
) -> None:
    """Raise ``Refused`` unless a file may be replaced, removed or (``info`` None) made.

    By the mode bits: root could write anyway, and a read-only file says that somebody does not want that. And by the
    owner: only the owner can keep a file's owner and a folder's mtime, so being in the right group is not enough.
    """
    if info is not None:
        _check_mode(path, look.site.absolute(path), info)
    if info is not None and info.st_nlink > 1 and keep_links:
        why = f"{path} has {info.st_nlink} hard links, perhaps one in a package cache (uv, conda), and --keep-links forbids separating them; nothing was changed"
        hint = "without --keep-links this tree gets its own copy; the other links do not change"
        raise Refused(why, hint=hint)
    place, parent = look.above(path)  # others will be made in it
    _check_mode(f"{path} is in {place}, which", place, parent)


def _check_mode(what: str, place: str, info: os.stat_result) -> None:
    if os.geteuid() not in {0, info.st_uid}:
        why = f"{what} belongs to user {info.st_uid}, but you are user {os.geteuid()}; nothing was changed"
        raise Refused(why, hint=f"run the command as its owner or as root: stat -c %U {place}")
    if not info.st_mode & stat.S_IWUSR:
        why = f"{what} is read-only (mode {stat.S_IMODE(info.st_mode):04o}); nothing was changed"
        raise Refused(why, hint=f"chmod u+w {place}")


def preserve(source: str, destination: str, *, private: bool = False) -> None:
    """Put a file at a second, new name with all its metadata: a hard link, else a copy.

    ``private`` asks for a copy: the file has other names through which it could change.
    """
    if not private:
        try:
            os.link(source, destination, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
        else:
            return
    info = os.lstat(source)
    data = read(source)
    if data is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
    write(destination, data, like=info, mtime_ns=info.st_mtime_ns, attributes_of=source)
    sync([destination])


def write(
    path: str,
    data: bytes,
    like: os.stat_result,
    *,
    mode: int | None = None,
    mtime_ns: int | None = None,
    attributes_of: str | None = None,
) -> None:
    """Write a new file; the owner, and the mode unless given, of ``like``.

    Extended attributes (access lists among them) are those of the file ``attributes_of``.
    """
    descriptor = os.open(path, NEW_FILE, 0o600)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        _take_owner(descriptor, path, like, required=attributes_of is not None)
        if attributes_of is not None:
            for name in attributes(attributes_of):
                _copy_attribute(attributes_of, descriptor, name)
        # After chown, which clears the set-uid and set-gid bits.
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode) if mode is None else mode)
        if mtime_ns is not None:
            os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    finally:
        os.close(descriptor)


def _copy_attribute(source: str, descriptor: int, name: str) -> None:
    value = os.getxattr(source, name, follow_symlinks=False)
    try:
        os.setxattr(descriptor, name, value)
    except PermissionError:
        # A security label is the system's to give: the new file has its folder's already.
        if not name.startswith("security."):
            raise


def settle_folder(path: str, *, owner: tuple[int, int], mode: int = 0o755) -> None:
    """Bring a folder to exactly this mode and, where we may, this owner."""
    info = os.lstat(path)
    if (info.st_uid, info.st_gid) != owner:
        try:
            os.chown(path, *owner, follow_symlinks=False)
        except PermissionError:
            if os.geteuid() == 0:
                raise
    os.chmod(path, mode)


def attributes(path: str) -> list[str]:
    """Return the names of a file's extended attributes; none where there are no such things."""
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno in {errno.EOPNOTSUPP, errno.ENOSYS}:
            return []
        raise


def sync(paths: Iterable[str]) -> None:
    """Bring the content of files, and the entries of folders, to the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        except OSError as error:
            # "cannot be synced": folders on some network file systems
            if error.errno != errno.EINVAL:
                raise
        finally:
            os.close(descriptor)


def _take_owner(descriptor: int, path: str, like: os.stat_result, *, required: bool) -> None:
    """Give an open file an owner. A new file's owner is its folder's only where we may."""
    info = os.fstat(descriptor)
    if (info.st_uid, info.st_gid) == (like.st_uid, like.st_gid):
        return
    try:
        os.fchown(descriptor, like.st_uid, like.st_gid)
    except PermissionError as error:
        if required or os.geteuid() == 0:
            error.filename = path
            raise


def _split(site: Site, path: str) -> tuple[str, list[str]]:
    base, inside = site.root, path
    if path.startswith("/"):
        own = [one for one in site.workspaces if one != "/" and path.startswith(f"{one}/")]
        if not own:
            why = f"{path} is outside the site root {site.root} and outside the workspace ({', '.join(site.workspaces) or 'none'}); nothing was changed"
            raise Refused(why, hint=f"--workspace {(*site.workspaces, os.path.dirname(path))[0]}")
        base = own[0]
        if not os.path.isdir(base):
            why = f"{path}: the workspace {base} does not exist; nothing was changed"
            raise Refused(why, hint=f"mkdir -p {base}")
        inside = path[len(base) + 1 :]
    if not is_plain_path(inside):
        why = f"{path!r} is not a plain path inside the tree; nothing was changed"
        raise Refused(why, hint="paths start at the site root, e.g. vllm/config/model.py")
    return base, inside.split("/")


def check_target(where: Site, path: str) -> None:
    """Raise ``Refused`` for a path that is this tool's own, other than a template."""
    inside = path
    for base in (where.root, *where.workspaces):
        inside = inside.removeprefix(f"{base}/")
    inside = inside.removeprefix(f"{TEMPLATES}/")
    if inside.split("/", 1)[0] == STATE or tree_names.is_reserved(inside):
        why = f"{path}: {STATE} is reserved for the files of vllm-mods; nothing was changed"
        raise Refused(why, hint="remove the path from the mod")


def _link(path: str, shown: str, place: str) -> Refused:
    return Refused(
        f"{path}: {shown} is a symbolic link to {os.readlink(place)}, and vllm-mods does not follow links; nothing was changed",
        hint=f"name the real tree as the target: {os.path.realpath(place)}",
    )
