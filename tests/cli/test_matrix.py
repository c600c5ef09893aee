"""``matrix`` against an index of small releases: verdicts, what is kept, and what goes wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from command_line import FILES, LOADER, OTHER
from mod_making import diff_of, write_mod
from package_server import PackageServer, make_sdist, make_wheel, serving, settings_of_none
from small_site import build

from vllm_mods.planning import planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

CHANGED = LOADER.replace("path = os.path.join", "place = os.path.join").encode()
MOVED = ("import sys\n" + LOADER).encode()


def wheel_name(version: str, build: str = "") -> str:
    return f"vllm-{version}-{build}cp38-abi3-manylinux_2_31_x86_64.whl"


def release(version: str, **files: bytes) -> bytes:
    changed = {f"vllm/{name}.py": data for name, data in files.items()}
    return make_wheel({**FILES, **changed}, version=version, bulk={})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    settings_of_none(tmp_path, monkeypatch)
    # processes beside this one take a second to start: those who ask for them get them
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0})
    files = {
        wheel_name("0.18.0"): release("0.18.0"),
        wheel_name("0.19.0"): release("0.19.0"),
        wheel_name("0.20.0"): release("0.20.0", loader=MOVED),
        wheel_name("0.20.0", "1-"): release("0.20.0", loader=CHANGED),
        wheel_name("0.21.0rc1"): release("0.21.0rc1"),
        wheel_name("0.21.0"): release("0.21.0", loader=CHANGED, other=OTHER.encode() + b"X = 1\n"),
    }
    with serving(PackageServer(files=files, json=True)) as running:
        monkeypatch.setenv("PIP_INDEX_URL", running.index)
        yield running


def grid(answer: Answer) -> dict[tuple[str, str], str]:
    return {
        (cell["mod"], cell["tree"].removeprefix("pypi:")): cell["verdict"]
        for cell in answer.json["cells"]
    }


EXPECTED = {
    ("fast", "0.19.0"): "applies",
    ("fast", wheel_name("0.20.0")): "moved",
    ("fast", "0.20.0"): "conflict",
    ("fast", "0.21.0"): "conflict",
    ("limit", "0.19.0"): "applies",
    ("limit", wheel_name("0.20.0")): "applies",
    ("limit", "0.20.0"): "applies",
    ("limit", "0.21.0"): "applies",
}


@pytest.mark.slow
def test_every_release_and_rebuilt_wheel_has_its_cells(call: Call, index: PackageServer) -> None:
    answer = call("matrix", "fast", "limit", "--json")
    assert answer.code == 1, answer.err
    assert grid(answer) == EXPECTED
    assert set(answer.json) == {"schema", "cells", "problems"}
    assert {cell["version"] for cell in answer.json["cells"]} == {"0.19.0", "0.20.0", "0.21.0"}
    assert index.requests


@pytest.mark.usefixtures("index")
def test_a_range_that_no_release_is_in_is_a_wrong_call(call: Call) -> None:
    answer = call("matrix", "limit", "--vllm", ">=99")
    assert (answer.code, answer.out) == (2, "")
    assert ">=99 contains no release of vLLM; the newest is 0.2" in answer.err


def test_a_range_beside_trees_is_a_wrong_call(call: Call, site: Path) -> None:
    for option in (("--vllm", ">=0.19"), ("--pre",)):
        answer = call("matrix", "limit", "--tree", site, *option)
        assert (answer.code, answer.out) == (2, "")
        assert "--tree cannot be used with --vllm or --pre" in answer.err


@pytest.mark.slow
@pytest.mark.usefixtures("library")
def test_a_library_of_ones_own_is_shown_without_the_bundled_mods(
    call: Call, index: PackageServer
) -> None:
    own = {cell["mod"] for cell in call("matrix", "--vllm", "==0.19.0", "--json").json["cells"]}
    assert own == {"fast", "limit"}
    both = call("matrix", "limit", "flashqla", "--vllm", "==0.19.0", "--json")
    assert {cell["mod"] for cell in both.json["cells"]} == {"limit", "flashqla"}
    assert index.requests


@pytest.mark.slow
def test_pre_releases_come_when_they_are_asked_for(call: Call, index: PackageServer) -> None:
    answer = call("matrix", "limit", "--pre", "--json")
    assert ("limit", "0.21.0rc1") in grid(answer)
    assert index.requests


@pytest.mark.slow
def test_nothing_changed_asks_nobody_and_plans_nothing(
    call: Call, index: PackageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = call("matrix", "fast", "limit", "--json")
    index.requests.clear()
    monkeypatch.setattr(planner, "plan", None)
    second = call("matrix", "fast", "limit", "--json")
    assert second.out == first.out
    assert second.code == first.code
    assert index.requests == []


@pytest.mark.slow
def test_processes_give_the_same_bytes(call: Call, index: PackageServer) -> None:
    serial = call("matrix", "limit", "--json", "--jobs", "1", "--no-cache")
    spread, err = start("--jobs", "2", "--no-cache").communicate()
    assert spread.decode() == serial.out, err
    assert grid(serial) == {cell: verdict for cell, verdict in EXPECTED.items() if "limit" in cell}
    assert index.requests


@pytest.mark.slow
def test_without_the_cache_no_answer_is_kept(
    call: Call, index: PackageServer, tmp_path: Path
) -> None:
    call("matrix", "limit", "--no-cache")
    assert not (tmp_path / "cache/answers").exists()
    call("matrix", "limit")
    assert (tmp_path / "cache/answers").is_dir()
    assert index.requests


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("damage", ["cut", "flipped", "exchanged", "empty"])
def test_damaged_answers_are_computed_anew(
    call: Call, index: PackageServer, tmp_path: Path, damage: str
) -> None:
    first = call("matrix", "fast", "limit", "--json")
    kept = [
        path
        for path in sorted((tmp_path / "cache/answers").rglob("*"))
        if path.is_file() and path.name != ".swept"
    ]
    assert len(kept) == len(EXPECTED)
    contents = [path.read_bytes() for path in kept]
    for number, path in enumerate(kept):
        data = contents[number]
        middle = len(data) // 2
        changed = {
            "cut": data[:middle],
            "flipped": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "exchanged": contents[number - 1],
            "empty": b"",
        }
        path.write_bytes(changed[damage])
    assert call("matrix", "fast", "limit", "--json").out == first.out
    assert index.requests


@pytest.mark.slow
def test_a_new_release_costs_one_column(call: Call, index: PackageServer, tmp_path: Path) -> None:
    call("matrix", "fast", "limit")
    index.files[wheel_name("0.22.0")] = release("0.22.0")
    for page in (tmp_path / "cache/pages").rglob("*"):
        if page.is_file():
            page.unlink()
    index.requests.clear()
    answer = call("matrix", "fast", "limit", "--json")
    assert grid(answer)["fast", "0.22.0"] == "applies"
    assert {path for path, _ in index.requests} == {
        "/simple/vllm/",
        f"/files/{wheel_name('0.22.0')}",
    }


@pytest.mark.usefixtures("index")
def test_a_folder_is_planned_each_time(call: Call, tmp_path: Path) -> None:
    site = build(tmp_path / "one", FILES)
    first = call("matrix", "limit", "--tree", site, "--json")
    assert call("matrix", "limit", "--tree", site, "--json").out == first.out
    (site / "vllm/other.py").write_text("another = 1\n")
    changed = call("matrix", "limit", "--tree", site, "--json")
    assert changed.json["cells"][0]["verdict"] == "missing"


@pytest.mark.slow
def test_a_changed_mod_is_computed_again(call: Call, index: PackageServer, library: Path) -> None:
    call("matrix", "limit")
    write_mod(
        library, "limit", diff_of("vllm/other.py", OTHER.replace("1", "7"), OTHER.replace("1", "8"))
    )
    assert grid(call("matrix", "limit", "--json"))["limit", "0.19.0"] == "conflict"
    assert index.requests


@pytest.mark.slow
def test_offline_kept_cells_answer_and_the_others_say_so(
    call: Call, index: PackageServer, library: Path
) -> None:
    call("matrix", "limit", "--vllm", "==0.19.0")
    write_mod(library, "later", diff_of("vllm/a.py", "A = 1\n", "A = 2\n"))
    answer = call("matrix", "limit", "later", "--offline", "--json")
    assert answer.code == 1
    cells = {(cell["mod"], cell["tree"]): cell for cell in answer.json["cells"]}
    # a release is read whole, so that another mod can be asked as well
    assert cells["limit", "pypi:0.19.0"]["verdict"] == "applies"
    assert cells["later", "pypi:0.19.0"]["verdict"] == "applies"
    other = cells["later", "pypi:0.20.0"]
    assert (other["computed"], other["verdict"]) == (False, "unreadable")
    assert "run once without --offline" in other["findings"][0]["message"]
    # what nobody could tell is not kept either
    online = call("matrix", "limit", "later", "--json")
    assert grid(online)["later", "0.19.0"] == "applies"
    assert index.requests


def _corrupt(data: bytes) -> bytes:
    """Damage what is compressed of vllm/other.py, and leave the zip's directory alone."""
    at = data.index(b"vllm/other.py") + len(b"vllm/other.py")
    return data[: at + 5] + bytes([data[at + 5] ^ 0xFF]) + data[at + 6 :]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("corrupt", "corrupt or unreadable"),
        ("no zip", "corrupt or unreadable"),
        ("no vllm", "has no vLLM"),
        ("absent", "404"),
        ("cut off", "cannot read"),
    ],
)
def test_a_bad_release_is_a_cell_and_the_rest_is_finished(
    call: Call, index: PackageServer, fault: str, words: str
) -> None:
    name = wheel_name("0.19.0")
    good = index.files[name]
    index.files[name] = {
        # of what another release has too, by RECORD and by the zip, that one's is taken
        "corrupt": _corrupt(release("0.19.0", other=OTHER.encode() + b"Y = 1\n")),
        "no zip": b"no zip at all" * 100,
        "no vllm": make_wheel({"other/__init__.py": b""}, version="0.19.0", bulk={}),
    }.get(fault, good)
    call("matrix", "limit", "--vllm", "<0.19")  # the page is kept now
    if fault == "absent":
        del index.files[name]
    if fault == "cut off":
        index.truncations = 1
    answer = call("matrix", "limit", "--vllm", ">=0.19,<0.22", "--json")
    assert answer.code == 1
    cells = {cell["tree"]: cell for cell in answer.json["cells"]}
    assert cells["pypi:0.19.0"]["verdict"] == "unreadable"
    assert words in cells["pypi:0.19.0"]["findings"][0]["message"]
    assert cells["pypi:0.20.0"]["verdict"] == "applies"
    assert cells["pypi:0.21.0"]["verdict"] == "applies"


def test_an_index_that_lies_about_a_hash(call: Call, index: PackageServer) -> None:
    index.ranges = False  # then files are had whole, and held against the index
    index.hashes[wheel_name("0.19.0")] = "0" * 64
    answer = call("matrix", "limit", "--json")
    cells = {cell["tree"]: cell for cell in answer.json["cells"]}
    assert "its sha256 is" in cells["pypi:0.19.0"]["findings"][0]["message"]
    assert cells["pypi:0.21.0"]["verdict"] == "applies"


@pytest.mark.slow
def test_a_server_without_ranges(call: Call, index: PackageServer) -> None:
    index.ranges = False
    index.files["vllm-0.21.0.tar.gz"] = make_sdist(FILES, version="0.21.0")
    answer = call("matrix", "limit", "--json")
    assert answer.code == 0, answer.out
    index.requests.clear()
    assert call("matrix", "limit", "--json").out == answer.out
    # the wheel of that version may have ranges by now; nothing is had whole again
    assert {path for path, _ in index.requests} <= {f"/files/{wheel_name('0.21.0')}"}


def test_a_named_tree_that_is_none_is_a_wrong_call(
    call: Call, index: PackageServer, tmp_path: Path
) -> None:
    answer = call("matrix", "limit", "--tree", "pypi:0.19.0", "--tree", tmp_path / "nothing")
    assert answer.code == 2
    assert "no such file or folder" in answer.err
    assert index.requests


def test_what_was_applied_to_a_folder_is_not_taken_for_upstreams(call: Call, site: Path) -> None:
    """RECORD is kept true, so the receipt alone says who did it."""
    assert call("apply", "fast", "--target", site).code == 0
    (cell,) = call("matrix", "fast", "--tree", site, "--json").json["cells"]
    assert cell["verdict"] == "applied"
    (site / ".vllm-mods/receipt.json").write_text("{}")
    (cell,) = call("matrix", "fast", "--tree", site, "--json").json["cells"]
    assert cell["verdict"] == "unreadable"
    assert "receipt" in cell["findings"][0]["message"]


@pytest.mark.slow
def test_a_bad_patch_is_told_as_ever(call: Call, index: PackageServer, library: Path) -> None:
    folder = write_mod(library, "limit", b"--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ nonsense @@\n")
    answer = call("matrix", "limit", "--jobs", "1")
    assert answer.code == 2
    assert str(folder / "x.patch") in answer.err
    process = start("--jobs", "2")
    assert str(folder / "x.patch") in process.communicate()[1].decode()
    assert process.returncode == 2
    assert index.requests


# --- strict -----------------------------------------------------------------


def problems(answer: Answer) -> set[tuple[str, str, str | None]]:
    return {(one["code"], one["mod"], one["tree"]) for one in answer.json["problems"]}


@pytest.mark.slow
def test_strict_is_content_with_what_update_lock_wrote(
    call: Call, index: PackageServer, library: Path
) -> None:
    assert call("matrix", "limit", "--strict").code == 1
    assert call("matrix", "limit", "--update-lock").code == 0
    answer = call("matrix", "limit", "--strict", "--json")
    assert (answer.code, answer.json["problems"]) == (0, [])
    part = call("matrix", "limit", "--strict", "--vllm", ">=0.20,<0.21", "--json")
    assert (part.code, part.json["problems"]) == (0, [])
    assert (library / "patches/limit/mod.lock").is_file()
    assert index.requests


@pytest.mark.slow
def test_a_part_of_the_matrix_leaves_the_rest_of_the_lock_as_it_was(
    call: Call, index: PackageServer, library: Path
) -> None:
    assert "kept" not in call("matrix", "limit", "--update-lock").err
    path = library / "patches/limit/mod.lock"
    whole = path.read_bytes()
    part = call("matrix", "limit", "--vllm", "==0.20.0", "--update-lock")
    assert (part.code, path.read_bytes()) == (0, whole)
    assert "note: the entries of 2 other releases in mod.lock are unchanged" in part.err
    call("matrix", "limit", "--vllm", "==0.18.0", "--update-lock")
    assert {"0.18.0", "0.19.0", "0.20.0", "0.21.0"} == {
        label for tree in json.loads(path.read_bytes())["trees"] for label in tree["vllm"]
    }
    assert call("matrix", "limit", "--strict").code == 0
    assert index.requests


def whole(index: PackageServer) -> list[str]:
    return [
        path.rpartition("/")[2]
        for path, span in index.requests
        if span is None and "/files" in path
    ]


@pytest.mark.slow
def test_a_lock_has_the_releases_that_are_new_to_it_as_a_whole_once(
    call: Call, index: PackageServer, library: Path
) -> None:
    assert call("matrix", "limit").code == 0
    assert whole(index) == []
    assert call("matrix", "limit", "--vllm", "==0.19.0", "--update-lock").code == 0
    assert whole(index) == [wheel_name("0.19.0")]
    assert call("matrix", "limit", "--update-lock").code == 0
    assert sorted(whole(index)) == sorted({*whole(index)})
    before = len(whole(index))
    assert before > 1
    lock = (library / "patches/limit/mod.lock").read_bytes()
    assert call("matrix", "limit", "--update-lock", "--verify").code == 0
    assert (library / "patches/limit/mod.lock").read_bytes() == lock
    assert wheel_name("0.19.0") not in whole(index)[before:]


@pytest.mark.slow
def test_what_is_verified_is_the_wheel_that_the_index_means(
    call: Call, index: PackageServer
) -> None:
    index.hashes[wheel_name("0.19.0")] = "0" * 64
    only = ("matrix", "limit", "--vllm", "==0.19.0")
    assert call(*only).code == 0
    assert whole(index) == []
    answer = call(*only, "--verify")
    assert answer.code == 1
    assert "its sha256 is" in answer.err
    assert whole(index) == [wheel_name("0.19.0")]


def test_no_lock_is_written_of_another_wheel_than_the_index_means(
    call: Call, index: PackageServer, library: Path
) -> None:
    index.hashes[wheel_name("0.19.0")] = "0" * 64
    answer = call("matrix", "limit", "--update-lock")
    assert answer.code == 1
    assert "its sha256 is" in answer.err
    assert not (library / "patches/limit/mod.lock").exists()


@pytest.mark.slow
def test_a_changed_mod_says_which_releases_its_lock_has_lost_and_how_to_look_again(
    call: Call, index: PackageServer, library: Path
) -> None:
    call("matrix", "limit", "--update-lock")
    manifest = library / "patches/limit/mod.toml"
    manifest.write_bytes(manifest.read_bytes() + b"# changed\n")
    part = call("matrix", "limit", "--vllm", "==0.20.0", "--update-lock")
    assert part.code == 0
    assert (
        "entries of the previous mod.lock for 0.19.0, 0.21.0 were removed: the file was written before limit was changed"
        in part.err
    )
    hint = "hint: vllm-mods matrix limit --vllm '>=0.19.0,<=0.21.0' --update-lock --library "
    assert part.err.endswith(f"{hint}{library}\n")
    assert call("matrix", "limit", "--strict").code == 1
    call("matrix", "limit", "--vllm", ">=0.19.0,<=0.21.0", "--update-lock")
    assert call("matrix", "limit", "--strict").code == 0
    assert index.requests


@pytest.mark.slow
def test_strict_sees_an_altered_hunk(call: Call, index: PackageServer, library: Path) -> None:
    call("matrix", "limit", "--update-lock")
    patch = library / "patches/limit/x.patch"
    patch.write_bytes(patch.read_bytes().replace(b" def limit", b" def other"))
    answer = call("matrix", "limit", "--strict", "--json")
    assert answer.code == 1
    assert ("stale-lock", "limit", None) in problems(answer)
    assert ("worse-than-baseline", "limit", "pypi:0.19.0") in problems(answer)
    assert ("range-too-wide", "limit", "pypi:0.19.0") in problems(answer)
    assert index.requests


@pytest.mark.slow
def test_where_a_mod_fits_beyond_its_ranges_is_told_and_is_no_break(
    call: Call, index: PackageServer, library: Path
) -> None:
    patch = (library / "patches/limit/x.patch").read_bytes()
    write_mod(library, "limit", patch, vllm=">=0.19,<0.21")
    call("matrix", "limit", "--update-lock")
    relaxed = call("matrix", "limit", "--json")
    assert relaxed.code == 0
    assert problems(relaxed) == {("range-too-narrow", "limit", "pypi:0.21.0")}
    assert call("matrix", "limit", "--strict").code == 0
    assert index.requests


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("", 1),
        ('vllm = ">=0.19"', 1),
        ('vllm = ">=0.19,<0.21"\nuntil = "0.21 has another limit"', 0),
        ('vllm = ">=0.19,<0.21"', 2),
        ('vllm = ">=0.19"\nuntil = "never"', 2),
        ('until = "never"', 2),
    ],
)
def test_a_release_that_no_variant_takes_is_a_break_unless_the_mod_says_that_it_ends(
    call: Call, index: PackageServer, library: Path, said: str, code: int
) -> None:
    index.files[wheel_name("0.22.0")] = release("0.22.0", other=b"def other():\n    return 9\n")
    patch = (library / "patches/limit/x.patch").read_bytes()
    write_mod(library, "limit", patch, vllm=">=0.19,<=0.21", more=said)
    call("matrix", "limit", "--vllm", "<0.22", "--update-lock")
    answer = call("matrix", "limit", "--vllm", ">=0.22", "--strict", "--json")
    assert answer.code == code
    if code == 1:
        assert problems(answer) == {("needs-port", "limit", "pypi:0.22.0")}
    if not said:
        older = call("matrix", "limit", "--vllm", "<0.19", "--strict", "--json")
        assert (older.code, {code for code, *_ in problems(older)}) == (0, {"range-too-narrow"})


@pytest.mark.slow
def test_a_mod_that_upstream_has_made_needless(
    call: Call, index: PackageServer, library: Path
) -> None:
    write_mod(library, "old", diff_of("vllm/a.py", "A = 0\n", "A = 1\n"))
    call("matrix", "old", "--update-lock")
    answer = call("matrix", "old", "--strict", "--json")
    assert problems(answer) == {("needless", "old", None)}
    assert answer.code == 1
    assert index.requests


@pytest.mark.slow
def test_a_mod_is_planned_with_what_it_requires(
    call: Call, index: PackageServer, library: Path
) -> None:
    after = OTHER.replace("LIMIT = 1", "LIMIT = 2")
    patch = diff_of("vllm/other.py", after, after.replace("LIMIT = 2", "LIMIT = 3"))
    write_mod(library, "more", patch, more='requires = ["limit"]')
    answer = call("matrix", "more", "--json")
    assert grid(answer)["more", "0.19.0"] == "applies"
    assert grid(answer)["limit", "0.19.0"] == "applies"
    assert index.requests


# --- interrupted ------------------------------------------------------------


def start(*arguments: str) -> subprocess.Popen[bytes]:
    # whoever runs the tests in the background has the signal ignored, and that is inherited
    sound = ["env", "--default-signal=INT"]
    return subprocess.Popen(
        [*sound, sys.executable, "-m", "vllm_mods", "matrix", "limit", "--json", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _wait_for(index: PackageServer, name: str, process: subprocess.Popen[bytes]) -> None:
    while not index.asked(name):
        assert process.poll() is None
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_an_interrupted_run_goes_on_where_it_was(
    index: PackageServer, library: Path, monkeypatch: pytest.MonkeyPatch, jobs: str
) -> None:
    monkeypatch.setenv("VLLM_MODS_LIBRARY", str(library))
    held = index.held[wheel_name("0.21.0")] = threading.Event()
    process = start("--jobs", jobs)
    # the oldest release's answer is on disk when the one after it is asked for, by either way
    for name in (wheel_name("0.21.0"), wheel_name("0.20.0")):
        _wait_for(index, name, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    held.set()
    assert (process.returncode, out) == (130, b""), err
    index.requests.clear()
    again = start("--jobs", jobs)
    out, err = again.communicate()
    assert again.returncode == 0, err
    cells: list[dict[str, Any]] = json.loads(out)["cells"]
    assert [cell["verdict"] for cell in cells] == ["applies"] * 4
    assert not index.asked(wheel_name("0.19.0"))
