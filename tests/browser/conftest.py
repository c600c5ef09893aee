"""A real Chromium without a screen, and the pages it opens from files.

What is not installed is a reason to skip, said as such; where the variable CI is set it fails.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest
from matrix_making import example

from vllm_mods.report import html

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from vllm_mods.matrices.against import Earlier
    from vllm_mods.matrices.cell import MatrixResult


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None or find_spec("playwright") is None:
        message = "there is no chromium, or no playwright (pip install -e '.[browser]')"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    from matrix_picture import ALONE
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(ALONE))
        yield started
        started.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Open a matrix as a page; at the end, nothing may have been said on the console."""
    contexts = []
    said: list[str] = []

    def do(
        made: MatrixResult | None = None,
        link: str = "",
        earlier: Earlier | None = None,
        **settings: Any,
    ) -> Page:
        file = tmp_path / "matrix.html"
        file.write_text(html.render(made or example(), earlier), encoding="utf-8")
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on(
            "request", lambda request: said.append(request.url) if not own(request.url) else None
        )
        page.goto(f"{file.as_uri()}{link}")
        return page

    def own(url: str) -> bool:
        return url.startswith(((tmp_path / "matrix.html").as_uri(), "data:"))

    yield do
    for context in contexts:
        context.close()
    assert said == []
