"""Wheels, sdists and the zips of mods."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import tarfile
import warnings
import zipfile
from typing import TYPE_CHECKING

from package_server import SOURCES, WHEEL, make_sdist, make_wheel, record_row

from fuzz.contract import Target
from vllm_mods.base.cache import Cache
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.building import wheels
from vllm_mods.building.tarball import TarEntry
from vllm_mods.formats.pairing_lock import LockedWheel
from vllm_mods.library.catalog import PARTS
from vllm_mods.making import folder as folders
from vllm_mods.sharing import contents, git_objects
from vllm_mods.trees.archive import ArchiveTree, TarArchive, ZipArchive
from vllm_mods.trees.http import ByteSpan
from vllm_mods.trees.index import release_file
from vllm_mods.trees.remote import RemoteZip, checked_record
from vllm_mods.trees.spans import NoRangesError

if TYPE_CHECKING:
    from vllm_mods.trees.other_packages import Archive


def _tree(archive: Archive) -> None:
    tree = ArchiveTree(archive, spec="x")
    for path in list(tree.paths(""))[:20]:
        tree.read(path)
    assert tree.version is None or tree.version
    tree.is_released("vllm/__init__.py", b"")


def _wheel(data: bytes, _folder: str) -> None:
    _tree(ZipArchive(io.BytesIO(data), label="x.whl"))


def _small_wheel() -> bytes:
    return make_wheel(bulk={"vllm/_C.so": b"\0" * 300})


def _wheel_seeds() -> tuple[bytes, ...]:
    return (_small_wheel(), make_wheel(bulk={}, record=""))


def _sdist(data: bytes, _folder: str) -> None:
    _tree(TarArchive(io.BytesIO(gzip.compress(data, 1)), label="x.tar.gz"))


def _packed_sdist(data: bytes, _folder: str) -> None:
    _tree(TarArchive(io.BytesIO(data), label="x.tar.gz"))


def odd_tar() -> bytes:
    """Return a tar with every kind of entry there is."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, kind, link in (
            ("vllm-1/vllm/__init__.py", tarfile.REGTYPE, ""),
            ("vllm-1/vllm/link.py", tarfile.SYMTYPE, "/etc/passwd"),
            ("vllm-1/vllm/hard.py", tarfile.LNKTYPE, "../../x"),
            ("vllm-1/vllm/pipe", tarfile.FIFOTYPE, ""),
            ("vllm-1/vllm/device", tarfile.CHRTYPE, ""),
            ("vllm-1/vllm/sub", tarfile.DIRTYPE, ""),
            ("vllm-1/" + "long/" * 60 + "x.py", tarfile.REGTYPE, ""),
            ("vllm-1/vllm/ä.py", tarfile.REGTYPE, ""),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = 3 if kind == tarfile.REGTYPE else 0
            member.pax_headers = {"comment": "x" * 600}
            archive.addfile(member, io.BytesIO(b"x=1"))
    return stream.getvalue()


def _sdist_seeds() -> tuple[bytes, ...]:
    return (gzip.decompress(make_sdist()), odd_tar())


def _unpacked_wheel(data: bytes, _folder: str) -> None:
    wheel = LockedWheel("x", "1", "x-1-py3-none-any.whl", sha256(data) or "")
    for node in wheels.unpack(data, wheel, "usr/lib/python3.12/site-packages", epoch=0):
        assert isinstance(node, TarEntry)
        assert os.path.normpath(node.path) == node.path, node.path
        assert node.path.startswith("usr/lib/python3.12/site-packages/"), node.path


def _unpacked_seeds() -> tuple[bytes, ...]:
    def of(*names: str) -> bytes:
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w") as archive:
            warnings.simplefilter("ignore")
            for name in (*names, "x-1.dist-info/RECORD"):
                archive.writestr(zipfile.ZipInfo(name), b"x = 1\n", zipfile.ZIP_DEFLATED)
        return stream.getvalue()

    return (
        of("x.py"),
        of("x-1.data/purelib/y.py", "x-1.data/scripts/z"),
        of("x.py", "x.py"),
        of("../x"),
    )


def _mod_zip(data: bytes, folder: str) -> None:
    place = os.path.join(folder, "mod.zip")
    with open(place, "wb") as file:
        file.write(data)
    with contextlib.suppress(UsageError):
        folders.read(place)


def _mod_zip_seeds() -> tuple[bytes, ...]:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("run.sh"), b"#!/bin/bash\necho x\n", zipfile.ZIP_DEFLATED)
        archive.writestr(zipfile.ZipInfo("fix.patch"), b"x", zipfile.ZIP_BZIP2)
    return (stream.getvalue(),)


class _Server:
    """Answers ranges out of bytes, as ``Http`` does."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def span(self, _url: str, start: int, end: int) -> ByteSpan:
        return ByteSpan(data=self.data[start:end].ljust(end - start, b"\0"), total=len(self.data))


def _remote(data: bytes, folder: str) -> None:
    file = release_file(WHEEL, "https://example/x.whl")
    assert file is not None
    cache = Cache(os.path.join(folder, "cache"))
    for _ in range(2):  # the second time out of the cache
        try:
            _tree(RemoteZip(file, cache, _Server(data)))  # type: ignore[arg-type]  # all it asks for
        except NoRangesError:
            return


def _record(data: bytes, _folder: str) -> None:
    rows = data.decode("utf-8", "surrogateescape")
    wheel = ZipArchive(io.BytesIO(make_wheel(bulk={}, record=rows)), label="x.whl")
    assert checked_record(wheel, "x.whl") == data


def _record_seeds() -> tuple[bytes, ...]:
    rows = "".join(record_row(name, content) for name, content in SOURCES.items())
    info = record_row("vllm-0.19.1.dist-info/METADATA", b"Name: vllm\nVersion: 0.19.1\n")
    return ((rows + info + "vllm-0.19.1.dist-info/RECORD,,\n").encode(), b'"a",sha256=,1\n')


def _library(data: bytes, _folder: str) -> None:
    """Read the input as the tree of `patches` in a commit."""
    objects: dict[str, bytes] = {}

    def save(kind: str, content: bytes) -> str:
        raw = git_objects.with_header(kind, content)
        name = hashlib.sha1(raw, usedforsecurity=False).hexdigest()
        objects[name] = raw
        return name

    root = save("tree", b"40000 patches\0" + bytes.fromhex(save("tree", data)))
    commit = save("commit", f"tree {root}\n".encode())
    try:
        files = list(git_objects.library_files(commit, "", objects.__getitem__, "x"))
    except TreeError:
        return
    for path, _ in files:
        assert os.path.normpath(path) == path, path
        assert path.split("/")[0] in {*PARTS, *contents.BESIDE}, path


def _library_seeds() -> tuple[bytes, ...]:
    blob = bytes(20)
    return (b"100644 x.py\0" + blob + b"40000 y\0" + blob, b"120000 ..\0" + blob)


TARGETS = (
    Target("library-commit", _library, _library_seeds),
    Target("record-of-a-wheel", _record, _record_seeds),
    Target("wheel", _wheel, _wheel_seeds),
    Target("remote-wheel", _remote, _wheel_seeds),
    Target("installed-wheel", _unpacked_wheel, _unpacked_seeds),
    Target("sdist-tar", _sdist, _sdist_seeds),
    Target("sdist", _packed_sdist, lambda: (make_sdist(), gzip.compress(odd_tar()))),
    Target("mod-zip", _mod_zip, _mod_zip_seeds),
)
