"""Name what is in a patch file that is no unified diff as it stands, and what mends it. Pure."""

import re

from vllm_mods.base.errors import DiffError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""In front of a UTF-8 file of some editors; no part of its first line."""
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_COLOURED = rb"^(?:\x1b\[[0-9;]*[mK])+(?:diff |index |--- |\+\+\+ |@@ |[-+ ])"
_OTHERS = {
    rb"^\d+(?:,\d+)?[acd]\r?$": "an ed script",
    rb"^\d+(?:,\d+)?[acd]\d+(?:,\d+)?\r?\n[<>] ": "a diff without context",
    rb"^\*{15}(?: [^\n]*)?\r?\n\*\*\* \d+(?:,\d+)? \*\*\*\*": "a context diff",
}


def refuse_foreign(data: bytes, where: str) -> None:
    """Raise ``DiffError`` for what has to be undone before any line can be read."""
    if data.startswith(_UTF_16) or data[1:2] == b"\0":
        why = "the patch file is encoded as UTF-16, which PowerShell's `>` writes"
        hint = f"make the diff again with `git diff --output={where}`, which keeps all bytes"
        raise DiffError(where, 1, why, hint=hint)
    if b"\x1b[" in data and (match := re.search(_COLOURED, data, re.MULTILINE)):
        line = data.count(b"\n", 0, match.start()) + 1
        hint = f"make the diff again with `git diff --no-color`, or: sed -i 's/\\x1b\\[[0-9;]*[mK]//g' {where}"
        raise DiffError(where, line, "the patch contains terminal colour codes", hint=hint)


def without_changes(data: bytes, where: str) -> DiffError:
    """Say what a file is in which no part of a unified diff was found."""
    line, why = 1, "this file contains no diff: it has no '--- a/…' and '+++ b/…' lines"
    for pattern, name in _OTHERS.items():
        if match := re.search(pattern, data, re.MULTILINE):
            line = data.count(b"\n", 0, match.start()) + 1
            why = f"{name}: only unified diffs are supported; other forms do not prove where a change belongs"
    return DiffError(where, line, why, hint="make the diff again with `git diff` or `diff -u`")
