"""What the matrix page's signs mean: a shape and a sentence per verdict, a sentence per proof."""

from __future__ import annotations

from vllm_mods.base.model import Verdict
from vllm_mods.report.text import MEANING

UNKNOWN = "unknown"

MEANINGS = {
    **{verdict.value: meaning for verdict, meaning in MEANING.items()},
    UNKNOWN: "nobody could look at it; the findings say why",
}

# How a hunk's place was proven: docs/how-it-decides.md.
PROOFS = {
    "file": "the file is byte for byte the one that the patch was written for",
    "scope": "what is around it is what the patch was written in",
    "order": "the hunks before and behind it leave it one place",
    "stated": "all hunks of the file stand at their stated lines, and proven ones around it",
    "new file": "nothing is there yet",
    "unique": "the only place in the file with this text; nothing else proves it",
}

# Strokes on a field of 16 by 16: told apart by their shape, whatever the colours.
ICONS = {
    Verdict.APPLIES.value: '<path d="M3 8.5l3.5 3.5L13 4.5"/>',
    Verdict.MOVED.value: '<path d="M5 13.5v-11M2.5 5L5 2.5 7.5 5M11 2.5v11M8.5 11l2.5 2.5 2.5-2.5"/>',
    Verdict.APPLIED.value: '<circle cx="8" cy="8" r="5.5"/><circle cx="8" cy="8" r="1.5"/>',
    Verdict.UPSTREAM.value: '<path d="M8 14V6M4.5 9L8 5.5 11.5 9M3 2.5h10"/>',
    Verdict.CONFLICT.value: '<path d="M4 4l8 8M12 4l-8 8"/>',
    Verdict.MISPLACED.value: '<path d="M2 5.5h11M10.5 3L13 5.5 10.5 8M14 11H3M5.5 8.5L3 11l2.5 2.5"/>',
    Verdict.UNFIT.value: '<path d="M8 2l6.5 12h-13zM8 6.5v3M8 12v0"/>',
    Verdict.MISSING.value: '<circle cx="8" cy="8" r="5"/><path d="M2.5 13.5l11-11"/>',
    Verdict.PARTIAL.value: '<circle cx="8" cy="8" r="5.5"/><path fill="currentColor" d="M8 2.5a5.5 5.5 0 0 1 0 11z"/>',
    Verdict.UNSUPPORTED.value: '<path d="M4 8h8"/>',
    Verdict.UNREADABLE.value: '<path d="M5 6a3 3 0 1 1 4.5 2.5Q8 9.3 8 10.5M8 13.5v0"/>',
    UNKNOWN: '<path d="M3 8h0M8 8h0M13 8h0"/>',
}
