"""MkDocs calls this: what stands behind ``<!-- generate: NAME -->`` in a page is made of the code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from reference import fill_in

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, page: Page, **_rest: object) -> str:
    """Fill in the generated parts of a page."""
    try:
        return fill_in(markdown)
    except KeyError as error:
        raise PluginError(f"{page.file.src_uri}: nothing generates {error}") from error
