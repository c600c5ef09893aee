"""The documentation opened from a disk: links lead to pages, the search finds, nothing is fetched."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from doc_pages import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if find_spec("mkdocs") is None:
        assert "CI" not in os.environ
        pytest.skip("not installed: mkdocs (pip install -e '.[docs]')")
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "-q", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=True,
    )
    return folder


@pytest.fixture
def page(browser: Browser, site: Path) -> Iterator[Page]:
    """The first page, from the disk; at the end, nothing was asked of a server and nothing went wrong."""
    context = browser.new_context()
    opened = context.new_page()
    said: list[str] = []
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("console", lambda message: said.append(message.text))
    opened.on(
        "request",
        lambda request: (
            None if request.url.startswith((site.as_uri(), "data:")) else said.append(request.url)
        ),
    )
    opened.goto((site / "index.html").as_uri())
    yield opened
    context.close()
    assert said == []


def pages(site: Path) -> list[Path]:
    """Return all pages; a server alone shows 404.html, whose links begin at its root."""
    return sorted(file for file in site.rglob("*.html") if file.name != "404.html")


def test_the_search_finds_from_a_disk_and_its_answer_opens(page: Page) -> None:
    page.locator("input.md-search__input").click()
    page.keyboard.type("journalctl")
    page.locator(".md-search-result__link[href*='running.html?h=journalctl']").first.click()
    page.locator("h1", has_text="Running a pairing").wait_for()
    page.locator("mark", has_text="journalctl").first.wait_for()


def test_every_link_of_the_navigation_is_a_page(page: Page, site: Path) -> None:
    links = page.locator("nav.md-nav--primary a.md-nav__link[href]").evaluate_all(
        "all => all.map(one => one.href.split('#')[0])"
    )
    assert {file.as_uri() for file in pages(site)} == set(links)


def test_a_phone_shows_every_page_without_moving_it_sideways(page: Page, site: Path) -> None:
    page.set_viewport_size({"width": 400, "height": 800})
    wide = []
    for file in pages(site):
        page.goto(file.as_uri())
        if page.evaluate("document.documentElement.scrollWidth") > 400:
            wide.append(str(file.relative_to(site)))
    assert not wide


def test_a_block_that_no_test_runs_says_so(page: Page, site: Path) -> None:
    page.goto((site / "guides/dgx-spark.html").as_uri())
    said = page.locator(".not-run").all_inner_texts()
    assert "Not run by the tests: it needs the server." in said
    assert len(said) == (ROOT / "docs/guides/dgx-spark.md").read_text().count("docs: not run: ")
