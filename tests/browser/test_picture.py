"""The picture of the matrix page that the README shows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matrix_making import example

from vllm_mods.report import html

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
MADE = Path(__file__).parents[2] / "docs/matrix.png"


def test_the_same_matrix_is_the_same_picture(browser: Browser, tmp_path: Path) -> None:
    from matrix_picture import picture, text_of

    page = tmp_path / "matrix.html"
    page.write_text(html.render(example()), encoding="utf-8")
    one, again = (picture(browser, page, "a on b: applies\n") for _ in range(2))
    assert one == again
    assert text_of(one) == "a on b: applies\n"
    tab = browser.new_page()
    tab.goto("about:blank")  # and Chromium reads it
    size = tab.evaluate(
        "async (bytes) => { const found = await createImageBitmap(new Blob([new Uint8Array(bytes)]));"
        " return [found.width, found.height]; }",
        list(one),
    )
    tab.close()
    assert min(size) > 300


@pytest.mark.usefixtures("browser")  # what it is read by needs playwright, too
def test_the_picture_says_which_cells_it_shows() -> None:
    from matrix_picture import text_of

    lines = text_of(MADE.read_bytes()).splitlines()
    assert len(lines) > 100
    assert "hybrid-int4-fp8 on pypi:0.21.0: applies, variant 0.20" in lines
