"""Every block of the docs is run, checked, or says why not; and every command prints what is said."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from doc_commands import STOOD_IN, run
from doc_pages import CHECKED, GENERATED, ROOT, RUN, SHOWN, pages
from sampling import ALL

if TYPE_CHECKING:
    from pathlib import Path

    from doc_pages import Page

PAGES = pages()


def _page(page: Page) -> object:
    marks = [getattr(pytest.mark, need) for need in sorted(page.markers)]
    return pytest.param(page, marks=marks, id=page.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [_page(page) for page in PAGES if any(block.runs for block in page.blocks)]
)
def test_the_commands_do_what_the_page_says(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if "time" in page.needs and not ALL:
        pytest.skip("takes seconds, and .ci/run does it: VLLM_MODS_TEST_ALL=1")
    if "patch" in page.needs and shutil.which("patch") is None:
        assert "CI" not in os.environ
        pytest.skip("not installed: patch")
    more = {}
    if "network" in page.markers:
        more["DOCS_RELEASE"] = str(request.getfixturevalue("release"))
    if "engines" in page.markers:
        more |= request.getfixturevalue("docker")
    wrong = run(page, tmp_path, more)
    assert not wrong, "\n\n".join(wrong)


def test_no_block_is_silently_not_run() -> None:
    """A block is run, checked, a file, or shown as what it is; the others are listed with a reason."""
    odd = [
        f"{page.path}:{block.line}: {block.language or 'no language'}"
        for page in PAGES
        for block in page.blocks
        if block.language not in RUN | CHECKED | SHOWN
        or (
            block.language in SHOWN
            and block.title is None
            and re.search(r"^\$ |vllm-mods \w", block.body, re.MULTILINE)
        )
    ]
    assert not odd
    texts = (GENERATED.sub("", (ROOT / page.path).read_text()) for page in PAGES)
    lines = [line for text in texts for line in text.splitlines()]
    fences = sum(line.lstrip().startswith("```") for line in lines)
    assert fences == 2 * sum(len(page.blocks) for page in PAGES)
    left = {page.path: block.reason for page in PAGES for block in page.blocks if block.reason}
    assert left.keys() == {
        "README.md",
        "docs/guides/dgx-spark.md",
        "docs/guides/images.md",
        "docs/reference/json.md",
        "docs/running.md",
    }


def test_nobody_is_told_to_install_by_a_name_that_the_index_does_not_have() -> None:
    """Until vllm-mods is there, that name may be anybody's: pages and hints install from files and addresses."""
    by_name = re.compile(r"pip (?:install|download)\b[^`#\n]*[ '\"]vllm-mods(?![-\w/.])")
    assert by_name.search("pip install --quiet 'vllm-mods[parsers]'")
    assert not by_name.search("pip install ./vllm-mods")
    sources = (ROOT / "vllm_mods").rglob("*.py")
    texts = [*(ROOT / page.path for page in PAGES), *sources, ROOT / "CONTRIBUTING.md"]
    said = [(path, found[0]) for path in texts for found in by_name.finditer(path.read_text())]
    assert not said


def test_what_is_stood_in_for_is_run_by_ci() -> None:
    """.ci/run runs the line two below a mark of the README as it stands there."""
    lines = (ROOT / "README.md").read_text().splitlines()
    ci = (ROOT / ".ci/run").read_text()
    run = set()
    for mark in ("setup-run", "setup-test"):
        assert f"$(readme_line {mark})" in ci
        run |= set(lines[lines.index(f"<!-- {mark} -->") + 2].split(" && "))
    assert set(STOOD_IN) <= run
