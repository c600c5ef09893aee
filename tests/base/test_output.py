"""A file is written whole; what is no file, as /dev/null, is written to and stays what it is."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.output import fill_folder, staged, write_below, write_whole

if TYPE_CHECKING:
    from pathlib import Path


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    place = tmp_path / "x"
    write_whole(str(place), b"one")
    write_whole(str(place), b"two")
    assert place.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"one")
    (tmp_path / "link").symlink_to("real")
    write_whole(str(tmp_path / "link"), b"two")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"two"


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    place = tmp_path / "pipe"
    os.mkfifo(place)
    found = []
    reader = threading.Thread(target=lambda: found.append(place.read_bytes()))
    reader.start()
    write_whole(str(place), b"one")
    reader.join()
    assert found == [b"one"]
    assert stat.S_ISFIFO(place.lstat().st_mode)
    assert os.listdir(tmp_path) == ["pipe"]


def test_nothing_is_left_of_what_could_not_be_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_whole(str(tmp_path / "folder"), b"one")
    with pytest.raises(FileNotFoundError):
        write_whole(str(tmp_path / "nowhere/x"), b"one")
    assert os.listdir(tmp_path) == ["folder"]


def test_a_file_has_its_name_when_the_block_is_done(tmp_path: Path) -> None:
    place = tmp_path / "x"
    place.write_bytes(b"one")
    with staged(str(place), b"two"):
        assert place.read_bytes() == b"one"
        assert (tmp_path / ".x.new").read_bytes() == b"two"
    assert place.read_bytes() == b"two"
    with pytest.raises(KeyError), staged(str(place), b"three"):
        raise KeyError
    assert place.read_bytes() == b"two"
    assert os.listdir(tmp_path) == ["x"]


def test_what_a_killed_run_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / ".x.new").write_bytes(b"longer than what comes")
    write_whole(str(tmp_path / "x"), b"one")
    assert (tmp_path / "x").read_bytes() == b"one"
    assert os.listdir(tmp_path) == ["x"]


def test_two_do_not_write_one_file_at_a_time(tmp_path: Path) -> None:
    with open(tmp_path / ".x.new", "wb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another process is writing it") as caught:
            write_whole(str(tmp_path / "x"), b"one")
    assert caught.value.errno == errno.EBUSY
    assert os.listdir(tmp_path) == [".x.new"]


def test_without_locks_a_file_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(code: int) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(fcntl, "flock", lambda *_: fail(errno.ENOLCK))
    write_whole(str(tmp_path / "x"), b"one")
    assert (tmp_path / "x").read_bytes() == b"one"
    monkeypatch.setattr(fcntl, "flock", lambda *_: fail(errno.EIO))
    with pytest.raises(OSError, match="no"):
        write_whole(str(tmp_path / "x"), b"two")


@pytest.mark.parametrize("kind", ["hard link", "link", "pipe"])
def test_what_somebody_put_in_the_way_is_left_alone(tmp_path: Path, kind: str) -> None:
    (tmp_path / "precious").write_bytes(b"theirs")
    way = tmp_path / ".x.new"
    if kind == "hard link":
        os.link(tmp_path / "precious", way)
    elif kind == "link":
        way.symlink_to("precious")
    else:
        os.mkfifo(way)
    with pytest.raises(
        OSError, match=r"belongs to another user|symbolic links|No such device"
    ) as caught:
        write_whole(str(tmp_path / "x"), b"one")
    assert caught.value.errno in {errno.EEXIST, errno.ELOOP, errno.ENXIO}
    assert (tmp_path / "precious").read_bytes() == b"theirs"
    assert sorted(os.listdir(tmp_path)) == [".x.new", "precious"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    place = tmp_path / "f"
    place.mkdir()
    new = str(tmp_path / "new")
    fill_folder(new, {"a/b/c": b"1", "a/d": b"2", "e": b"3"}, str(place))
    assert {
        str(one.relative_to(place)): one.read_bytes() for one in place.rglob("*") if one.is_file()
    } == {"a/b/c": b"1", "a/d": b"2", "e": b"3"}
    with pytest.raises(OSError, match="not empty"):
        fill_folder(new, {"other": b""}, str(place))
    with pytest.raises(FileExistsError):
        fill_folder(new, {"a": b"", "a/b": b""}, str(tmp_path / "g"))
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_is_not_written_over_one_or_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"theirs")
    (tmp_path / "link").symlink_to("precious")
    for name in ("precious", "link"):
        with pytest.raises(FileExistsError):
            write_below(str(tmp_path), name, b"ours")
    assert (tmp_path / "precious").read_bytes() == b"theirs"
