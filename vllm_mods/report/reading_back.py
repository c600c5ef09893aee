"""What the parsers of a release read, as text and as JSON."""

from __future__ import annotations

from typing import Any

from vllm_mods.report import data, text
from vllm_mods.template.reading_back import WAYS, PairRead, ReadBack, way_name


def lines(back: ReadBack) -> list[str]:
    """Return what parsers that were named read; or which of a release read all, and what others lose."""
    release = back.release
    if back.named:
        found = [f"  vLLM {release.version} reads its answers back"]
        for pair in back.pairs:
            found += [
                f"    {_names(pair)}: {_counts(pair)}",
                *text.findings(pair.findings, "      "),
            ]
        return [*found, *text.findings(back.findings, "    ")]
    counts = f"{len(release.tools)} tool parsers and {len(release.reasoners)} reasoning parsers"
    found = [f"  of {counts} of vLLM {release.version}"]
    for what, pairs in (
        ("calls", [pair for pair in back.pairs if pair.tool]),
        ("reasoning", [pair for pair in back.pairs if not pair.tool]),
    ):
        whole = [_names(pair) for pair in pairs if pair.whole]
        partly = [pair for pair in pairs if not pair.whole]
        found += [f"    read all its {what}: {', '.join(whole)}"] * bool(whole)
        if whole and partly:
            found.append(f"    read some of its {what}: {', '.join(map(_names, partly))}")
            continue
        for pair in partly:
            found.append(f"    reads {what}: {_names(pair)}: {_counts(pair)}")
            found += text.findings(pair.findings, "      ")
    return [*found, *text.findings(back.findings, "    ")]


def parsers_data(back: ReadBack) -> dict[str, Any]:
    """Return the same for scripts."""
    return {
        "vllm": back.release.version,
        "tool_call_parsers": list(back.release.tools),
        "reasoning_parsers": list(back.release.reasoners),
        "named": back.named,
        "pairs": [
            {
                "tool_call_parser": pair.tool,
                "reasoning_parser": pair.reasoning,
                "answers": pair.asked,
                "read": dict(zip(WAYS, pair.read, strict=True)),
                "findings": [data.finding(one) for one in pair.findings],
            }
            for pair in back.pairs
        ],
        "findings": [data.finding(one) for one in back.findings],
    }


def _names(pair: PairRead) -> str:
    return " with ".join(filter(None, (pair.tool, pair.reasoning)))


def _counts(pair: PairRead) -> str:
    if pair.whole:
        return f"all {pair.asked}, whole and streamed"
    counts = zip(WAYS, pair.read, strict=True)
    return f"of {pair.asked}: " + ", ".join(f"{count} {way_name(way)}" for way, count in counts)
