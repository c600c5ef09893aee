"""The matrix page as text: nothing of others is markup in it, and it is small. See tests/browser."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from matrix_making import EVIL, SOURCE, about, cell, example, hostile, hunk, large

from vllm_mods.base.errors import ManifestError
from vllm_mods.base.model import Verdict
from vllm_mods.matrices.against import read_earlier
from vllm_mods.matrices.cell import Cell, ClientLine, MatrixResult
from vllm_mods.report import html
from vllm_mods.report.matrix_forms import FORMS
from vllm_mods.report.matrix_grid import MEANINGS, grid
from vllm_mods.report.page_data import page_data, pairs

if TYPE_CHECKING:
    from matrix_making import Make

    from vllm_mods.matrices.cell import HunkView

VOID = {"meta", "link", "br", "input", "path", "circle", "use"}


class Page(HTMLParser):
    """Reads a page, strictly, and keeps its elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("make", [example, hostile])
def test_the_page_is_well_formed_and_loads_nothing(make: Make) -> None:
    text = html.render(make())
    page = Page(text)
    for _, attributes in page.elements:
        assert not {"src", "style", "action"} & attributes.keys()
        assert not any(name.startswith("on") for name in attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    assert len(page.all("script")) == 2
    assert not re.search(r"https?://(?!www\.w3\.org)", text)


def test_the_policy_allows_the_page_s_own_style_and_script_only() -> None:
    page = Page(html.render(example()))
    policy = next(meta["content"] for meta in page.all("meta") if "http-equiv" in meta) or ""
    style, script = page.text["style"][0], page.text["script"][-1]
    for kind, text in (("style", style), ("script", script)):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy


def test_the_grid_is_there_without_javascript() -> None:
    page = Page(html.render(example()))
    verdicts = [cell["class"] for cell in page.all("td") if "class" in cell]
    assert verdicts[:8] == [
        "applies", "moved", "upstream aside", "applies",
        "unsupported aside", "applies", "conflict", "unknown",
    ]  # fmt: skip
    assert [head["scope"] for head in page.all("th")].count("row") == 2
    assert "upstream, not stated" in page.text["span"]


def test_nothing_of_others_is_markup() -> None:
    text = html.render(hostile())
    assert text.count("</script") == 2
    assert "<!--" not in text
    data = json.loads(Page(text).text["script"][0])
    assert data["findings"][0]["message"] == EVIL.replace("\x00", "\ufffd").replace(
        "\x1b", "\ufffd"
    ).replace("\udcff", "\ufffd")


@pytest.mark.slow
def test_all_that_a_cell_shows_when_it_is_opened_is_in_the_page() -> None:
    whole = example()
    result = whole._replace(cells=(whole.cells[4]._replace(hunks=()), whole.cells[5]))
    data = json.loads(page_data(grid(result), result))
    assert data == {
        "mods": [["good", "1.0.0", {}], ["bad", "1.0.0", {}]],
        "trees": [["pypi:0.21.0", "0.21.0"]],
        "cells": [
            [{"word": "upstream", "variant": "one", "meant": 0}],
            [{"word": "conflict", "variant": "one", "meant": 1, "findings": [0], "hunks": [0]}],
        ],
        "meanings": MEANINGS,
        "texts": [
            "     def load(self):",
            "         c = 1",
            "-        b = 2",
            "+        b = 3",
            *SOURCE,
        ],
        "blocks": [
            [0, 1, 2, 3],
            [4, 5, 6, 7, 8],
            [[None, 0], [0, 1], [1, 2], [2, 3], [3, None], [None, 4]],
        ],
        "findings": [
            {
                "code": "text",
                "level": "error",
                "line": 3,
                "message": "hunk 1: its text is not in the file; nearest is line 3",
                "path": "vllm/loader.py",
            }
        ],
        "hunks": [
            {
                "patch": "one/x.patch",
                "path": "vllm/loader.py",
                "number": 1,
                "scope": "Loader.load",
                "line": 2,
                "offset": 0,
                "first": 1,
                "lines": 0,
                "target": 1,
                "rows": 2,
            }
        ],
    }


def test_a_mod_is_found_by_what_it_is_for_the_packages_it_changes_and_the_models_it_names() -> None:
    result = about()
    good, bad = json.loads(page_data(grid(result), result))["mods"]
    assert good[2] == {
        "summary": "Loads <weights> faster",
        "package": ["flashinfer-python", "transformers", "vllm"],
        "model": [],
    }
    assert bad[2] == {"summary": "A template", "package": ["chat template"], "model": ["qwen3"]}


def test_the_heads_mark_where_a_series_begins_and_what_is_no_release() -> None:
    result = about()
    nightly = "0.22.1rc1.dev46+gc5e3454"
    last = cell("good", "0.22.2"), cell("bad", "0.22.2")
    heads = Page(html.render(result._replace(cells=(*result.cells, *last)))).all("th")
    assert [(head["title"], head.get("class")) for head in heads if "title" in head] == [
        *((f"pypi:{version}", "first") for version in ("0.19.1", "0.20.0", "0.21.0", "0.22.0")),
        (f"pypi:{nightly}", "nightly"),
        ("pypi:0.22.2", None),
    ]


def since(*cells: Cell) -> str:
    """Return the part of a page on what changed since these."""
    earlier = FORMS["json"](MatrixResult(cells)).encode()
    page = html.render(about(), read_earlier("history/2026-11-20.json", earlier))
    Page(page)
    part = re.search(r'<section id="changes".*?</section>', page, re.DOTALL)
    assert part
    assert '<a href="#/changes">What changed' in page
    return "\n".join(filter(None, map(str.strip, re.sub("<[^>]*>", "", part[0]).splitlines())))


def test_what_changed_is_told_by_mod_and_a_new_release_against_the_one_before_it() -> None:
    good = [
        cell("good", "0.18.0"),
        cell("good", "0.19.1", "conflict"),
        cell("good", "0.20.0", "upstream"),
    ]
    bad = [cell("bad", "0.19.1", "conflict"), cell("bad", "0.20.0", "moved")]
    assert since(*good, *bad) == (
        "What changed since 2026-11-20\n"
        "New: 0.21.0, 0.22.0, 0.22.1rc1.dev46+gc5e3454.\n"
        "No longer here: pypi:0.18.0.\n"
        "Got worse\n"
        "bad on 0.21.0: applies, then conflict\n"
        "good on 0.22.0: upstream, then applies\n"
        "good on 0.20.0: upstream, then moved\n"
        "Got better\n"
        "good on 0.19.1: conflict, then applies\n"
        "good on 0.21.0: moved, then upstream\n"
        "Could not be compared\n"
        "bad on 0.22.0: conflict, then unknown\n"
        "bad on 0.22.1rc1.dev46+gc5e3454: unknown, then unsupported\n"
        "A new release is compared with the one before it."
    )


def test_what_is_as_it_was_is_no_change() -> None:
    told = "No mod got better or worse.\nA new release is compared with the one before it."
    assert since(*about().cells) == f"What changed since 2026-11-20\n{told}"
    assert "What changed" not in html.render(about())


def test_nothing_of_an_earlier_result_is_markup() -> None:
    earlier = read_earlier(f"{EVIL}.json", FORMS["json"](hostile()).encode())
    page = html.render(about(), earlier)
    Page(page)
    assert page.count("</script") == 2
    assert "<!--" not in page


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"cells": [{"mod": "m", "tree": 1}]}', '{"cells": null}', "\xff"]
)
def test_what_is_no_result_is_refused(text: str) -> None:
    with pytest.raises(ManifestError, match=r"map/matrix\.json: "):
        read_earlier("map/matrix.json", text.encode("latin-1"))


def test_sixty_mods_are_loaded_with_less_than_200_kb() -> None:
    assert len(gzip.compress(html.render(large(60, 33)).encode(), 6, mtime=0)) < 200_000


@pytest.mark.slow
def test_what_releases_share_is_written_once() -> None:
    few, many = (len(html.render(large(4, trees))) for trees in (100, 200))
    assert (many - few) / (4 * 100) < 400  # bytes per further cell, of four hunks each
    assert len(html.render(large(30, 200))) < 3_000_000


def test_every_verdict_has_a_shape_of_its_own_and_a_sentence() -> None:
    words = {*(verdict.value for verdict in Verdict), "unknown"}
    page = (files("vllm_mods.report") / "page/page.html").read_text()
    icons = dict(re.findall(r'<symbol id="v-(.*?)".*?>(.*)</symbol>', page))
    assert icons.keys() == MEANINGS.keys() == words
    assert len(set(icons.values())) == len(words)


# --- hunks beside the target --------------------------------------------------------------------


def beside(view: HunkView) -> list[tuple[str | None, str | None]]:
    return [
        (None if line is None else view.lines[line], None if at is None else view.target[at][1])
        for line, at in pairs(view)
    ]


def test_a_hunk_stands_beside_its_place() -> None:
    assert beside(hunk()) == [
        (None, SOURCE[0]),
        ("     def load(self):", SOURCE[1]),
        ("         a = 1", SOURCE[2]),
        ("-        b = 2", SOURCE[3]),
        ("+        b = 3", None),
        (None, SOURCE[4]),
    ]


def test_one_that_is_in_stands_beside_what_it_left() -> None:
    there = [*SOURCE[:3], "        b = 3", SOURCE[4]]
    rows = beside(hunk(target=tuple(enumerate(there, 1))))
    assert ("+        b = 3", "        b = 3") in rows
    assert ("-        b = 2", None) in rows


def test_lines_that_differ_stand_beside_each_other() -> None:
    lost = hunk("     def load(self):", "         c = 1", "-        b = 2", proof=None)
    assert ("         c = 1", "        a = 1") in beside(lost)


def test_what_is_added_is_not_taken_for_what_is_there() -> None:
    lost = hunk(
        "     c", "+", "+    x", "     d", target=((1, ""), (2, "    e"), (3, "    d")), proof=None
    )
    assert beside(lost) == [
        (None, ""),
        ("     c", "    e"),
        ("+", None),
        ("+    x", None),
        ("     d", "    d"),
    ]


LINES = st.lists(st.sampled_from(["a", "b", "", "  c"]), max_size=8)


@given(
    marks=st.lists(st.tuples(st.sampled_from(" -+"), st.sampled_from("abc")), max_size=8),
    target=LINES,
    at=st.integers(1, 9),
    proof=st.sampled_from([None, "header"]),
)
def test_every_line_stands_once_and_in_order(
    marks: list[tuple[str, str]], target: list[str], at: int, proof: str | None
) -> None:
    view = hunk(target=tuple(enumerate(target, 1)), at=at, proof=proof)
    view = view._replace(lines=tuple(mark + text for mark, text in marks))
    rows = pairs(view)
    assert [line for line, _ in rows if line is not None] == list(range(len(marks)))
    assert [line for _, line in rows if line is not None] == list(range(len(target)))


def test_the_clients_of_chat_templates_are_listed_where_there_are_any() -> None:
    page = html.render(example())
    assert "Clients of chat templates" not in page
    lines = (ClientLine("fast", "Codex works from vLLM <0.22.0> on"),)
    listed = html.render(example()._replace(clients=lines))
    assert re.search(
        r"Clients of chat templates <small>1</small>.*?"
        r"<b>fast</b>: Codex works from vLLM &lt;0\.22\.0&gt; on",
        listed,
        re.DOTALL,
    )
