"""Look for patterns in a log. Runs in a process of its own: a pattern may take time without end."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence


def first_matches(patterns: Sequence[str], text: str, longest: int) -> list[str | None]:
    """Return what each pattern matches in the first line that has it; of a line ``longest`` letters count."""
    lines = [line[:longest] for line in text.splitlines()]
    searches = (re.compile(pattern).search for pattern in patterns)
    return [
        next((match[0] for line in lines if (match := search(line))), None) for search in searches
    ]


def main() -> None:
    """Read a line of JSON and the log from the standard input, and write the matches as JSON."""
    head, _, log = sys.stdin.buffer.read().partition(b"\n")
    longest, patterns = json.loads(head)
    json.dump(first_matches(patterns, log.decode("utf-8", "replace"), longest), sys.stdout)
