"""Folders held open: files stay in the very folder that was looked at, and keep their names in errors."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import stat
from typing import TYPE_CHECKING

import pytest

from vllm_mods.site import open_folders
from vllm_mods.site.open_folders import OpenFolders
from vllm_mods.site.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root/a/b").mkdir(parents=True)
    (tmp_path / "space/deep").mkdir(parents=True)
    (tmp_path / "elsewhere/b").mkdir(parents=True)
    return tmp_path / "root"


@pytest.fixture
def folders(root: Path) -> Iterator[OpenFolders]:
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    made = OpenFolders(Site(str(root), (str(root.parent / "space"),)), descriptor)
    yield made
    made.close()
    os.fstat(descriptor)  # the caller's own stays open
    os.close(descriptor)


def opened(root: Path) -> int:
    """Count what is open of this test's folders; what other tests left is closed whenever it is."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the listing's own
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sum(link.startswith(str(root.parent)) for link in links)


def test_a_file_is_reached_though_its_folder_is_called_otherwise_by_now(
    root: Path, folders: OpenFolders
) -> None:
    place = folders.at(f"{root}/a/b/file")
    (root / "a").rename(root / "moved")
    (root / "a").symlink_to(root.parent / "elsewhere")
    with open(place, "w") as file:
        file.write("x")
    assert folders.at(f"{root}/a/b/file") == place
    assert (root / "moved/b/file").read_text() == "x"
    assert not (root.parent / "elsewhere/b/file").exists()


def test_a_folder_that_is_a_link_is_refused_by_its_real_name(
    root: Path, folders: OpenFolders
) -> None:
    (root / "link").symlink_to(root.parent / "elsewhere")
    (root.parent / "space/link").symlink_to(root.parent / "elsewhere")
    for place in (f"{root}/link", f"{root.parent}/space/link"):
        with pytest.raises(NotADirectoryError) as caught:
            folders.at(f"{place}/file")
        assert caught.value.filename == place
    with pytest.raises(FileNotFoundError) as missing:
        folders.folder(f"{root}/a/none")
    assert missing.value.filename == f"{root}/a/none"


def test_a_workspace_may_be_a_link_for_the_user_named_it(root: Path) -> None:
    (root.parent / "named").symlink_to(root.parent / "space")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    folders = OpenFolders(Site(str(root), (str(root.parent / "named"),)), descriptor)
    with open(folders.at(f"{root.parent}/named/deep/file"), "w") as file:
        file.write("x")
    assert (root.parent / "space/deep/file").read_text() == "x"
    folders.close()
    os.close(descriptor)


def test_errors_name_files_and_folders_as_the_user_does(root: Path, folders: OpenFolders) -> None:
    one, other = f"{root}/a/one", f"{root}/a/b/other"
    with pytest.raises(FileNotFoundError) as caught, folders.naming():
        os.rename(folders.at(one), folders.at(other))
    assert (caught.value.filename, caught.value.filename2) == (one, other)
    with pytest.raises(NotADirectoryError) as folder, folders.naming():
        raise NotADirectoryError(20, "x", folders.folder(f"{root}/a"))
    assert folder.value.filename == f"{root}/a"
    for name in ("/elsewhere", 7, None, "/proc/self/fd/1048575/x", "/proc/self/fdx"):
        with pytest.raises(OSError, match="x") as as_it_is, folders.naming():
            raise OSError(5, "x", name)
        assert as_it_is.value.filename == name


def test_folders_are_opened_once_and_closed(root: Path, folders: OpenFolders) -> None:
    before = opened(root)
    for _ in range(3):
        folders.at(f"{root}/a/b/file")
        folders.folder(f"{root}/a")
    assert opened(root) == before + 2
    folders.close()
    assert opened(root) == before


def test_the_limit_of_open_files_is_as_it_was_after_the_last_of_two_closes(
    folders: OpenFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (10, 1 << 20))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limits: set_.append(limits))
    folders.allow([f"vllm/{n}/x" for n in range(100)])
    folders.close()
    folders.close()
    assert [one[1] for one in set_] == [1 << 20] * 2
    assert set_[0][0] > 100
    assert set_[1][0] == 10


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (10, 1 << 20, True),
        (10, resource.RLIM_INFINITY, True),
        (1 << 20, 1 << 20, False),
        (1 << 20, resource.RLIM_INFINITY, False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
    ],
)
def test_the_limit_of_open_files_is_raised_where_it_is_too_low(
    folders: OpenFolders, monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, *, raised: bool
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, pair: limits.append(pair))
    folders.allow(["vllm/x"])
    folders.close()
    assert [pair[1] for pair in limits] == [hard, hard] * raised


def test_one_descriptor_is_needed_for_each_folder_with_those_above_it(
    root: Path, folders: OpenFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    hard = 10
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (10, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, _pair: None)

    def needed(*paths: str) -> int:
        with pytest.raises(OSError, match="descriptors are needed, one per") as caught:
            folders.allow(paths)
        assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, str(root))
        assert caught.value.strerror is not None
        return int(caught.value.strerror.split()[0])

    least = needed()
    # what an empty path leads to is the root, with all that it is in
    assert needed("x") - least == len(root.parts)
    assert needed("a/x", "a/y", "a/b/z", "a") - needed("x") == 3 + 1
    hard = needed("x")
    folders.allow(["x"])
    hard -= 1
    assert needed("x") == hard + 1
    folders.close()


def test_a_folder_made_has_exactly_its_mode_and_owner(root: Path, folders: OpenFolders) -> None:
    owner = (os.geteuid(), os.getegid())
    folders.make_folder(f"{root}/a/new", owner=owner)
    assert stat.S_IMODE((root / "a/new").stat().st_mode) == 0o755
    folders.make_folder(f"{root}/a/new", owner=owner, mode=0o711)
    assert stat.S_IMODE((root / "a/new").stat().st_mode) == 0o711


def test_a_folder_removed_is_forgotten(root: Path, folders: OpenFolders) -> None:
    before = opened(root)
    folders.folder(f"{root}/a/b")
    folders.remove_folder(f"{root}/a/b")
    assert not (root / "a/b").exists()
    assert opened(root) == before + 1
    (root / "a/b").mkdir()
    with open(folders.at(f"{root}/a/b/file"), "w") as file:
        file.write("x")
    assert (root / "a/b/file").read_text() == "x"
    (root / "other").mkdir()
    folders.remove_folder(f"{root}/other")
    with pytest.raises(OSError, match="not empty"):
        folders.remove_folder(f"{root}/a/b")


def test_without_proc_paths_are_what_they_are(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_folders, "_PROC", f"{root}/none")
    folders = OpenFolders(Site(str(root)), -1)
    assert folders.at(f"{root}/a/file") == f"{root}/a/file"
    assert folders.folder(f"{root}/a") == f"{root}/a"
