"""What is in the way of a file: by the mounts, flags and attributes that the system tells, with the command that helps."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.errors import Refused
from vllm_mods.site import obstacles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "my tree/file"
    made.parent.mkdir()
    made.touch()
    return made


def mount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: Path) -> None:
    """Have something be mounted at a place, as proc_pid_mountinfo(5) writes it."""
    name = str(place).replace(" ", "\\040")
    (tmp_path / "mountinfo").write_text(
        f"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n36 22 8:2 /sub {name} rw - ext4 /dev/sdb1 rw\n"
    )
    monkeypatch.setattr(obstacles, "_MOUNTS", str(tmp_path / "mountinfo"))


def give_attributes(monkeypatch: pytest.MonkeyPatch, place: Path, flags: int) -> None:
    def ioctl(descriptor: int, _request: int, argument: bytes) -> bytes:
        if os.readlink(f"/proc/self/fd/{descriptor}") != str(place):
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        return flags.to_bytes(4, sys.byteorder) + argument[4:]

    monkeypatch.setattr(fcntl, "ioctl", ioctl)


def mount_read_only(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    real = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        fields = [*real(path)]
        fields[8] |= os.ST_RDONLY if path == str(place) else 0
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", statvfs)


def refusal(files: list[Path], folders: list[Path]) -> tuple[str, str | None]:
    with pytest.raises(Refused) as caught:
        obstacles.check(map(str, files), map(str, folders))
    return caught.value.message, caught.value.hint


def test_what_is_mounted_is_no_file_to_replace_and_may_well_be_a_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount(monkeypatch, tmp_path, file)
    message, hint = refusal([tmp_path, file], [])
    assert message.startswith(f"{file} is a mount ")
    assert (hint or "").startswith(f"umount {file} ")
    mount(monkeypatch, tmp_path, file.parent)
    obstacles.check([str(file)], [str(file.parent)])


def test_without_proc_nothing_is_known_of_mounts(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(obstacles, "_MOUNTS", str(tmp_path / "none"))
    obstacles.check([str(file)], [str(file.parent)])


@pytest.mark.parametrize(("flags", "letters"), [(0x10, "i"), (0x20, "a"), (0x30, "ia")])
def test_attributes_of_files_and_folders_are_named_by_their_letters(
    file: Path, monkeypatch: pytest.MonkeyPatch, flags: int, letters: str
) -> None:
    for place, files, folders in ((file, [file], []), (file.parent, [file], [file.parent])):
        give_attributes(monkeypatch, place, flags | 0x80000)
        assert refusal(files, folders) == (
            f"{place} has the attribute +{letters} (lsattr); nothing was changed",
            f"chattr -{letters} {place}",
        )
    give_attributes(monkeypatch, file, 0x80000)
    descriptors = len(os.listdir("/proc/self/fd"))
    obstacles.check([str(file), f"{file}.none"], [f"{file}.none"])
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_folder_on_a_read_only_file_system_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount_read_only(monkeypatch, file.parent)
    assert refusal([file], [file.parent]) == (
        f"{file.parent} is on a file system that is mounted read-only; nothing was changed",
        f"findmnt -T {file.parent}",
    )


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (errno.ENOSPC, "df -h /site  # free some space, then run the command again"),
        (errno.EBUSY, "findmnt -T /site  # is something mounted there?"),
        (errno.EACCES, "run as the owner of the tree: stat -c %U /site"),
        (errno.ENOENT, "ls -la /site"),
        (None, "ls -la /site"),
    ],
)
def test_an_error_alone_says_what_helps_by_its_number(
    file: Path, code: int | None, hint: str
) -> None:
    error = OSError("no") if code is None else OSError(code, "no")
    assert obstacles.hint(error, str(file), "/site") == hint


@pytest.mark.parametrize("code", [errno.EPERM, errno.EBUSY, errno.EROFS, errno.EACCES])
def test_what_is_in_the_way_says_more_than_the_number(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def hint(code: int = code) -> str:
        return obstacles.hint(OSError(code, "no"), str(file), "/site")

    mount_read_only(monkeypatch, file.parent)
    assert hint() == f"findmnt -T {file.parent}"
    give_attributes(monkeypatch, file.parent, 0x20)
    assert hint() == f"chattr -a {file.parent}"
    mount_read_only(monkeypatch, file)
    assert hint() == f"findmnt -T {file}"
    give_attributes(monkeypatch, file, 0x10)
    assert hint() == f"chattr -i {file}"
    mount(monkeypatch, tmp_path, file)
    assert hint().startswith(f"umount {file} ")
    assert hint(errno.EIO) == "the disk fails: dmesg | tail"
