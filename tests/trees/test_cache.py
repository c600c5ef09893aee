"""The cache on disk."""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

import pytest

from vllm_mods.base.cache import Cache, cache_folder, file_digest

if TYPE_CHECKING:
    from pathlib import Path


def blobs(folder: Path) -> list[Path]:
    return [path for path in (folder / "blobs").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"VLLM_MODS_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/vllm-mods"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/vllm-mods"),
        ({"HOME": "/h"}, "/h/.cache/vllm-mods"),
        ({"VLLM_MODS_CACHE": "c"}, os.path.abspath("c")),
        ({}, os.path.expanduser("~/.cache/vllm-mods")),
    ],
)
def test_where_it_lies(environ: dict[str, str], folder: str) -> None:
    assert cache_folder(environ) == folder


def test_blobs_are_found_by_their_hash(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    digest = cache.put(b"data")
    assert digest == hashlib.sha256(b"data").hexdigest()
    assert Cache(str(tmp_path)).get(digest) == b"data"
    assert cache.get("0" * 64) is None


@pytest.mark.parametrize("bad", [b"dat", b"", b"DATA"])
def test_a_corrupt_blob_is_dropped(tmp_path: Path, bad: bytes) -> None:
    cache = Cache(str(tmp_path))
    digest = cache.put(b"data")
    (path,) = blobs(tmp_path)
    path.write_bytes(bad)
    assert cache.get(digest) is None
    assert not path.exists()
    path.write_bytes(bad)
    assert cache.get_file(digest) is None
    assert not path.exists()
    assert cache.put(b"data") == digest
    assert cache.get(digest) == b"data"


def test_a_name_that_is_no_hash_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    cache = Cache(str(tmp_path / "cache"))
    cache.put(b"data")
    for name in ("../../precious", str(tmp_path / "precious"), "", "A" * 64):
        assert cache.get(name) is None
        assert cache.get_file(name) is None
    assert (tmp_path / "precious").exists()


def test_records_are_replaced(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.record("pages", "a", "b", data=b"1")
    cache.record("pages", "a", "b", data=b"2")
    cache.record("pages", "a\0b", data=b"3")
    assert cache.lookup("pages", "a", "b") in {b"2", b"3"}
    assert cache.lookup("pages", "ab") is None
    assert cache.lookup("files", "a", "b") is None


def test_a_kept_download_stays_open_and_is_found_again(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    with cache.scratch() as scratch:
        scratch.write(b"data")
        scratch.flush()
        digest = file_digest(scratch)
        cache.keep_file(scratch, digest)
    assert scratch.read() == b"data"
    scratch.close()
    found = cache.get_file(digest)
    assert found is not None
    with found:
        assert found.read() == b"data"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_failed_download_leaves_nothing(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))

    def fail() -> None:
        with cache.scratch() as scratch:
            scratch.write(b"data")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert not (tmp_path / "blobs").exists()


def test_leftovers_of_killed_downloads_go_after_a_day(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    old, young = tmp_path / "tmp" / "old", tmp_path / "tmp" / "young"
    old.touch()
    young.touch()
    os.utime(old, (time.time() - 90000,) * 2)
    with Cache(str(tmp_path)).scratch() as scratch:
        scratch.close()
    assert not old.exists()
    assert young.exists()


def test_a_cache_that_cannot_be_written_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    notes: list[str] = []
    cache = Cache(str(tmp_path / "file" / "cache"), note=notes.append)
    digest = cache.put(b"data")
    cache.record("pages", "a", data=b"1")
    assert cache.get(digest) is None
    assert cache.lookup("pages", "a") is None
    with cache.scratch() as scratch:
        scratch.write(b"data")
        scratch.seek(0)
        cache.keep_file(scratch, digest)
    assert scratch.read() == b"data"
    scratch.close()
    assert not os.path.exists(scratch.name)
    (note,) = notes
    assert note.startswith(f"working without the cache {tmp_path}/file/cache: ")


def test_old_records_are_swept_once_a_day(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    for name in ("old", "new"):
        cache.record("answers", name, data=b"x")
    records = {path.name: path for path in (tmp_path / "answers").rglob("*") if path.is_file()}
    old = records[hashlib.sha256(b"old").hexdigest()]
    past = time.time() - 91 * 86400
    os.utime(old, (past, past))
    cache.sweep("answers", 90)
    assert cache.lookup("answers", "old") is None
    assert cache.lookup("answers", "new") == b"x"
    cache.record("answers", "old", data=b"x")
    os.utime(old, (past, past))
    cache.sweep("answers", 90)  # today it has been done
    assert cache.lookup("answers", "old") == b"x"
    cache.sweep("nothing", 90)


def test_what_is_kept_is_for_its_owner_alone(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"))
    cache.put(b"data")
    cache.record("pages", "a", data=b"1")
    with cache.scratch() as scratch:
        assert os.stat(scratch.name).st_mode & 0o077 == 0
        scratch.write(b"kept")
        cache.keep_file(scratch, "0" * 64)
    scratch.close()
    folders = [one for one in (tmp_path / "cache").rglob("*") if one.is_dir()]
    assert {one.name for one in folders} >= {"blobs", "pages", "tmp", "00"}
    assert {
        one.stat().st_mode & 0o077 for one in (tmp_path / "cache").rglob("*") if not one.is_dir()
    } == {0}
    inner = {one for one in folders if one.name in {"tmp", "00"}}
    assert {one.stat().st_mode & 0o777 for one in inner} == {0o700}


def test_a_blob_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.put(b"data")
    (blob,) = blobs(tmp_path)
    before = blob.stat().st_ino
    cache.put(b"data")
    assert blob.stat().st_ino == before


def test_nothing_is_left_of_what_could_not_be_moved_to_its_place(tmp_path: Path) -> None:
    notes: list[str] = []
    cache = Cache(str(tmp_path), note=notes.append)
    digest = hashlib.sha256(b"data").hexdigest()
    (tmp_path / "blobs" / digest[:2] / digest).mkdir(parents=True)
    assert cache.put(b"data") == digest
    assert notes == [f"working without the cache {tmp_path}: Is a directory"]
    assert os.listdir(tmp_path / "blobs" / digest[:2]) == [digest]


def test_a_file_from_elsewhere_is_not_moved_into_the_cache(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path / "cache"))
    with open(tmp_path / "mine", "w+b") as file:
        file.write(b"data")
        cache.keep_file(file, hashlib.sha256(b"data").hexdigest())
    assert (tmp_path / "mine").read_bytes() == b"data"
    assert not (tmp_path / "cache").exists()


def test_old_records_are_swept_again_the_next_day(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    cache.record("answers", "a", data=b"x")
    cache.sweep("answers", 90)
    past = time.time() - 91 * 86400
    (record,) = (one for one in (tmp_path / "answers").glob("*/*"))
    for path in (record, tmp_path / "answers" / ".swept"):
        os.utime(path, (past, past))
    cache.sweep("answers", 90)
    assert cache.lookup("answers", "a") is None
