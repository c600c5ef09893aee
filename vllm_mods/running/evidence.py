"""Whether a mod's code ran: its ``[evidence]`` against what a server said.

A pattern may take time without end, and a log is anybody's words: another process matches, line by line, and is
ended when its time is over.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base import limits, own_process
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Mod
from vllm_mods.running import log_search

RAN, OTHER, SILENT, UNTOLD = "ran", "other", "silent", "untold"


class Evidence(NamedTuple):
    """What a log tells of one mod.

    ``state`` is ``ran``, ``other`` (other code did its work), ``silent`` (no word of it), or ``untold``: a log
    cannot tell. ``text`` is what the log has of it, or what the manifest says instead.
    """

    name: str
    state: str
    text: str | None

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the mod."""
        return self.state in {RAN, UNTOLD}


def of_mods(mods: Sequence[Mod], log: bytes) -> tuple[Evidence, ...]:
    """Look for each mod's evidence in a log. Raises ``TreeError`` for a pattern that takes too long."""
    return tuple(_of_mod(mod, log) for mod in mods)


def _of_mod(mod: Mod, log: bytes) -> Evidence:
    said = dict(mod.evidence)
    if "log" not in said:
        return Evidence(mod.name, UNTOLD, said.get("behaviour"))
    keys = [key for key in ("log", "instead") if key in said]
    found = dict(zip(keys, _matches(mod, [said[key] for key in keys], log), strict=True))
    if (ran := found["log"]) is not None:
        return Evidence(mod.name, RAN, ran)
    other = found.get("instead")
    return Evidence(mod.name, SILENT if other is None else OTHER, other)


def _matches(mod: Mod, patterns: Sequence[str], log: bytes) -> list[str | None]:
    given = json.dumps([limits.LOG_LINE, patterns]).encode() + b"\n" + log
    try:
        done = subprocess.run(
            own_process.command(log_search.__name__),
            input=given,
            capture_output=True,
            timeout=limits.EVIDENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TreeError(
            f"{mod.name}: its [evidence] has not been looked for to the end after {limits.EVIDENCE_SECONDS}",
            hint=f"a pattern without nested repeats in {mod.directory}/mod.toml, or less of the log",
        ) from error
    if done.returncode:
        raise TreeError(f"{mod.name}: its [evidence] cannot be looked for in this log")
    return [None if one is None else str(one) for one in json.loads(done.stdout)]
