"""Write a unified diff as git does, with section headers. Pure: the reader is ``diff``.

Format: git-diff(1), "Generating patch text with -p". Behind ``@@`` stands the nearest ``class`` or
``def`` above the hunk, however far in, as git's driver for Python writes it.
"""

import os
import re
from collections.abc import Iterator, Sequence

from vllm_mods.base import line_diff

CONTEXTS = (3, 5, 8, 12, 20)
"""How many lines of context to try until a patch has one proven place."""

_DEFINITION = rb"[ \t]*(?:class|(?:async[ \t]+)?def)[ \t]"
_SECTION = 80  # bytes, as git cuts it
_NO_LINE_END = b"\\ No newline at end of file\n"
_QUOTED = rb"[^ !#-\[\]-~]"


def file_diff(
    path: str, before: bytes | None, after: bytes | None, mode: int | None = None, context: int = 3
) -> bytes:
    """Return the diff of one file from the site root, empty if nothing changes; None is "no such file", ``mode`` bits that it gets."""
    if before == after and (mode is None or after is None):
        return b""
    # git knows two modes: a file that gets the one had the other
    new_mode, old_mode = ("100755", "100644") if (mode or 0) & 0o100 else ("100644", "100755")
    body = b"".join(_hunks(line_diff.split(before or b""), line_diff.split(after or b""), context))
    old, new = (_quoted(f"{side}/{path}") for side in "ab")
    head = [f"diff --git {old} {new}"]
    if before is None:
        head.append(f"new file mode {new_mode}")
    elif after is None:
        head.append("deleted file mode 100644")
    elif mode is not None:
        head += [f"old mode {old_mode}", f"new mode {new_mode}"]
    if body:
        stop = "\t" if " " in path else ""  # git's, so that a date is none of the name
        head.append("--- /dev/null" if before is None else f"--- {old}{stop}")
        head.append("+++ /dev/null" if after is None else f"+++ {new}{stop}")
    return "".join(f"{line}\n" for line in head).encode() + body


def _quoted(name: str) -> str:
    """Return a name as git writes it: between quotes if it has more than plain letters."""
    quoted, count = re.subn(_QUOTED, lambda byte: b"\\%03o" % byte[0][0], os.fsencode(name))
    return f'"{quoted.decode()}"' if count else name


def ended(line: bytes) -> bytes:
    """Return a line of a hunk as a patch has it, also the last one of a file that does not end it."""
    return line if line.endswith(b"\n") else line + b"\n" + _NO_LINE_END


def _hunks(before: Sequence[bytes], after: Sequence[bytes], context: int) -> Iterator[bytes]:
    for group in _groups(list(line_diff.changes(before, after)), context):
        start, new_start = max(0, group[0][0] - context), max(0, group[0][2] - context)
        end = min(len(before), group[-1][1] + context)
        body: list[bytes] = []
        at = start
        for i, j, k, m in group:
            body += [b" " + line for line in before[at:i]]
            body += [b"-" + line for line in before[i:j]]
            body += [b"+" + line for line in after[k:m]]
            at = j
        body += [b" " + line for line in before[at:end]]
        new_size = sum(not line.startswith(b"-") for line in body)
        ranges = b"@@ -%s +%s @@" % (_range(start, end - start), _range(new_start, new_size))
        yield (ranges + _section(before, start)).rstrip() + b"\n"
        yield from map(ended, body)


def _groups(
    changes: Sequence[tuple[int, int, int, int]], context: int
) -> Iterator[list[tuple[int, int, int, int]]]:
    """Put changes together whose contexts touch."""
    group: list[tuple[int, int, int, int]] = []
    for change in changes:
        if group and change[0] - group[-1][1] > 2 * context:
            yield group
            group = []
        group.append(change)
    if group:
        yield group


def _range(start: int, size: int) -> bytes:
    first = start + 1 if size else start  # an empty range names the line before it
    return b"%d" % first if size == 1 else b"%d,%d" % (first, size)


def _section(before: Sequence[bytes], start: int) -> bytes:
    for line in reversed(before[:start]):
        if re.match(_DEFINITION, line):
            return b" " + line.strip()[:_SECTION].decode("utf-8", "ignore").encode()
    return b""
