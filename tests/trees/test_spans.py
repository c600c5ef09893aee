"""A remote file as a seekable one: which ranges are asked for, and what is wrong with an answer."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, cast

import pytest

from vllm_mods.base.errors import TreeError, Unreachable
from vllm_mods.trees import spans
from vllm_mods.trees.http import ByteSpan
from vllm_mods.trees.index import ReleaseFile
from vllm_mods.trees.spans import NoRangesError, Spans

if TYPE_CHECKING:
    from vllm_mods.trees.http import Http

DATA = bytes(range(100))


class Server:
    """What answers a range of ``DATA``; ``answers`` go before it."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.answers: list[ByteSpan | None] = []

    def span(self, _url: str, start: int, end: int) -> ByteSpan | None:
        self.ranges.append((start, end))
        if self.answers:
            return self.answers.pop(0)
        return ByteSpan(DATA[start:end], len(DATA), "e")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(spans, "_TAIL", 30)
    return Server()


def file_of(
    server: Server | None, size: int | None = 100, notes: list[object] | None = None
) -> Spans:
    file = ReleaseFile("x.whl", "u", "1", "wheel", size=size)
    tell = None if notes is None else (lambda *words: notes.append(words))
    return Spans(file, cast("Http | None", server), tell)


@pytest.mark.parametrize(("size", "ranges"), [(100, [(70, 100)]), (None, [(0, 1), (70, 100)])])
def test_the_end_of_a_file_comes_first(
    server: Server, size: int | None, ranges: list[tuple[int, int]]
) -> None:
    file = file_of(server, size)
    file.open()
    assert server.ranges == ranges
    assert (file.total, file.etag) == (100, "e")
    assert file.bytes_at(80, 90) == DATA[80:90]
    assert server.ranges == ranges


def test_a_file_smaller_than_its_end_is_asked_for_whole(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spans, "_TAIL", 200)
    file_of(server).open()
    assert server.ranges == [(0, 100)]


def test_only_what_is_missing_is_fetched(server: Server) -> None:
    file = file_of(server)
    file.open()
    server.ranges.clear()
    assert file.bytes_at(10, 20) == DATA[10:20]
    assert file.bytes_at(12, 20) == DATA[12:20]
    assert server.ranges == [(10, 20)]
    assert not file.has(10, 21)
    assert not file.has(9, 20)
    assert file.has(70, 100)
    assert file.bytes_at(50, 75) == DATA[50:75]
    assert file.bytes_at(50, 100) == DATA[50:]
    assert server.ranges == [(10, 20), (50, 70)]
    assert file.bytes_at(30, 50) == DATA[30:50]
    assert server.ranges[2:] == [(30, 50)]


def test_a_file_is_read_on_from_its_place(server: Server) -> None:
    file = file_of(server)
    file.open()
    assert file.seekable()
    assert file.seek(75) == 75
    assert (file.read(5), file.read(3)) == (DATA[75:80], DATA[80:83])
    assert file.seek(-2, io.SEEK_CUR) == 81
    assert file.seek(-4, io.SEEK_END) == 96
    assert file.read(10) == DATA[96:]
    assert file.read(10) == file.read() == b""
    file.seek(98)
    assert file.read(None) == DATA[98:]
    file.seek(99)
    assert file.read() == DATA[99:]
    with pytest.raises(OSError, match="seek to -1"):
        file.seek(-1)
    assert file.seek(0) == 0


def test_the_end_may_come_from_somebody_who_has_it() -> None:
    file = file_of(None)
    file.keep_tail(60, DATA[60:], 100, "e")
    assert file.bytes_at(70, 80) == DATA[70:80]
    with pytest.raises(Unreachable) as caught:
        file.bytes_at(10, 20)
    message = "x.whl: a part of the file is not in the cache"
    assert (caught.value.message, caught.value.hint) == (message, "run once without --offline")


def test_a_server_without_ranges_is_none(server: Server) -> None:
    with pytest.raises(NoRangesError):
        file_of(None).open()
    for size in (None, 100):
        server.answers = [None]
        with pytest.raises(NoRangesError):
            file_of(server, size).open()


@pytest.mark.parametrize(
    ("answer", "message", "hint"),
    [
        (None, "the server stopped supporting byte ranges", "try again"),
        (
            ByteSpan(b"0123456789", 99, "e"),
            "it should have 100 bytes, but the server has 99",
            "the file on the server differs from the index's description: try again",
        ),
        (
            ByteSpan(b"0123456789", 100, "other"),
            "it was changed on the server during the download",
            "run the command again",
        ),
    ],
)
def test_a_file_that_changes_while_it_is_read(
    server: Server, answer: ByteSpan | None, message: str, hint: str
) -> None:
    file = file_of(server)
    file.open()
    server.answers = [answer]
    with pytest.raises(TreeError) as caught:
        file.bytes_at(10, 20)
    assert (caught.value.message, caught.value.hint) == (f"x.whl: {message}", hint)


def test_a_server_that_names_no_state_is_believed(server: Server) -> None:
    file = file_of(server)
    file.open()
    server.answers = [ByteSpan(DATA[10:20], 100, "")]
    assert file.bytes_at(10, 20) == DATA[10:20]
    assert file.etag == "e"


def test_who_reads_is_told_what_comes(server: Server) -> None:
    notes: list[object] = []
    file_of(server, notes=notes).open()
    assert notes == [("reading x.whl", 0, 30), ("reading x.whl", 30, 30)]
