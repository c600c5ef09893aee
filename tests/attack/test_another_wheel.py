"""A server that sends another wheel than the index means, in parts: what is said of it, kept of it, and for how long."""

from __future__ import annotations

import hashlib
import re
import zipfile
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from package_server import (
    BULK,
    SOURCES,
    WHEEL,
    PackageServer,
    make_wheel,
    record_row,
    serving,
    settings_of_none,
)

from vllm_mods.base import cache
from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.trees import remote
from vllm_mods.trees.archive import ArchiveTree
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATH = "vllm/config/model.py"
REAL = make_wheel()
OTHER = make_wheel({**SOURCES, PATH: b"class ModelConfig:\n    evil = 1\n" * 40})
HASH = hashlib.sha256(REAL).hexdigest()


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_of_none(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    state = PackageServer({WHEEL: OTHER}, json=True, etags=True, sizes=False, hashes={WHEEL: HASH})
    with serving(state) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def opened(**how: bool) -> ArchiveTree:
    tree = open_tree("pypi:0.19.1", **how)  # type: ignore[arg-type]
    assert isinstance(tree, ArchiveTree)
    return tree


def test_parts_of_another_wheel_are_not_kept_as_the_one_that_the_index_means(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = opened()
    assert b"evil" in (wrong.read(PATH) or b"")
    assert wrong.verified == "parts"
    assert wrong.identity != HASH
    with serving(PackageServer({WHEEL: REAL}, json=True, etags=True)) as honest:
        monkeypatch.setenv("PIP_INDEX_URL", honest.index)
        assert opened().read(PATH) == SOURCES[PATH]
        assert opened(offline=True).read(PATH) == SOURCES[PATH]


def test_parts_of_another_wheel_go_when_the_server_has_the_right_one(
    server: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert b"evil" in (opened().read(PATH) or b"")
    server.files[WHEEL] = REAL
    assert b"evil" in (opened(offline=True).read(PATH) or b"")  # and it says that it is parts
    monkeypatch.setattr(remote, "FRESH_SECONDS", 0)
    assert opened().read(PATH) == SOURCES[PATH]
    assert opened(offline=True).read(PATH) == SOURCES[PATH]


def test_what_is_still_there_is_asked_for_one_byte(
    server: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files[WHEEL] = REAL
    opened().read(PATH)
    before = len(server.requests)
    assert opened().read(PATH) == SOURCES[PATH]
    assert len(server.requests) == before
    monkeypatch.setattr(remote, "FRESH_SECONDS", 0)
    assert opened().read(PATH) == SOURCES[PATH]
    assert server.asked(WHEEL)[-1] == "bytes=0-0"
    assert len(server.requests) == before + 1
    server.failures = 9  # a server that is down is no reason to forget what it said
    assert opened().read(PATH) == SOURCES[PATH]


def test_verify_takes_the_whole_and_names_what_is_wrong(server: PackageServer) -> None:
    with pytest.raises(TreeError, match=f"its sha256 is .*, but the index says {HASH}"):
        opened(verify=True)
    opened().read(PATH)
    server.files[WHEEL] = REAL
    with pytest.raises(TreeError, match="the server sent parts of another file"):
        opened(verify=True)
    tree = opened()
    assert tree.read(PATH) == SOURCES[PATH]
    assert (tree.verified, tree.identity) == ("whole", HASH)


def test_a_wheel_is_had_as_a_whole_once_and_its_parts_are_held_to_it_ever_after(
    server: PackageServer, tmp_path: Path
) -> None:
    server.files[WHEEL] = REAL
    assert opened(verify=True).verified == "whole"
    assert opened(verify=True).read("vllm/_version.py")
    assert server.asked(WHEEL).count(None) == 1
    kept = [path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert max(kept) < len(REAL) / 2
    server.files[WHEEL] = OTHER.ljust(len(REAL), b"\0")
    with pytest.raises(TreeError):
        opened().read(PATH)
    assert opened(offline=True).read("vllm/_version.py")


def forged(change: Callable[[bytes], bytes]) -> bytes:
    """Make a wheel whose RECORD is as good a lie as can be told of other bytes."""
    rows = "".join(record_row(name, data) for name, data in {**SOURCES, **BULK}.items())
    metadata = b"Name: vllm\nVersion: 0.19.1\n"
    rows += (
        record_row("vllm-0.19.1.dist-info/METADATA", metadata) + "vllm-0.19.1.dist-info/RECORD,,\n"
    )
    return make_wheel(record=change(rows.encode()).decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda rows: rows + record_row("vllm/more.py", b"x").encode(), "vllm/more.py"),
        (
            lambda rows: rows.replace(record_row(PATH, SOURCES[PATH]).encode(), b""),
            "no hash of vllm",
        ),
        (lambda rows: re.sub(rb"(model.py,.*,)\d+", rb"\g<1>7", rows), "wrongly"),
        (lambda rows: re.sub(rb"model.py,[^,]*", b"model.py,md5=abc", rows), "wrongly"),
        (lambda rows: re.sub(rb"model.py,[^,]*", b"model.py,", rows), "wrongly"),
        (lambda rows: b"vllm/a.py\n" + rows, "cannot be read"),
        (lambda _: b"", "no hash of"),
        (lambda _: b'"', "cannot be read|no hash of"),
    ],
)
def test_a_record_is_held_to_the_rest_of_its_wheel(
    server: PackageServer, change: Callable[[bytes], bytes], why: str
) -> None:
    server.files[WHEEL] = forged(change)
    with pytest.raises(TreeError, match=why):
        opened()
    server.files[WHEEL] = forged(lambda rows: rows)
    assert opened().read(PATH) == SOURCES[PATH]


def test_each_part_is_held_to_its_crc_and_to_the_record(server: PackageServer) -> None:
    server.files[WHEEL] = REAL
    tree = opened()
    with zipfile.ZipFile(BytesIO(REAL)) as whole:
        info = whole.getinfo(PATH)
    at = info.header_offset + 30 + len(PATH)
    assert zlib.decompress(REAL[at : at + info.compress_size], -15) == SOURCES[PATH]
    server.etags = False
    server.files[WHEEL] = REAL[:at] + bytes(info.compress_size) + REAL[at + info.compress_size :]
    with pytest.raises(TreeError, match="corrupt"):
        tree.read(PATH)


def test_verify_needs_a_hash_a_connection_and_a_release(
    server: PackageServer, tmp_path: Path
) -> None:
    opened()
    with pytest.raises(Unreachable):
        opened(offline=True, verify=True)
    server.no_hashes = True
    with pytest.raises(TreeError, match="states no sha256"):
        Releases(cache_dir=str(tmp_path / "2")).open("0.19.1", verify=True)
    with pytest.raises(Exception, match="is not a release"):
        open_tree(str(tmp_path), verify=True)


def test_what_is_kept_under_a_hash_of_before_is_not_believed(
    server: PackageServer, tmp_path: Path
) -> None:
    kept = cache.Cache(str(tmp_path / "cache"))
    kept.record("files", HASH, PATH, data=kept.put(b"evil = 1\n").encode())
    server.files[WHEEL] = REAL
    assert opened().read(PATH) == SOURCES[PATH]
    assert opened(verify=True).read(PATH) == SOURCES[PATH]
