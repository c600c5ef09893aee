"""``matrix --format site``: a folder with the page, the cells, and what changed since the runs before."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from vllm_mods.cli import site_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]

FILES = ["history.json", "index.html", "matrix.json"]
DAY = 86_400


@pytest.fixture
def map_of(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Answer]:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")

    def do(*more: object) -> Answer:
        named = () if "--output" in more else ("--output", tmp_path / "map")
        fixed = ("--tree", site, "--jobs", 1, "--format", "site")
        return call("matrix", "fast", "limit", *fixed, *named, *more)

    return do


def everything(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def history(folder: Path) -> Any:
    return json.loads((folder / "history.json").read_text())


def alter(site: Path) -> None:
    loader = site / "vllm/loader.py"
    loader.write_text(loader.read_text().replace("path =", "place =", 1))


def test_a_map_is_three_files_and_the_same_again(
    map_of: Callable[..., Answer], call: Call, site: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "map"
    answer = map_of()
    assert answer.code == 0
    assert answer.out == call("matrix", "fast", "limit", "--tree", site, "--jobs", 1).out
    assert f"wrote {folder}/index.html" in answer.err
    first = everything(folder)
    assert sorted(first) == FILES
    assert first["index.html"].startswith(b"<!doctype html>")
    assert json.loads(first["matrix.json"])["schema"] == 1
    tree = str(site)
    told = {"fast": {tree: "applies"}, "limit": {tree: "applies"}}
    assert history(folder) == {"schema": 1, "verdicts": told, "changes": []}
    assert map_of().code == 0
    assert everything(folder) == first


def test_a_changed_cell_keeps_its_earlier_answer(
    map_of: Callable[..., Answer], site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "map"
    before = (site / "vllm/loader.py").read_bytes()
    map_of()
    alter(site)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(DAY))
    assert map_of().code == 1
    worse = {
        "date": "1970-01-02T00:00:00Z", "mod": "fast", "tree": str(site), "before": "applies", "after": "conflict",
    }  # fmt: skip
    assert history(folder)["changes"] == [worse]
    page = (folder / "index.html").read_text()
    assert re.search(
        r"<td>1970-01-02</td><td>.*fast on .*</td><td>applies</td><td>conflict</td>", page
    )
    (site / "vllm/loader.py").write_bytes(before)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(2 * DAY))
    map_of()
    assert [one["after"] for one in history(folder)["changes"]] == ["conflict", "applies"]
    assert history(folder)["changes"][0] == worse


def test_what_a_run_does_not_look_at_stays_and_what_it_cannot_read_is_no_change(
    map_of: Callable[..., Answer], tmp_path: Path
) -> None:
    folder = tmp_path / "map"
    map_of()
    told = history(folder)
    told["verdicts"]["gone"] = {"pypi:0.1.0": "moved"}
    (folder / "history.json").write_text(json.dumps(told))
    map_of()
    assert history(folder)["verdicts"]["gone"] == {"pypi:0.1.0": "moved"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "Expecting value"),
        ("[]", "expected a table"),
        ("{}", "schema"),
        ('{"schema": 2, "verdicts": {}, "changes": []}', "2, and not 1"),
        ('{"schema": 1, "verdicts": {}}', "changes"),
        ('{"schema": 1, "verdicts": {"a": {"b": "good"}}, "changes": []}', "verdicts.a.b"),
        ('{"schema": 1, "verdicts": {}, "changes": [], "changes": []}', "changes"),
        ('{"schema": 1, "verdicts": {}, "changes": [{"mod": "a"}]}', "changes[0]"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_history_is_refused_and_stays(
    map_of: Callable[..., Answer], tmp_path: Path, text: str, why: str
) -> None:
    folder = tmp_path / "map"
    folder.mkdir()
    (folder / "history.json").write_text(text)
    answer = map_of()
    assert answer.code == 3
    assert f"{folder}/history.json is not the history of a map: " in answer.err
    assert why in answer.err
    assert everything(folder) == {"history.json": text.encode()}


def test_a_folder_of_others_is_refused(map_of: Callable[..., Answer], tmp_path: Path) -> None:
    folder = tmp_path / "map"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    (folder / "index.html").write_text("mine")
    answer = map_of()
    assert answer.code == 2
    assert f"{folder} has index.html, which no map has written; nothing was written" in answer.err
    assert everything(folder) == {"thesis.txt": b"mine", "index.html": b"mine"}


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_the_folder_is_not_followed(
    map_of: Callable[..., Answer], tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "map"
    map_of()
    data = (folder / name).read_bytes()
    (folder / name).unlink()
    (tmp_path / "elsewhere").write_bytes(data)
    (folder / name).symlink_to(tmp_path / "elsewhere")
    answer = map_of()
    assert answer.code == 2
    assert f"has {name}, which no map has written" in answer.err
    assert (tmp_path / "elsewhere").read_bytes() == data


def test_an_empty_folder_a_branch_and_what_a_killed_run_left_are_taken(
    map_of: Callable[..., Answer], tmp_path: Path
) -> None:
    folder = tmp_path / "map"
    (folder / ".git").mkdir(parents=True)
    (folder / ".index.html.new").write_text("<!doc")
    assert map_of().code == 0
    assert sorted(os.listdir(folder)) == [".git", *FILES]
    (folder / "CNAME").write_text("mods.example.org")  # beside a history it is the owner's affair
    assert map_of().code == 0
    assert (folder / "CNAME").read_text() == "mods.example.org"


@pytest.mark.parametrize("name", FILES)
def test_nothing_is_written_unless_all_can_be(
    map_of: Callable[..., Answer], site: Path, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "map"
    map_of()
    before = everything(folder)
    alter(site)
    (folder / f".{name}.new").mkdir()
    answer = map_of()
    (folder / f".{name}.new").rmdir()
    assert answer.code == 3
    assert "cannot be written" in answer.err
    assert everything(folder) == before


def test_a_run_that_is_ended_on_the_way_loses_no_change(
    map_of: Callable[..., Answer], site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The history is in place first: the page and the cells are made again by the next run."""
    folder = tmp_path / "map"
    map_of()
    alter(site)
    put = os.replace
    done: list[str] = []

    def once(source: str, place: str) -> None:
        if str(folder) in str(place):
            if done:
                raise OSError(5, "Input/output error")
            done.append(place)
        put(source, place)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", once)
        assert map_of().code == 3
    assert [os.path.basename(one) for one in done] == ["history.json"]
    assert len(history(folder)["changes"]) == 1
    assert map_of().code == 1
    assert len(history(folder)["changes"]) == 1
    assert "<td>conflict</td>" in (folder / "index.html").read_text()
    assert sorted(os.listdir(folder)) == FILES


def test_without_a_folder_the_hint_is_the_call_with_one(
    call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # what is typed of it writes a map
    answer = call("matrix", "fast", "--tree", site, "--format", "site")
    assert answer.code == 2
    assert "error: --format site writes a folder: --output names it" in answer.err
    assert f"hint: vllm-mods matrix fast --tree {site} --format site --output map" in answer.err


def test_a_folder_is_looked_at_before_anything_is_computed(
    map_of: Callable[..., Answer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        pytest.fail("it was computed")

    monkeypatch.setattr("vllm_mods.cli.matrix.matrix", never)
    (tmp_path / "file").write_text("")
    answer = map_of("--output", tmp_path / "file")
    assert answer.code == 3
    assert "cannot be written: Not a directory" in answer.err
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "9" * 12)
    assert map_of().code == 2


def test_the_time_is_that_of_the_run_where_nothing_else_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert re.fullmatch(
        r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", site_folder.begin(str(tmp_path / "new"))
    )
