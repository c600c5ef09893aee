"""Whether a mod's code ran: its ``[evidence]`` against what a server said.

A pattern may run forever and a log may hold anything, so matching happens in a process of its own with a time limit.
"""

import json
import posixpath
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from vllm_mods.base import limits, own_process
from vllm_mods.base.errors import TreeError
from vllm_mods.base.model import Mod
from vllm_mods.formats import diff
from vllm_mods.running import log_search, server_log

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


class ServerEvidence(NamedTuple):
    """What a log tells since the server's last start: whether it became ``ready``, and of each mod.

    ``restarts`` is how often it was started before that.
    """

    mods: tuple[Evidence, ...]
    ready: bool
    restarts: int

    @property
    def ok(self) -> bool:
        """Whether the server serves, and nothing speaks against any mod."""
        return self.ready and all(mod.ok for mod in self.mods)


def of_mods(mods: Sequence[Mod], data: bytes) -> ServerEvidence:
    """Look for each mod's evidence in a log. Raises ``TreeError`` for a pattern that takes too long."""
    log = server_log.read(data)
    each = tuple(_of_mod(mod, log) for mod in mods)
    return ServerEvidence(each, log.ready, max(0, log.starts - 1))


def _of_mod(mod: Mod, log: server_log.ServerLog) -> Evidence:
    """Judge one mod: its ``log`` counts from its own files in an engine or a worker, and ``instead`` before it.

    ``instead`` counts from its files in any process, and from any file in an engine or a worker: it is a no.
    """
    patterns = dict(mod.evidence)
    if "log" not in patterns:
        return Evidence(mod.name, UNTOLD, patterns.get("behaviour"))
    paths = (path for one in mod.variants for path in diff.touched(mod, one))
    own = {posixpath.basename(path) for path in paths}
    ran = [one.message for one in log.records if one.computes and one.file in own]
    other = [one.message for one in log.records if one.computes or one.file in own]
    searches = [(patterns["log"], ran)]
    if "instead" in patterns:
        searches.append((patterns["instead"], other))
    text, *others = _first_matches(mod, searches)
    if others and others[0] is not None:
        return Evidence(mod.name, OTHER, others[0])
    return Evidence(mod.name, SILENT if text is None else RAN, text)


def _first_matches(mod: Mod, searches: list[tuple[str, list[str]]]) -> list[str | None]:
    try:
        done = subprocess.run(
            own_process.command(log_search.__name__),
            input=json.dumps(searches).encode(),
            capture_output=True,
            timeout=limits.EVIDENCE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        why = f"{mod.name}: searching the log for mod.toml's [evidence] took more than {limits.EVIDENCE_SECONDS}"
        hint = f"use a pattern without nested repeats in {mod.directory}/mod.toml, or a shorter log"
        raise TreeError(why, hint=hint) from error
    if done.returncode:
        raise TreeError(f"{mod.name}: searching the log for mod.toml's [evidence] failed")
    return [None if match is None else str(match) for match in json.loads(done.stdout)]
