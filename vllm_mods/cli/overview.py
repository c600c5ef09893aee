"""``vllm-mods`` alone: the vLLMs in the environments here, what is in them, and the next command."""

import os
import shlex

from vllm_mods.api.installed import status
from vllm_mods.base.errors import VllmModsError
from vllm_mods.cli.options import TARGET
from vllm_mods.diagnosis import search
from vllm_mods.report import installed as report
from vllm_mods.report.reply import Reply

_MOST = 8  # vLLMs that are told: it is one screen


def overview() -> Reply:
    """Look at the vLLM that is named, else at those of the environments here; nothing is started."""
    named = os.environ.get(TARGET)
    places = (search.Installed(named, TARGET),) if named else search.installed(os.environ)
    lines = []
    next_step = "vllm-mods check --target pypi:VERSION  # or image:REF, or a folder"
    for place, (root, owner) in enumerate(places[:_MOST]):
        try:
            state = status(root)
            text = f"{owner}: {report.status(state, root).words}"
            command = "verify" if state.mods else "suggest MODEL"
            hint = state.hint or f"vllm-mods {command} --target {shlex.quote(root)}"
        except VllmModsError as error:  # of a tree that is no folder, or is damaged
            text = f"{owner}: {root}\n  {error.message}"
            hint = f"vllm-mods doctor --target {shlex.quote(root)}"
        lines.append(text)
        next_step = next_step if place else hint
    if places[_MOST:]:
        lines.append(f"and {len(places) - _MOST} more vLLMs: vllm-mods status --target DIR")
    if not places:
        lines.append("no vLLM was found in the environments of this machine")
    lines.append("\nvllm-mods --help lists the commands; vllm-mods list, the mods and pairings")
    return Reply({}, "\n".join(lines), next_step=next_step)
