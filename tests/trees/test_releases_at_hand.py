"""Releases in a folder and on a server: which file is taken, what is known of it, and what a refusal says."""

from __future__ import annotations

import hashlib
import io
import zipfile
from typing import TYPE_CHECKING

import pytest
from package_server import (
    SDIST,
    SOURCES,
    WHEEL,
    PackageServer,
    make_sdist,
    make_wheel,
    record_row,
    serving,
    settings_of_none,
)

from vllm_mods.base.cache import Cache
from vllm_mods.base.errors import TreeError, Unreachable, UsageError
from vllm_mods.trees import remote
from vllm_mods.trees.archive import ZipArchive
from vllm_mods.trees.index import release_file
from vllm_mods.trees.release import Releases
from vllm_mods.trees.remote import Seen, checked_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = "pip config list  # index-url, extra-index-url and find-links are taken from there"
SMALL = make_wheel(bulk={})
PATH = "vllm/config/model.py"
LATER = "vllm-0.20.0.tar.gz"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have pip look into a folder with two releases, and nowhere else."""
    settings_of_none(tmp_path, monkeypatch)
    folder = tmp_path / "shelf"
    folder.mkdir()
    (folder / WHEEL).write_bytes(SMALL)
    (folder / SDIST).write_bytes(make_sdist())
    (folder / LATER).write_bytes(make_sdist(version="0.20.0"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def linked(shelf: Path, *links: str) -> None:
    """Put a page into the folder that goes before what lies in it."""
    text = "".join(f'<a href="{link}"></a>' for link in links)
    (shelf / "index.html").write_text(text)


def test_of_a_release_the_wheel_is_opened_and_the_sdist_is_all_of_its_source(shelf: Path) -> None:
    releases = Releases()
    assert releases.versions() == {"0.19.1", "0.20.0"}
    tree = releases.open("0.19.1")
    assert (tree.spec, tree.version, tree.remote) == ("pypi:0.19.1", "0.19.1", True)
    assert (tree.identity, tree.verified, tree.releases) == (None, None, releases)
    assert tree.read(PATH) == SOURCES[PATH]
    whole = releases.whole("0.19.1")
    assert "PKG-INFO" in whole.folders()
    assert (whole.spec, whole.remote, whole.releases) == ("pypi:0.19.1", False, releases)
    assert releases.whole(WHEEL).read("PKG-INFO") is not None
    (shelf / SDIST).unlink()
    assert Releases().whole("0.19.1").read("PKG-INFO") is None


def test_an_sdist_that_was_yanked_is_not_taken_for_the_whole(shelf: Path) -> None:
    (shelf / "index.html").write_text(f'<a data-yanked href="{SDIST}"></a>')
    assert Releases().whole("0.19.1").read("PKG-INFO") is None
    assert Releases().versions() == {"0.19.1", "0.20.0"}
    (shelf / WHEEL).unlink()
    assert Releases().versions() == {"0.20.0"}


@pytest.mark.parametrize(
    ("reason", "words"), [('="it was broken"', "it was broken"), ("", "no reason given")]
)
def test_that_a_release_was_yanked_is_told(shelf: Path, reason: str, words: str) -> None:
    notes: list[str] = []
    (shelf / "index.html").write_text(f'<a data-yanked{reason} href="{LATER}"></a>')
    Releases(note=notes.append).open("0.20.0")
    assert notes == [f"{LATER} was yanked: {words}"]


def test_a_file_is_known_by_the_hash_that_a_page_states(shelf: Path) -> None:
    linked(shelf, f"{WHEEL}#sha256={sha(SMALL)}", f"{LATER}#sha256={'0' * 64}")
    releases = Releases()
    tree = releases.open("0.19.1")
    assert (tree.identity, tree.verified) == (sha(SMALL), "whole")
    assert releases.identity("0.19.1") == sha(SMALL)
    assert releases.identity("0.20.0") == "0" * 64
    assert releases.identity("0.99") is None
    with pytest.raises(TreeError) as caught:
        releases.open("0.20.0")
    data = (shelf / LATER).read_bytes()
    assert caught.value.message == (
        f"{LATER} from file://{shelf}/{LATER}: its sha256 is {sha(data)}, but the index says {'0' * 64}"
    )
    assert caught.value.hint == "the index or a proxy changed the file: try another index"


def test_a_file_that_is_gone_is_said(shelf: Path) -> None:
    linked(shelf, "vllm-0.30.0.tar.gz")
    with pytest.raises(TreeError) as caught:
        Releases().open("0.30.0")
    message = f"{shelf}/vllm-0.30.0.tar.gz: No such file or directory"
    assert (caught.value.message, caught.value.hint) == (message, SETTINGS)


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        (
            "vllm-0.19.1-py3-none-any.whl",
            f"no such file; files of that release: {WHEEL}, {SDIST}",
            "pypi:VERSION",
        ),
        (
            "vllm-9-py3-none-any.whl",
            "neither a vLLM version nor the name of a release's file",
            "pypi:VERSION",
        ),
        ("odd", "neither a vLLM version nor the name of a release's file", "pypi:VERSION"),
        ("0.19.2", "there is no such release; the nearest are 0.19.1, 0.20.0", "pypi:0.19.1"),
        (
            "0.22.1rc1.dev124+gace95c9cf",
            "this is a build of the commit ace95c9cf, and no index has that build",
            "use --commits REPO or git:REPO@ace95c9cf, where REPO is a clone of vLLM; or wheel:FILE; or the folder where this build is installed",
        ),
    ],
)
@pytest.mark.usefixtures("shelf")
def test_a_release_that_there_is_not(name: str, message: str, hint: str) -> None:
    for open_it in (Releases.open, Releases.whole):
        with pytest.raises(UsageError) as caught:
            open_it(Releases(), name)
        assert (caught.value.message, caught.value.hint) == (f"pypi:{name}: {message}", hint)


@pytest.mark.usefixtures("shelf")
def test_offline_only_what_is_kept_is_known() -> None:
    with pytest.raises(Unreachable) as caught:
        Releases(offline=True).open("0.30.0")
    message = "pypi:0.30.0: the cached index has no such release"
    assert (caught.value.message, caught.value.hint) == (message, "run once without --offline")


def test_where_there_is_nothing_the_settings_are_named(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (WHEEL, SDIST, LATER):
        (shelf / name).unlink()
    with pytest.raises(TreeError) as caught:
        Releases().files()
    message = "no release of vllm found: no index or folder has it"
    assert (caught.value.message, caught.value.hint) == (message, SETTINGS)
    with pytest.raises(TreeError, match="no release of six found: "):
        Releases().of("six").files()
    with pytest.raises(TreeError, match="pypi:1: not found: no index or folder has it"):
        Releases().open("1")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "https://h.example/simple")
    with pytest.raises(Unreachable) as unreachable:
        Releases(offline=True).files()
    page = "https://h.example/simple/vllm/"
    why = f"{page}: this page is not in the cache, and --offline forbids the network"
    assert unreachable.value.message == f"cannot list the releases of vllm\n  {why}"
    assert unreachable.value.hint == "run once without --offline"


def test_a_source_that_fails_is_told_where_another_has_the_release(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    (shelf / "no page").write_bytes(b"")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", "https://h.example/simple")
    releases = Releases(offline=True, note=notes.append)
    releases.open("0.19.1")
    releases.files()
    assert len(notes) == 1
    assert notes[0].startswith("https://h.example/simple/vllm/: ")


@pytest.mark.usefixtures("shelf")
def test_what_lies_here_is_verified_as_it_is_read() -> None:
    releases = Releases()
    assert releases.open("0.19.1", verify=True).verified is None
    assert releases.of("six") is releases.of("six")
    assert releases.of("six").http is releases.http


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    settings_of_none(tmp_path, monkeypatch)
    with serving(PackageServer(files={WHEEL: SMALL}, json=True)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def test_a_wheel_is_verified_once_as_a_whole(server: PackageServer) -> None:
    seen: list[tuple[str, int, int | None]] = []
    releases = Releases(progress=lambda *words: seen.append(words))
    assert releases.identity("0.19.1") is None
    parts = releases.open("0.19.1")
    assert parts.verified == "parts"
    assert parts.identity == releases.identity("0.19.1") != sha(SMALL)
    releases.verify("0.19.1")
    assert seen[-1] == (f"downloading {WHEEL}", len(SMALL), len(SMALL))
    assert releases.identity("0.19.1") == sha(SMALL)
    tree = releases.open("0.19.1")
    assert (tree.verified, tree.identity) == ("whole", sha(SMALL))
    server.requests.clear()
    releases.verify("0.19.1")
    assert server.requests == []


@pytest.mark.parametrize("unstated", [True, False])
def test_a_wheel_without_a_hash_cannot_be_verified(
    server: PackageServer, *, unstated: bool
) -> None:
    server.no_hashes = True
    notes: list[str] = []
    releases = Releases(note=notes.append)
    why = f"{WHEEL}: the index states no sha256, so the file cannot be verified"
    if unstated:
        releases.verify("0.19.1", unstated=True)
        assert notes == [why]
    else:
        with pytest.raises(TreeError) as caught:
            releases.open("0.19.1", verify=True)
        assert (caught.value.message, caught.value.hint) == (why, SETTINGS)


def test_a_file_that_is_not_kept_is_missed_offline(server: PackageServer) -> None:
    Releases().files()
    with pytest.raises(Unreachable) as caught:
        Releases(offline=True).open("0.19.1")
    message = f"{WHEEL}: it is not in the cache"
    assert (caught.value.message, caught.value.hint) == (message, "run once without --offline")
    assert server.requests


def archive(*entries: tuple[str, bytes]) -> ZipArchive:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as packed:
        for name, data in entries:
            packed.writestr(name, data)
    return ZipArchive(stream, label="x.whl")


RECORD = "vllm-1.dist-info/RECORD"
GOOD = record_row("vllm/a.py", b"1")


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (None, "it has no RECORD"),
        (record_row("vllm/a.py", b"12"), "its RECORD describes vllm/a.py wrongly"),
        ("vllm/a.py,,1\n", "its RECORD describes vllm/a.py wrongly"),
        (GOOD + record_row("vllm/b.py", b"1"), "its RECORD describes vllm/b.py wrongly"),
        ("", "its RECORD has no hash of vllm/a.py"),
        (f"{RECORD},,\n", "its RECORD has no hash of vllm/a.py"),
        ("vllm/a.py\n", "its RECORD cannot be read: list index out of range"),
    ],
)
def test_a_record_that_does_not_list_the_wheel(rows: str | None, why: str) -> None:
    entries = [("vllm/a.py", b"1")] + ([] if rows is None else [(RECORD, rows.encode())])
    with pytest.raises(TreeError) as caught:
        checked_record(archive(*entries), "x.whl")
    hint = "the index or a proxy changed the wheel: try another index"
    assert (caught.value.message, caught.value.hint) == (f"x.whl: {why}", hint)


def test_a_record_that_lists_the_wheel_need_not_list_its_own_signatures() -> None:
    rows = f"{GOOD}{RECORD},,\n".encode()
    signed = [(f"{RECORD}.jws", b"x"), (f"{RECORD}.p7s", b"y")]
    assert checked_record(archive(("vllm/a.py", b"1"), (RECORD, rows), *signed), "x.whl") == rows
    two = archive(("vllm/a.py", b"1"), (RECORD, rows), ("six-1.dist-info/RECORD", b""))
    with pytest.raises(TreeError, match=r"x\.whl: it has no RECORD"):
        checked_record(two, "x.whl")


@pytest.mark.parametrize(
    ("extents", "pieces"),
    [
        ([], []),
        ([(1, 2)], [(1, 2)]),
        ([(0, 10), (15, 20)], [(0, 20)]),
        ([(0, 10), (16, 20)], [(0, 10), (16, 20)]),
        ([(0, 20), (22, 40)], [(0, 40)]),
        ([(0, 20), (22, 41)], [(0, 20), (22, 41)]),
        ([(0, 10), (12, 20), (22, 30), (90, 99)], [(0, 30), (90, 99)]),
    ],
)
def test_parts_that_lie_near_to_each_other_are_asked_for_at_once(
    monkeypatch: pytest.MonkeyPatch, extents: list[tuple[int, int]], pieces: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(remote, "_GAP", 5)
    monkeypatch.setattr(remote, "_PIECE", 40)
    assert remote._pieces(extents) == pieces


def test_what_is_pinned_holds_for_what_was_seen_before(tmp_path: Path) -> None:
    cache = Cache(str(tmp_path))
    file = release_file(WHEEL, "https://h/x")
    assert file is not None
    file = file._replace(sha256=sha(SMALL))
    assert remote.seen_of(file, cache, None) is None
    remote._keep(cache, Seen(1, "e", 0, "d", "r"), "seen", file.url, sha(SMALL))
    seen = remote.seen_of(file, cache, None)
    assert seen == Seen(1, "e", 0, "d", "r", whole=False)
    with pytest.raises(TreeError) as caught:
        remote.pin(file, cache, io.BytesIO(SMALL))
    assert caught.value.message == (
        f"{WHEEL}: earlier, the server sent parts of another file; the complete download has the right sha256"
    )
    assert (
        caught.value.hint == "run the command again: it compares each part with the complete file"
    )
    whole = remote.seen_of(file, cache, None)
    assert whole is not None
    assert (whole.total, whole.whole, whole.etag) == (len(SMALL), True, "")
    assert whole.key != seen.key


@pytest.mark.parametrize("change", [{"total": 9}, {"etag": "f"}, {"start": 9}, {"record": "x"}])
def test_parts_are_kept_under_all_that_is_known_of_a_file(change: dict[str, object]) -> None:
    seen = Seen(1, "e", 0, "d", "r")
    assert seen._replace(**change).key != seen.key  # type: ignore[arg-type]
    assert seen._replace(whole=True).key == seen.key


FETCHING: list[Callable[[PackageServer], None]] = [
    lambda server: setattr(server, "etags", True),
    lambda server: setattr(server, "etags", False),
]


@pytest.mark.parametrize("switch", FETCHING)
def test_whether_a_wheel_is_the_one_that_was_seen_is_asked_after_a_while(
    server: PackageServer, monkeypatch: pytest.MonkeyPatch, switch: Callable[[PackageServer], None]
) -> None:
    switch(server)
    releases = Releases()
    known = releases.open("0.19.1").identity
    monkeypatch.setattr(remote, "FRESH_SECONDS", 0)
    server.requests.clear()
    assert releases.identity("0.19.1") == (known if server.etags else None)
    assert [span for _, span in server.requests] == ["bytes=0-0"]


def test_a_kept_record_that_is_not_the_wheels_is_noticed(
    server: PackageServer, tmp_path: Path
) -> None:
    releases = Releases()
    own = f"{releases.open('0.19.1').version}"
    (file,) = releases.files()
    cache = Cache(str(tmp_path / "cache"))
    seen = remote.seen_of(file, cache, None)
    assert seen is not None
    other = seen._replace(record=cache.put(b"other"))
    remote._keep(cache, other, "seen", file.url, file.sha256 or "")
    tree = Releases().open("0.19.1")
    record = f"vllm-{own}.dist-info/RECORD"
    with pytest.raises(TreeError) as caught:
        tree.read(record)
    message = f"{WHEEL}: {record} does not match RECORD"
    hint = "the index or a proxy changed the wheel: try another index"
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert server.requests


def test_what_is_kept_of_a_download_and_is_rubbish_counts_for_nothing(
    server: PackageServer, tmp_path: Path
) -> None:
    server.no_hashes, server.ranges = True, False
    (file,) = Releases().files()
    Cache(str(tmp_path / "cache")).record("downloads", file.url, data=b"\xff\xfe")
    assert Releases().open("0.19.1").version == "0.19.1"
