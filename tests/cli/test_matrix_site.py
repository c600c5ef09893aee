"""``matrix --format site``: a folder with the page, the result, and the results of the days before."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from command_line import Answer

    Call = Callable[..., Answer]

BROKEN, WHOLE, MOVED = ("path", "place"), ("", ""), ("import os", "import re\nimport os")


class Night:
    """Runs the command on a day, on a tree in which a mod goes in or not."""

    def __init__(self, call: Call, site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.call, self.site, self.monkeypatch = call, site, monkeypatch
        self.text = (site / "vllm/loader.py").read_text()

    def __call__(self, day: str, change: tuple[str, str], *more: object) -> Answer:
        today = time.strptime(day, "%Y-%m-%d")
        self.monkeypatch.setattr("vllm_mods.cli.matrix.time.gmtime", lambda: today)
        (self.site / "vllm/loader.py").write_text(self.text.replace(*change, 1))
        asked = ("matrix", "fast", "--tree", self.site, "--jobs", 1, "--format", "site")
        return self.call(*asked, *(more or ("--output", "map")))


@pytest.fixture
def night(call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "published").mkdir()
    monkeypatch.chdir(tmp_path / "published")
    return Night(call, site, monkeypatch)


def files(folder: str = "map") -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in Path(folder).rglob("*.*")}


def told() -> str:
    """Return what the page says has changed, as text."""
    part = re.search(
        r'<section id="changes".*?</section>', Path("map/index.html").read_text(), re.DOTALL
    )
    return " ".join(re.sub("<[^>]*>", "", part[0]).split()) if part else ""


def test_a_folder_to_publish_keeps_each_result_that_is_another(night: Night, call: Call) -> None:
    first = night("2026-01-01", WHOLE)
    assert (first.code, told()) == (0, "")
    assert "Every mod applies" in first.out
    assert first.err.splitlines()[-3:] == [
        f"wrote map/{name}" for name in ("history/2026-01-01.json", "matrix.json", "index.html")
    ]
    asked = call("matrix", "fast", "--tree", night.site, "--json")
    assert Path("map/matrix.json").read_text() == asked.out
    before = files()
    night("2026-01-02", WHOLE)
    assert files() == before
    assert night("2026-01-03", BROKEN).code == 1
    assert sorted(files()) == [
        "history/2026-01-01.json",
        "history/2026-01-03.json",
        "index.html",
        "matrix.json",
    ]
    assert told().startswith("What changed since 2026-01-01 Got worse fast on ")
    assert ": applies, then conflict " in told()
    before = files()
    for day in ("2026-01-03", "2026-01-09"):
        night(day, BROKEN)
        assert files() == before
    night("2026-01-10", WHOLE)
    assert told().startswith("What changed since 2026-01-03 Got better ")


def test_a_second_change_on_a_day_is_compared_with_the_day_before(night: Night) -> None:
    night("2026-01-01", BROKEN)
    night("2026-01-02", WHOLE)
    night("2026-01-02", MOVED)
    assert told().startswith("What changed since 2026-01-01 Got better ")
    assert len(list(Path("map/history").iterdir())) == 2


def test_a_change_that_is_undone_on_its_day_is_none(night: Night) -> None:
    night("2026-01-01", BROKEN)
    before = files()
    night("2026-01-02", WHOLE)
    night("2026-01-02", BROKEN)
    assert files() == before
    night("2026-01-03", WHOLE)
    assert told().startswith("What changed since 2026-01-01 Got better ")


def test_the_result_to_compare_with_may_be_named(night: Night) -> None:
    for day, change in (("2026-01-01", WHOLE), ("2026-01-03", BROKEN), ("2026-01-05", WHOLE)):
        night(day, change)
    Path("mine.json").write_bytes(Path("map/history/2026-01-03.json").read_bytes())
    said = ("--output", "map", "--since")
    for since, start in (
        ("2026-01-04", "What changed since 2026-01-03 Got better "),
        ("2026-01-01", "What changed since 2026-01-01 No mod got better or worse."),
        ("mine.json", "What changed since mine Got better "),
    ):
        assert night("2026-01-06", WHOLE, *said, since).code == 0
        assert told().startswith(start)
    early = night("2026-01-06", WHOLE, *said, "2025-12-31")
    assert early.code == 2
    assert "map/history/2025-12-31.json cannot be read: No such file" in early.err


def test_what_could_not_be_computed_is_not_kept_for_later(night: Night) -> None:
    night("2026-01-01", WHOLE)
    before = files()
    unread = ("--tree", "pypi:0.1.0", "--offline", "--output", "map")
    night("2026-01-02", WHOLE, *unread)
    assert sorted(files()) == sorted(before)
    assert "New: 0.1.0." in told()
    night("2026-01-03", WHOLE)
    assert files() == before


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("matrix.json", '{"name": "a game"}', "map/matrix.json: 1 problem\n  cells: is required"),
        ("matrix.json", "half of i", "map/matrix.json: 1 problem\n  not JSON: "),
        (
            "history/2026-01-01.json",
            "half of i",
            "map/history/2026-01-01.json: 1 problem\n  not JSON: ",
        ),
        ("index.html", "<p>mine</p>", "map/matrix.json cannot be read: No such file"),
    ],
)
def test_what_is_not_its_own_is_refused_before_anything_is_written(
    night: Night, name: str, text: str, why: str
) -> None:
    place = Path("map", name)
    place.parent.mkdir(parents=True)
    place.write_text(text)
    answer = night("2026-01-02", WHOLE)
    assert (answer.code, why in answer.err) == (2, True)
    assert files() == {name: text.encode()}


def test_a_folder_has_to_be_named(night: Night, call: Call) -> None:
    why = "--format site needs --output, and --since needs both"
    assert why in night("2026-01-01", WHOLE, "--verify").err
    answer = call("matrix", "fast", "--tree", night.site, "--since", "2026-01-01")
    assert (answer.code, why in answer.err) == (2, True)
    answer = night("2026-01-01", WHOLE, "--output", "map", "--against", "a..b")
    assert "these cannot be used with --against: --tree, --format" in answer.err


def test_an_empty_folder_or_day_is_none(night: Night) -> None:
    unnamed = night("2026-01-01", WHOLE, "--output", "")
    assert (unnamed.code, "needs --output" in unnamed.err) == (2, True)
    assert night("2026-01-01", WHOLE, "--output", "map", "--since", "").code == 2
    assert files() == {}
