"""Wheels and sdists: the trees that lie in an archive.

A wheel (PEP 427) is a zip whose names start at the site root; an sdist is a ``.tar.gz`` with one
folder at the top, which is taken off.
"""

import contextlib
import copy
import stat
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import BinaryIO, Self, TypeVar

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.base.tree import PristineTree
from vllm_mods.formats import platforms, tars, tree_names, zips
from vllm_mods.trees.folder import read_in_workspace
from vllm_mods.trees.other_packages import Archive, OtherPackage, OtherPackages

_Entry = TypeVar("_Entry")
# Everything that the standard library raises for an archive with wrong bytes in it.
_BROKEN = (*zips.BROKEN, *tars.BROKEN)


class ArchiveTree(PristineTree):
    """A tree in an archive: as released, unless somebody rebuilt the archive.

    ``identity`` is the archive's sha256, where somebody has said it; ``others`` are the packages beside it,
    where it is known which.
    """

    identity: str | None

    def __init__(
        self, archive: Archive, *, spec: str, remote: bool = False, identity: str | None = None
    ) -> None:
        if "vllm/__init__.py" not in archive.names:
            why = f"{spec} has no vLLM: it has no vllm/__init__.py"
            raise UsageError(why, hint="name a vllm wheel or sdist")
        self.spec = spec
        self.remote = remote
        self.identity = identity
        self.others: OtherPackages | None = None
        self._archive = archive
        self._tops = frozenset(name.partition("/")[0] for name in archive.names)

    @cached_property
    def version(self) -> str | None:
        """The version in the dist-info folder's name, else in ``PKG-INFO`` or ``_version.py``."""
        versions = {version for _, version in tree_names.dist_infos(self._tops).values()}
        if len(versions) == 1:
            return versions.pop()
        stated = tree_names.pkg_info_version(self._archive.read("PKG-INFO"))
        return stated or tree_names.module_version(self._archive.read("vllm/_version.py"))

    def read(self, path: str) -> bytes | None:
        """Return the bytes of a file, ``None`` if there is none; ``TreeError`` if it is broken."""
        if path.startswith("/"):
            return read_in_workspace(path, self.workspace, self.spec)
        tree_names.split(path, self.spec)
        return self._holding(path).read(path)

    @property
    def platform(self) -> str | None:
        """What a wheel is built for, None for sources."""
        return platforms.of_wheel(self._own("WHEEL"))

    def _own(self, name: str) -> bytes | None:
        own = [*tree_names.dist_infos(self._tops)]
        return self._archive.read(f"{own[0]}/{name}") if len(own) == 1 else None

    def apart(self) -> Self:
        """Return the same tree, as if no other distribution had been asked for."""
        twin = copy.copy(self)
        twin.others = None if self.others is None else self.others.apart()
        return twin

    def metadata(self) -> bytes | None:
        """Return the metadata of its distribution."""
        return self._own("METADATA") or self._archive.read("PKG-INFO")

    def package(self, name: str) -> str | None:
        """Return the version of another distribution beside it. Raises ``TreeError``."""
        other = None if self.others is None else self.others.package(name)
        return other and other.version

    def owner(self, path: str) -> tuple[str, str] | None:
        """Return name and version of the other distribution that a path is of. Raises ``TreeError``."""
        other = self._other(path)
        return other and (other.name, other.version)

    def _holding(self, path: str) -> Archive:
        """Return the archive that has what a path begins with: its own, or that of another package."""
        other = self._other(path)
        return self._archive if other is None else other.archive

    def _other(self, path: str) -> OtherPackage | None:
        if self.others is None or path.partition("/")[0] in self._tops:
            return None
        return self.others.holding(path)

    def load(self, paths: Collection[str]) -> None:
        """Have some files of it here, in few round trips. Raises ``TreeError``."""
        self._archive.load(paths)

    def paths(self, under: str = "vllm") -> Iterator[str]:
        """Yield every file below ``under``; ``""`` is the whole archive."""
        prefix = "/".join(tree_names.split(under, self.spec)) + "/" if under else ""
        return (name for name in self._holding(prefix).names if name.startswith(prefix))

    def folders(self) -> frozenset[str]:
        """Return the names of what lies at the top."""
        return self._tops


class ZipArchive(Archive):
    """The files of a zip; the zip's CRC-32 is checked on every read. ``file`` is taken over.

    ``infos`` are the directory's entries of them by name; where it starts, the last file's data ends.
    """

    def __init__(self, file: BinaryIO, *, label: str) -> None:
        self._label = label
        weakref.finalize(self, file.close)
        with reading(label):
            self._zip = zips.opened(file)
            infos = zips.files(self._zip)
        self.infos = _index(((info.filename, info) for info in infos), label)
        self.names = frozenset(self.infos)
        self.start_of_directory = self._zip.start_dir

    def read(self, name: str, *, most: int | None = None) -> bytes | None:
        """Return a file's bytes, ``most`` [``limits.UNPACKED_FILE``]; ``TreeError`` if the CRC-32 does not agree."""
        info = self.infos.get(name)
        if info is None:
            return None
        if stat.S_IFMT(info.external_attr >> 16) not in {0, stat.S_IFREG}:
            raise TreeError(f"{self._label}: {name} is a symbolic link or a device", hint=_REBUILD)
        with reading(f"{self._label}: {name}"):
            return zips.content(self._zip, info, most=most)


class TarArchive(Archive):
    """The files of a ``.tar.gz``, without its single top folder.

    The archive is unpacked into an anonymous temporary file once: a gzip stream can't be read from the middle.
    """

    def __init__(self, file: BinaryIO, *, label: str) -> None:
        import gzip  # noqa: PLC0415  (most runs meet no sdist)

        self._label = label
        # Unbuffered: a buffered one seeks when it is closed, and fails where a forked process has read on.
        self._file: BinaryIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  (lives with the tree)
        weakref.finalize(self, self._file.close)
        with reading(label):
            with gzip.open(file, "rb") as stream:
                while data := stream.read(1 << 20):
                    self._file.write(data)
                    if self._file.tell() > limits.SDIST:
                        raise ValueError(f"it unpacks to more than {limits.SDIST}")
            self._file.seek(0)
            members = list(tars.members(self._file))
        tops = {member.name.partition("/")[0] for member in members}
        if len(tops) != 1:
            why = f"{label}: an sdist has one top-level folder, and this file has {len(tops)}"
            raise TreeError(why, hint=_REBUILD)
        files = _index(((one.name, one) for one in members if not one.isdir()), label)
        self._members = {name.partition("/")[2]: member for name, member in files.items()}
        self.names = frozenset(self._members)

    def read(self, name: str) -> bytes | None:
        """Return a file's bytes."""
        member = self._members.get(name)
        if member is None:
            return None
        if member.size > limits.UNPACKED_FILE:
            why = f"{self._label}: {name} has {member.size:,} bytes; the limit is {limits.UNPACKED_FILE}"
            raise TreeError(why, hint=_REBUILD)
        if not member.isreg() or member.issparse():
            what = "is a link" if member.issym() or member.islnk() else "is not a regular file"
            raise TreeError(f"{self._label}: {name} {what}", hint=_REBUILD)
        self._file.seek(member.offset_data)
        return self._file.read(member.size)


_REBUILD = "download it again: this is not what vLLM's wheels or sdists contain"


@contextlib.contextmanager
def reading(label: str) -> Iterator[None]:
    """Turn what the standard library says of broken archives into ``TreeError``."""
    try:
        yield
    except _BROKEN as error:
        raise TreeError(f"{label}: corrupt or unreadable: {error}", hint=_REBUILD) from error


def open_archive(kind: str, file: BinaryIO, label: str) -> Archive:
    """Open a ``wheel``, which takes the file over, or an sdist, which has read all of it then."""
    if kind == "wheel":
        return ZipArchive(file, label=label)
    with file:
        return TarArchive(file, label=label)


def _index(entries: Iterable[tuple[str, _Entry]], label: str) -> dict[str, _Entry]:
    index: dict[str, _Entry] = {}
    for name, entry in entries:
        if name in index:
            raise TreeError(f"{label}: {name!r} appears twice in the archive", hint=_REBUILD)
        if not tree_names.is_plain(name):
            raise TreeError(f"{label}: {name!r} is not a plain relative path", hint=_REBUILD)
        index[name] = entry
    return index
