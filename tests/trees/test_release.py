"""``pypi:``: from an index, by ranges or whole, from the cache, and what goes wrong."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import time
import weakref
from typing import TYPE_CHECKING

import pytest
from package_server import (
    BULK,
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

from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.trees.archive import ArchiveTree
from vllm_mods.trees.open import open_tree
from vllm_mods.trees.release import Releases

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from vllm_mods.base.tree import Tree

PATH = "vllm/config/model.py"
REBUILT = "vllm-0.20.1-1-cp38-abi3-manylinux_2_35_x86_64.whl"


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_of_none(tmp_path, monkeypatch, retries=1)


@pytest.fixture(params=["json", "html"])
def server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PackageServer]:
    files = {WHEEL: make_wheel(), SDIST: make_sdist()}
    with serving(PackageServer(files=files, json=request.param == "json")) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def sources_of(tree: Tree) -> dict[str, bytes | None]:
    return {path: tree.read(path) for path in SOURCES}


def test_a_release_is_read_by_ranges(server: PackageServer) -> None:
    releases = Releases()
    tree = releases.open("0.19.1")
    assert sources_of(tree) == SOURCES
    assert tree.read("vllm/gone.py") is None
    assert tree.version == "0.19.1"
    assert tree.spec == "pypi:0.19.1"
    assert tree.remote
    assert tree.pristine
    assert set(tree.paths()) == {*SOURCES, *BULK}
    assert tree.is_released(PATH, SOURCES[PATH]) is True
    assert tree.is_released(PATH, b"") is False
    assert all(span is not None for span in server.asked(WHEEL))
    # One for the length where the index does not tell it, one for the end, one for each file.
    assert len(server.asked(WHEEL)) == (0 if server.json else 1) + 1 + len(SOURCES)
    assert releases.http is not None
    assert releases.http.received < len(server.files[WHEEL]) * 0.6


@pytest.mark.usefixtures("server")
def test_a_release_that_nobody_holds_is_gone_with_all_that_it_read() -> None:
    tree = open_tree("pypi:0.19.1")
    assert sources_of(tree) == SOURCES
    left = weakref.ref(tree)
    gc.disable()  # what only the collector finds stays for long: the map turns it off
    try:
        del tree
        assert left() is None
    finally:
        gc.enable()


def test_what_was_read_is_there_offline(server: PackageServer) -> None:
    sources_of(open_tree("pypi:0.19.1"))
    before = len(server.requests)
    tree = open_tree("pypi:0.19.1", offline=True)
    assert sources_of(tree) == SOURCES
    assert tree.read("vllm/gone.py") is None
    assert len(server.requests) == before
    with pytest.raises(TreeError, match="a part of the file is not in the cache") as caught:
        tree.read("vllm/_C.abi3.so")
    assert caught.value.hint == "run once without --offline"


@pytest.mark.parametrize("kept", ["nothing", "page", "directory"])
def test_what_was_not_read_is_missed_offline(server: PackageServer, kept: str) -> None:
    if kept == "page":
        Releases().files()
    elif kept == "directory":
        Releases().open("0.19.1")
    before = len(server.requests)
    with pytest.raises(TreeError) as caught:
        open_tree("pypi:0.19.1", offline=True).read(PATH)
    assert caught.value.hint == "run once without --offline"
    assert len(server.requests) == before


def test_a_second_run_asks_for_nothing(server: PackageServer) -> None:
    sources_of(open_tree("pypi:0.19.1"))
    before = len(server.requests)
    assert sources_of(open_tree("pypi:0.19.1")) == SOURCES
    assert len(server.requests) == before


def test_a_release_newer_than_the_kept_page_is_found(server: PackageServer) -> None:
    open_tree("pypi:0.19.1")
    server.files[REBUILT] = make_wheel(version="0.20.1")
    assert open_tree("pypi:0.20.1").version == "0.20.1"
    with pytest.raises(UsageError, match="no such release"):
        open_tree("pypi:0.20.2")


def test_a_corrupt_cache_is_fetched_again(server: PackageServer, tmp_path: Path) -> None:
    open_tree("pypi:0.19.1").read(PATH)
    for path in (tmp_path / "cache").rglob("*"):
        if path.is_file():
            path.write_bytes(b"rubbish")
    before = len(server.requests)
    assert open_tree("pypi:0.19.1").read(PATH) == SOURCES[PATH]
    assert len(server.requests) > before
    assert open_tree("pypi:0.19.1", offline=True).read(PATH) == SOURCES[PATH]


def test_without_ranges_the_smaller_sdist_is_read(server: PackageServer) -> None:
    server.ranges = False
    notes: list[str] = []
    progress: list[tuple[str, int, int | None]] = []
    tree = open_tree("pypi:0.19.1", note=notes.append, progress=lambda *step: progress.append(step))
    assert sources_of(tree) == SOURCES
    assert notes == [f"the server sends only whole files: downloading {SDIST}"]
    size = len(server.files[SDIST])
    assert progress[-1] == (f"downloading {SDIST}", size, size)
    notes.clear()
    assert sources_of(open_tree("pypi:0.19.1", offline=True, note=notes.append)) == SOURCES
    assert notes == []
    assert len(server.asked(SDIST)) == 1


@pytest.mark.parametrize("no_hashes", [False, True])
def test_without_ranges_a_rebuilt_wheel_is_read_whole(
    server: PackageServer, *, no_hashes: bool
) -> None:
    # The sdist was made before the wheel was rebuilt from other sources.
    server.files = {REBUILT: make_wheel(version="0.20.1"), "vllm-0.20.1.tar.gz": b"old"}
    server.ranges, server.no_hashes = False, no_hashes
    assert sources_of(open_tree("pypi:0.20.1")) == SOURCES
    assert server.asked("vllm-0.20.1.tar.gz") == []
    before = len(server.requests)
    assert sources_of(open_tree("pypi:0.20.1", offline=True)) == SOURCES
    assert sources_of(open_tree(f"pypi:{REBUILT}")) == SOURCES
    assert len(server.requests) == before


def test_a_range_that_is_another_one_is_as_good_as_none(server: PackageServer) -> None:
    server.wrong_range = True
    assert sources_of(open_tree("pypi:0.19.1")) == SOURCES
    assert len(server.asked(SDIST)) == 1


@pytest.mark.parametrize("name", [WHEEL, SDIST])
def test_a_whole_file_with_another_hash_is_refused_and_not_kept(
    server: PackageServer, tmp_path: Path, name: str
) -> None:
    server.ranges = False
    server.hashes[name] = "0" * 64
    with pytest.raises(TreeError, match=f"{name} from .*: its sha256 is"):
        open_tree(f"pypi:{name}")
    kept = [path.stat().st_size for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert len(server.files[name]) not in kept


def test_a_wheel_that_changes_while_it_is_read_is_refused(server: PackageServer) -> None:
    tree = open_tree("pypi:0.19.1")
    server.grows = True
    with pytest.raises(TreeError, match="should have"):
        tree.read(PATH)


def test_a_file_that_the_record_does_not_vouch_for_is_refused(server: PackageServer) -> None:
    config = SOURCES[PATH]
    rows = "".join(record_row(name, data) for name, data in {**SOURCES, **BULK}.items())
    metadata = b"Name: vllm\nVersion: 0.19.1\n"
    rows += record_row("vllm-0.19.1.dist-info/METADATA", metadata)
    other = record_row(PATH, config[::-1])
    server.files[WHEEL] = make_wheel(record=rows.replace(record_row(PATH, config), other))
    tree = open_tree("pypi:0.19.1")
    assert tree.read("vllm/_version.py")
    with pytest.raises(TreeError, match="does not match RECORD"):
        tree.read(PATH)


def test_metadata_that_the_index_does_not_know_is_refused(server: PackageServer) -> None:
    server.metadata_hash = hashlib.sha256(b"Name: vllm\nVersion: 0.19.1\n").hexdigest()
    assert open_tree("pypi:0.19.1").version == "0.19.1"
    server.files[WHEEL] = make_wheel({**SOURCES, "vllm/new.py": b""})
    server.metadata_hash = "0" * 64
    with pytest.raises(TreeError, match="METADATA"):
        Releases(cache_dir=os.environ["VLLM_MODS_CACHE"] + "2").open("0.19.1")


@pytest.mark.parametrize("fault", ["failures", "truncations"])
def test_a_passing_fault_does_no_harm(
    server: PackageServer, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between two tries
    setattr(server, fault, 1)
    tree = open_tree("pypi:0.19.1")
    setattr(server, fault, 1)
    assert tree.read(PATH) == SOURCES[PATH]


def test_a_server_that_stops_doing_ranges_is_said(server: PackageServer) -> None:
    tree = open_tree("pypi:0.19.1")
    server.ranges = False
    with pytest.raises(TreeError, match="ranges"):
        tree.read(PATH)


def test_an_unknown_release_names_the_nearest(server: PackageServer) -> None:
    server.files["vllm-0.9.0.tar.gz"] = b""
    with pytest.raises(UsageError, match=r"nearest are 0.19.1, 0.9.0") as caught:
        open_tree("pypi:0.19.2")
    assert caught.value.hint == "pypi:0.19.1"
    assert len(server.asked("/vllm/")) == 1
    with pytest.raises(UsageError, match=WHEEL):
        open_tree("pypi:vllm-0.19.1-7-cp38-abi3-manylinux_2_31_x86_64.whl")
    with pytest.raises(UsageError, match="neither a vLLM version"):
        open_tree("pypi:newest")


def test_a_release_is_named_as_pip_names_it_and_the_newest_by_a_word(server: PackageServer) -> None:
    server.files["vllm-0.20.0rc1.tar.gz"] = b""
    notes: list[str] = []
    for spec in ("vllm==0.19.1", "pypi:vllm==0.19.1", "pypi:latest"):
        tree = open_tree(spec, note=notes.append)
        assert (tree.version, tree.spec) == ("0.19.1", "pypi:0.19.1")
    assert notes == ["pypi:latest is 0.19.1"]


def test_an_index_of_pre_releases_has_no_newest_release(server: PackageServer) -> None:
    server.files = {"vllm-0.20.0rc1.tar.gz": b""}
    with pytest.raises(UsageError, match="only pre-releases"):
        open_tree("pypi:latest")


def test_a_yanked_release_is_read_and_said(server: PackageServer) -> None:
    server.yanked = {WHEEL: "broken kernels", SDIST: ""}
    notes: list[str] = []
    assert open_tree("pypi:0.19.1", note=notes.append).version == "0.19.1"
    assert notes == [f"{WHEEL} was yanked: broken kernels"]


@pytest.mark.usefixtures("server")
def test_an_index_without_vllm_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "extra").mkdir()
    with serving(PackageServer(files={}, absent=True)) as other:
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{other.index} file://{tmp_path}/extra")
        monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path}/extra /gone")
        notes: list[str] = []
        assert open_tree("pypi:0.19.1", note=notes.append).version == "0.19.1"
    assert notes == []
    # Offline its answer is still known.
    assert open_tree("pypi:0.19.1", offline=True).version == "0.19.1"


@pytest.mark.usefixtures("server")
def test_an_index_that_is_down_is_an_error_only_if_nothing_else_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    down = "http://127.0.0.1:9/simple"
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", down)
    notes: list[str] = []
    assert open_tree("pypi:0.19.1", note=notes.append).version == "0.19.1"
    (note,) = notes
    sentence = "no network connection to 127.0.0.1: "
    assert sentence in note
    with pytest.raises(TreeError, match=sentence):
        open_tree("pypi:0.20.0")
    monkeypatch.setenv("PIP_INDEX_URL", down)
    with pytest.raises(TreeError, match=sentence):
        Releases().files()


def test_a_source_that_is_down_is_asked_and_said_once(
    server: PackageServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    with serving(PackageServer(files={}, failures=99)) as down:
        monkeypatch.setenv("PIP_EXTRA_INDEX_URL", down.index)
        monkeypatch.setenv("PIP_RETRIES", "0")
        notes: list[str] = []
        releases = Releases(note=notes.append, cache_dir=str(tmp_path / "file" / "x"))
        for _ in range(3):
            assert releases.open("0.19.1").version == "0.19.1"
        assert len(down.requests) == 1
    assert len(server.asked("/vllm/")) == 1
    assert len([note for note in notes if "503" in note]) == 1


def test_a_kept_page_stands_in_for_an_index_that_is_down(
    server: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_tree("pypi:0.19.1").read(PATH)
    server.failures = 99
    monkeypatch.setattr("vllm_mods.trees.sources.FRESH_SECONDS", 0.0)
    notes: list[str] = []
    assert open_tree("pypi:0.19.1", note=notes.append).read(PATH) == SOURCES[PATH]
    (note,) = notes
    assert "503" in note
    assert "using the cached page" in note


@pytest.mark.parametrize("kind", ["index", "links"])
def test_local_folders_are_indexes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    place = tmp_path / "my #1 index" / "vllm"
    place.mkdir(parents=True)
    (place / WHEEL).write_bytes(make_wheel())
    digest = hashlib.sha256(make_wheel()).hexdigest()
    page = place / "index.html"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    if kind == "index":
        page.write_text(f'<a href="{WHEEL}#sha256={digest}">x</a>')
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.setenv("PIP_INDEX_URL", place.parent.as_uri())
    else:
        (tmp_path / "links").symlink_to(place)  # In the variable a blank parts two places.
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    for offline in (False, True):
        assert sources_of(open_tree("pypi:0.19.1", offline=offline)) == SOURCES
    if kind == "index":
        page.write_text(f'<a href="{WHEEL}#sha256={"0" * 64}">x</a>')
        with pytest.raises(TreeError, match="its sha256 is"):
            open_tree("pypi:0.19.1")


def test_a_home_that_cannot_be_written_does_no_harm(server: PackageServer, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for ranges in (True, False):
        server.ranges = ranges
        notes: list[str] = []
        tree = open_tree("pypi:0.19.1", cache_dir=str(tmp_path / "file" / "x"), note=notes.append)
        assert sources_of(tree) == SOURCES
        before = len(server.requests)
        assert sources_of(tree) == SOURCES
        assert len(server.requests) == before
        assert len([note for note in notes if note.startswith("working without the cache ")]) == 1


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.usefixtures("server")
def test_several_processes_fill_one_cache(tmp_path: Path) -> None:
    code = (
        "from vllm_mods.trees.open import open_tree\n"
        "for _ in range(5):\n"
        "    tree = open_tree('pypi:0.19.1')\n"
        "    print(*(len(tree.read(path)) for path in sorted(tree.paths())))\n"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    sizes = {path: len(data) for path, data in {**SOURCES, **BULK}.items()}
    expected = " ".join(str(sizes[path]) for path in sorted(sizes))
    for process in running:
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert said.splitlines() == [expected] * 5
    blobs = [path for path in (tmp_path / "cache" / "blobs").rglob("*") if path.is_file()]
    assert blobs
    for blob in blobs:
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
    assert not list((tmp_path / "cache").rglob(".*"))


def test_a_release_is_known_by_what_was_seen_of_it_without_being_opened(
    server: PackageServer,
) -> None:
    releases = Releases()
    assert releases.identity("0.99") is None
    assert releases.identity("0.19.1") is None
    tree = releases.open("0.19.1")
    assert isinstance(tree, ArchiveTree)
    before = len(server.requests)
    assert Releases().identity("0.19.1") == tree.identity is not None
    assert len(server.requests) == before
    releases.verify("0.19.1")
    assert releases.identity("0.19.1") == hashlib.sha256(server.files[WHEEL]).hexdigest()
    tree = releases.open("0.19.1")
    assert isinstance(tree, ArchiveTree)
    assert tree.identity == releases.identity("0.19.1")


def test_without_ranges_the_hash_is_that_of_what_was_read(server: PackageServer) -> None:
    server.ranges = False
    tree = Releases().open("0.19.1")
    assert isinstance(tree, ArchiveTree)
    assert tree.identity == hashlib.sha256(server.files[SDIST]).hexdigest()


@pytest.mark.usefixtures("server")
def test_a_build_without_a_number_names_its_commit_and_no_other_release() -> None:
    with pytest.raises(UsageError, match="a build of the commit ace95c9cf") as caught:
        open_tree("pypi:0.22.1rc1.dev124+gace95c9cf")
    assert "git:REPO@ace95c9cf" in (caught.value.hint or "")
    assert "pypi:" not in (caught.value.hint or "")


def test_a_file_that_another_release_has_too_is_read_once(server: PackageServer) -> None:
    later = WHEEL.replace("0.19.1", "0.20.0")
    server.files[later] = make_wheel(version="0.20.0")
    releases = Releases()
    first, second = (releases.open(version) for version in ("0.19.1", "0.20.0"))
    data = first.read("vllm/config/model.py")
    before = len(server.asked(later))
    assert second.read("vllm/config/model.py") == data
    assert len(server.asked(later)) == before


def test_a_record_that_names_the_file_of_another_release_is_found_out(
    server: PackageServer,
) -> None:
    later = WHEEL.replace("0.19.1", "0.20.0")
    rows = "".join(record_row(name, data) for name, data in {**SOURCES, **BULK}.items())
    rows += record_row("vllm-0.20.0.dist-info/METADATA", b"Name: vllm\nVersion: 0.20.0\n")
    other = {**SOURCES, PATH: SOURCES[PATH][::-1]}
    server.files[later] = make_wheel(other, version="0.20.0", record=rows)
    releases = Releases()
    assert releases.open("0.19.1").read(PATH) == SOURCES[PATH]
    with pytest.raises(TreeError, match="does not match RECORD"):
        releases.open("0.20.0").read(PATH)
