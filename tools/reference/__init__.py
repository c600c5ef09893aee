"""The parts of the docs that are made of the code: what stands between ``<!-- generate: NAME -->`` and ``<!-- generated -->``.

``python -m reference`` in ``tools/`` writes them into the pages; a test says when one is out of date.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from reference import commands, keys, library, messages, words

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS: dict[str, Callable[[], str]] = {
    "commands": commands.all_commands,
    "exit-codes": words.exit_codes,
    "verdicts": words.verdicts,
    "variables": words.variables,
    "mod-keys": keys.of_mods,
    "pairing-keys": keys.of_pairings,
    "codes": messages.codes,
    "errors": messages.errors,
    "library": library.library,
    "limits": words.limits,
}
# The table of each page that has one of its own.
for _page in ("fit", "serve-check", "matrix-answers", "doctor", "templates"):
    PARTS[f"codes-{_page}"] = partial(messages.codes_on, f"{_page}.md")
_END = "<!-- generated -->"
MARK = re.compile(
    rf"^<!-- generate: ([\w-]+) -->$(?:(?:(?!<!-- generate: ).)*?^{_END}$)?",
    re.MULTILINE | re.DOTALL,
)


def fill_in(markdown: str) -> str:
    """Put the generated parts behind their marks. Raises ``KeyError`` for one there is not."""
    return MARK.sub(
        lambda mark: f"<!-- generate: {mark[1]} -->\n\n{PARTS[mark[1]]()}\n\n{_END}", markdown
    )
