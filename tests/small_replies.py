"""Records that commands answer with, of one small mod, and what tests ask of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mod_making import diff_of, mod, variant

from vllm_mods.base.finding_codes import FindingCode
from vllm_mods.base.model import FileChange, Finding, Level, ModPlan, Plan, Verdict
from vllm_mods.formats.receipt import FileHash, ReceiptMod

if TYPE_CHECKING:
    from vllm_mods.report.reply import Reply

PATCH = diff_of("vllm/x.py", "A = 1\n", "A = 2\n")
TEXT = Finding(FindingCode.TEXT, "hunk 1: not there", "vllm/x.py", 3)
NOTE = Finding(FindingCode.OFFSET, "hunk 1 lands at line 4, +2", "vllm/x.py", 4, level=Level.NOTE)
FAST = mod(
    variant(PATCH, python=("numpy>=2",)),
    name="fast",
    summary="faster",
    license="MIT",
    digest="ab" * 32,
    directory="/lib/patches/fast",
)


def planned(verdict: str = "applies", **more: Any) -> ModPlan:
    return ModPlan(FAST, FAST.variants[0], Verdict(verdict), in_range=True, **more)


def plan(*mods: ModPlan, changes: tuple[FileChange, ...] = ()) -> Plan:
    return Plan("site", "0.19.1", mods, changes)


def entry(name: str, *paths: str) -> ReceiptMod:
    files = tuple(FileHash(path, "0" * 64, "1" * 64) for path in paths)
    return ReceiptMod(name, "1.0.0", "ab" * 32, "v", "applies", files)


def lines(reply: Reply) -> list[str]:
    assert reply.words is not None
    return reply.words.split("\n")


def paint(verdict: Verdict, words: str | None = None) -> str:
    """Colour a verdict, or words about it, so that it can be read."""
    return f"<{verdict.value if words is None else words}>"
