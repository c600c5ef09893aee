"""The matrix page where it is narrow, and without a mouse: what is read, what scrolls, what has the focus, where a cell opens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from matrix_making import cell, example, hunk, large, with_hunks

from vllm_mods.matrices.cell import MatrixResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

    Show = Callable[..., Page]

pytestmark = pytest.mark.browser

PHONE = {"width": 360, "height": 740}
_SIDEWAYS = """() => [...document.querySelectorAll("*")]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth
        && ["auto", "scroll"].includes(getComputedStyle(one).overflowX))
    .map((one) => one.className || one.localName)"""


def lost_among_many() -> MatrixResult:
    """A conflict whose fifth hunk of eight has no place, and whose lines are long."""
    whole = example()
    lines = ("     def load(self):", f"         c = {'1 + ' * 60}1", "-        b = 2")
    hunks = [hunk(number=at) for at in range(1, 9)]
    hunks[4] = hunk(*lines, number=5, proof=None)
    return with_hunks(whole, {("bad", "pypi:0.21.0"): tuple(hunks)})


@pytest.mark.parametrize("link", ["", "#bad/pypi:0.21.0"])
def test_nothing_but_the_grid_scrolls_sideways(show: Show, link: str) -> None:
    page = show(lost_among_many() if link else large(3, 60), link, viewport=PHONE)
    assert page.evaluate(_SIDEWAYS) == ([] if link else ["scroll"])
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_the_grid_is_readable_on_a_phone(show: Show) -> None:
    page = show(large(3, 60), viewport=PHONE)
    head, sign = page.locator("#grid tbody th").first, page.locator("#grid td svg").last
    name, frame = head.bounding_box(), page.locator(".scroll").bounding_box()
    cell = sign.bounding_box()
    assert name is not None
    assert frame is not None
    assert cell is not None
    assert name["width"] < frame["width"] / 2  # five releases or more stand beside the name
    assert cell["width"] >= 24  # WCAG 2.2, 2.5.8
    size = page.locator("#grid tbody th b").first.evaluate("one => getComputedStyle(one).fontSize")
    assert float(size.removesuffix("px")) >= 12


def test_every_cell_is_reached_by_arrows_and_shows_that_it_is(show: Show) -> None:
    page = show()
    page.locator("#grid td[tabindex='0']").focus()
    page.keyboard.press("Control+Home")
    reached = []
    for row in range(2):
        for column in range(4):
            at, outline = page.evaluate(
                "() => { const cell = document.activeElement.closest('td');"
                " return [[cell.parentNode.sectionRowIndex, cell.cellIndex - 1],"
                " getComputedStyle(cell.querySelector('svg')).outlineWidth]; }"
            )
            assert outline == "3px"
            reached.append(tuple(at))
            page.keyboard.press("ArrowRight")
            assert column == 3 or reached[-1] == (row, column)
        page.keyboard.press("Home")
        page.keyboard.press("ArrowDown")
    assert reached == [(row, column) for row in range(2) for column in range(4)]


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1200, "height": 700}])
def test_a_cell_opens_at_the_hunk_that_has_no_place(show: Show, viewport: dict[str, int]) -> None:
    page = show(lost_among_many(), viewport=viewport)
    page.locator("#grid td.conflict svg").focus()
    page.locator("#grid td.conflict").click()
    sight = page.locator("#explanation").bounding_box()
    lost, title = (
        page.locator(".hunk.lost").bounding_box(),
        page.locator("#cell-title").bounding_box(),
    )
    assert sight is not None
    assert lost is not None
    assert title is not None
    assert title["y"] + title["height"] <= lost["y"] + 1 < sight["y"] + sight["height"] / 3
    assert title["y"] >= sight["y"] - 1  # which cell it is stays in sight
    page.get_by_role("button", name="next: 0.22.0").click()
    assert page.evaluate("document.getElementById('explanation').scrollTop") == 0


def test_a_phone_shows_the_question_the_answer_and_the_grid_at_once(show: Show) -> None:
    page = show(large(60, 33), "#?mod=mod-0&release=0.8.0", viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    for what, rows in (("#mod", 0), ("#release", 0), ("#answer", 0), ("#grid tbody tr", 4)):
        box = page.locator(what).nth(rows).bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 844, what


def test_a_cell_says_which_optional_patch_is_left_out(show: Show) -> None:
    page = show(MatrixResult((cell(left_out=("one/extra.patch",)),)))
    page.locator("#grid td").hover()
    assert (
        page.locator("#readout").inner_text()
        == "mod on 0.20.0: applies, variant one, without one/extra.patch"
    )
    page.locator("#grid td").click()
    assert "without\none/extra.patch" in page.locator("dialog .facts").first.inner_text()
