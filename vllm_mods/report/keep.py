"""What was done to keep a library up with vLLM, for people, for scripts and for a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllm_mods.keeping.keeping import KeptRelease
from vllm_mods.keeping.run import Branch
from vllm_mods.report.data import SCHEMA

_TITLES = {
    "recorded": "goes into vLLM {release} as it is",
    "widened": "goes into vLLM {release} as it is",
    "ported": "a variant for vLLM {release}",
    "ended": "vLLM {release} carries it",
    "left": "the port to vLLM {release}, to be finished",
}


def message(kept: KeptRelease) -> str:
    """Return a commit's message, which is the text for a pull request too: title, blank line, Markdown."""
    title = f"{kept.mod}: {_TITLES[kept.did].format(release=kept.release)}"
    rows = ["| | vLLM " + kept.release + " |", "| --- | --- |"]
    rows += [f"| before | {kept.before} |", f"| after | {kept.after} |"]
    parts = [title, "\n".join(rows)]
    for head, said in (
        ("What changed upstream", kept.upstream),
        ("Decided by rule", kept.told),
        ("For a person to look at", kept.left),
    ):
        parts += [f"{head}:", "\n".join(f"* {one}" for one in said)] if said else []
    return "\n\n".join(parts) + "\n"


def data(library: str, found: Sequence[Branch]) -> dict[str, Any]:
    """Return what ``keep --json`` prints."""
    return {
        "schema": SCHEMA,
        "library": library,
        "branches": [
            {
                **one.kept._asdict(),
                "branch": one.name if one.commit else None,
                "commit": one.commit,
                "body": message(one.kept) if one.kept.did in _TITLES else None,
            }
            for one in found
        ],
    }


def line(one: Branch) -> str:
    """Return what became of a mod on a release, in a line, and below it what is left to a person."""
    kept = one.kept
    words = {
        "fits": f"{kept.before}: nothing to do",
        "there": f"the branch {one.name} is there already, and left alone",
        "stuck": "no port could be begun",
        "waits": "nothing was done",
    }
    said = words.get(kept.did) or f"{kept.before} -> {kept.after}, branch {one.name}"
    rows = [f"{kept.mod} {kept.release}: {said}"]
    rows += [f"  left to you: {text}" for text in kept.left]
    return "\n".join(rows)
