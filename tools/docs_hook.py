"""MkDocs calls this: what stands behind ``<!-- generate: NAME -->`` in a page is made of the code.

And a block that no test runs says so to who reads it, not to the tests alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from reference import fill_in

if TYPE_CHECKING:
    from mkdocs.structure.pages import Page

_NOT_RUN = re.compile(r"^( *)<!-- docs: not run: (.*) -->\n", re.MULTILINE)


def on_page_markdown(markdown: str, page: Page, **_rest: object) -> str:
    """Fill in the generated parts of a page, and show what is not run."""
    try:
        filled = fill_in(markdown)
    except KeyError as error:
        raise PluginError(f"{page.file.src_uri}: nothing generates {error}") from error
    return _NOT_RUN.sub(r'\1<p class="not-run">Not run by the tests: \2.</p>\n\n', filled)
