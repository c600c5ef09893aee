"""A file is written whole; what is no file, as /dev/null, is written to and stays what it is."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.output import write_whole

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
