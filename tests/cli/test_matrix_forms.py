"""``matrix --format`` and ``--output``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from command_line import Answer

    Call = Callable[..., Answer]


@pytest.fixture
def matrix(call: Call, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    monkeypatch.setenv("VLLM_MODS_CACHE", str(tmp_path / "cache"))
    loader = site / "vllm/loader.py"
    loader.write_text(loader.read_text().replace("path =", "place =", 1))

    def do(*arguments: object) -> Answer:
        return call("matrix", "fast", "limit", "--tree", site, "--jobs", 1, *arguments)

    return do


def data(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


@pytest.mark.slow
def test_each_form_is_printed(matrix: Call) -> None:
    text, markdown, junit, html = (
        matrix("--format", form) for form in ("text", "markdown", "junit", "html")
    )
    assert {answer.code for answer in (text, markdown, junit, html)} == {1}
    assert "  conflict  " in text.out
    assert "✗ **conflict**" in markdown.out
    assert ET.fromstring(junit.out).find(".//failure") is not None  # noqa: S314
    assert html.out.startswith("<!doctype html>")
    assert html.out == matrix("--format", "html").out


def test_github_shows_what_is_wrong_at_the_manifest(matrix: Call) -> None:
    answer = matrix("--format", "github", "--strict")
    wrong, *others, summary = answer.out.splitlines()
    assert answer.code == 1
    assert summary.startswith("::notice title=vllm-mods::")
    assert re.match(
        r"::error file=\S+/patches/fast/mod\.toml,title=fast%3A conflict::conflict on .*%0A", wrong
    )
    assert others
    assert all(re.match(r"::(error|notice) file=\S+/mod\.toml,title=", line) for line in others)


def test_the_text_ends_with_its_last_line(matrix: Call) -> None:
    assert re.search(r"\S\n\Z", matrix().out)


def test_json_is_the_same_by_either_name(matrix: Call) -> None:
    assert matrix("--json").out == matrix("--format", "json").out
    assert matrix("--json").json["schema"] == 1


def test_a_page_explains_its_cells(matrix: Call) -> None:
    shown = data(matrix("--format", "html").out)
    cells = dict(zip([mod for mod, *_ in shown["mods"]], shown["cells"], strict=True))
    lost, placed = (shown["hunks"][cells[name][0]["hunks"][0]] for name in ("fast", "limit"))
    assert "proof" not in lost
    target = [shown["texts"][at] for at in shown["blocks"][lost["target"]]]
    assert '        place = os.path.join("weights", name)' in target
    assert (placed["proof"], placed["line"]) == ("stated", 1)


def test_what_is_written_is_what_would_be_printed(matrix: Call, tmp_path: Path) -> None:
    file = tmp_path / "report.xml"
    answer = matrix("--format", "junit", "--output", file)
    assert answer.code == 1
    assert answer.out == matrix().out
    assert f"wrote {file}" in answer.err
    assert file.read_text() == matrix("--format", "junit").out
    assert [path.name for path in tmp_path.glob("report*")] == ["report.xml"]


def test_a_file_that_cannot_be_written_is_said(matrix: Call, tmp_path: Path) -> None:
    answer = matrix("--format", "html", "--output", tmp_path / "nowhere/page.html")
    assert answer.code == 3
    assert "nowhere/page.html cannot be written: No such file or directory" in answer.err
