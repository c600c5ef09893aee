"""The README on a code host, beside its files, and on the package index, without them."""

from __future__ import annotations

import re
import tomllib

from doc_pages import GENERATED, ROOT

README = (ROOT / "README.md").read_text()


def test_it_is_short_and_its_links_lead_to_files() -> None:
    assert len(README.splitlines()) <= 150
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert "docs/matrix.png" in links
    assert not [link for link in links if not (ROOT / link).is_file()]


def test_the_index_is_given_no_link_to_a_file() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    hook = settings["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]
    text = README
    for one in hook["substitutions"]:
        text = re.sub(one["pattern"], one["replacement"], text)
    assert "](" not in text
    assert "<!--" not in text
    assert "docs/guides/mod-authors.md" in text
    # A mod is applied and an image built by what is left, too.
    assert text.count("```") == README.count("```")


def test_the_docs_are_short_enough_to_be_read() -> None:
    """Counted without what is made of the code: whoever adds a page makes others shorter."""
    docs = [*(ROOT / "docs").rglob("*.md")]
    pages = [GENERATED.sub("", path.read_text()) for path in (ROOT / "README.md", *docs)]
    assert sum(len(page.split()) for page in pages) <= 23_500  # with what is typed and printed
    prose = (re.sub(r"(?ms)^```.*?^```$", "", page) for page in pages)
    assert sum(len(page.split()) for page in prose) <= 17_300
    # As `wc -w` counts: tables made of the code too, but not the pages that are hardly anything else.
    made = ("cli", "errors", "library", "verdicts-and-exit-codes")
    tables = {ROOT / f"docs/reference/{name}.md" for name in made}
    assert sum(len(path.read_text().split()) for path in {*docs} - tables) <= 26_000
