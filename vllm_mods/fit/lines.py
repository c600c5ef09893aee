"""Which lines of a file a change added, and which it left."""

from __future__ import annotations

from difflib import SequenceMatcher


def added_lines(before: bytes | None, after: bytes) -> frozenset[int]:
    """Return the 1-based lines of ``after`` that ``before`` does not have in that place."""
    new = after.splitlines()
    if before is None:
        return frozenset(range(1, len(new) + 1))
    old = before.splitlines()
    # Most of a patched file is untouched at both ends: only the middle is compared.
    start = 0
    while start < min(len(old), len(new)) and old[start] == new[start]:
        start += 1
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    old = old[start : len(old) - end]
    new = new[start : len(new) - end]
    added: set[int] = set()
    for tag, _, _, first, last in SequenceMatcher(None, old, new).get_opcodes():
        if tag in {"insert", "replace"}:
            added.update(range(start + first + 1, start + last + 1))
    return frozenset(added)
