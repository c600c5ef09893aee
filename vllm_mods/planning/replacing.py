"""Exact text for exact text: where it stands, as often as it has to, and nothing else. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from vllm_mods.base.model import Finding, TextReplacement


class ReplacedText(NamedTuple):
    """A file with other text, and the 1-based lines that the text stood on."""

    after: bytes
    lines: tuple[int, ...]


def replaced(one: TextReplacement, before: bytes, source: str) -> ReplacedText | Finding:
    """Replace text in a file, or say why not: it stands there as often as ``times`` says, or not at all."""
    old = one.old.encode()
    places = [match.start() for match in re.finditer(re.escape(old), before)] if old else []
    lines = tuple(before.count(b"\n", 0, at) + 1 for at in places)
    if len(places) == one.times:
        return ReplacedText(before.replace(old, one.new.encode()), lines)
    times = f"{len(places)} times" if places else "nowhere"
    message = f"{one.path}: {source}: its text stands {times} in it, and is for {one.times}"
    code = "ambiguous" if len(places) > one.times else "text"
    return Finding(code, message, path=one.path, line=lines[0] if lines else None)
