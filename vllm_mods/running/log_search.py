"""Look for patterns in lines of a log, in a process of its own: a pattern may run forever."""

import json
import re
import sys


def main() -> None:
    """Read pairs of a pattern and its lines as JSON from the standard input, and write the first match of each."""
    searches = ((re.compile(pattern).search, lines) for pattern, lines in json.load(sys.stdin))
    matches = [
        next((match[0] for line in lines if (match := search(line))), None)
        for search, lines in searches
    ]
    json.dump(matches, sys.stdout)
