"""A container that is started and waited for: one that serves is kept, one that fails is stopped, with its cause."""

import http.client
import ssl
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError, UsageError
from vllm_mods.images import engine_command
from vllm_mods.running import engine, server_log
from vllm_mods.running.failure import failure_of
from vllm_mods.running.service import PAIRING_LABEL, TYPED_LABEL, Service, Typed

_POLL_SECONDS = 2.0
_HEALTH_SECONDS = 5.0


def start(line: Sequence[str], planned: Service, typed: Typed, *, replace: bool = False) -> str:
    """Run ``PROGRAM run --detach …`` and return the container's ID; one that does not start is removed again.

    With ``replace``, one of ``run`` that has the name is removed first.
    Raises ``UsageError`` where a container has the name, ``TreeError`` with the engine's words.
    """
    program, name = line[0], planned.name
    if replace and name in {old.name for old in engine.containers(program)}:
        engine_command.call(program, "rm", "--force", "--volumes", name)
    with tempfile.TemporaryDirectory(prefix="vllm-mods-") as folder:
        id_file = Path(folder, "id")
        extra = ("--cidfile", str(id_file), "--label", f"{TYPED_LABEL}={typed.label}")
        done = engine_command.run(*line[:3], *extra, *line[3:])
        identity = id_file.read_text().strip() if id_file.exists() else ""
    if not done.code:
        return done.out
    if identity:
        engine_command.run(program, "rm", "--force", "--volumes", identity)
    elif not engine_command.run(program, "container", "inspect", name).code:
        old = engine.container(name, program)
        other = ("--replace",) if PAIRING_LABEL in old.labels else ("--name", f"{name}-2")
        why = f"{program} already has a container {name} ({old.state}); nothing was started"
        raise UsageError(why, hint=typed.again(other))
    words = done.errors.partition("\n\nRun '")[0]
    hint = f"{program} info"
    if any(word in words.lower() for word in ("gpu", "nvidia")):
        hint = typed.again(("--gpus", "none"))
    elif "port is already allocated" in words or "address already in use" in words:
        hint = typed.again(("--port", str(planned.port + 1)))
    raise TreeError(f"{program} run: {words}; the container was removed", hint=hint)


def wait(planned: Service, program: str, progress: Callable[[int, str], None]) -> None:
    """Wait until it serves; ``progress`` is called with the seconds so far and what the server is at, at each change.

    Raises ``TreeError`` for a container that ends, which is left stopped, or takes too long.
    """
    name, begin, shown = planned.name, time.monotonic(), ""
    while not serves(planned.url):
        state = engine.container(name, program)
        log = engine.log(state)
        seconds = int(time.monotonic() - begin)
        if not state.running or state.restarts:
            for _ in range(2):  # its engine may be about to start it again
                engine_command.run(program, "stop", name)
                time.sleep(_POLL_SECONDS / 4)
            failure = failure_of(state, log)
            raise TreeError(
                f"{name} ended before it served: {failure.cause}\n"
                f"The container is stopped; `{program} logs {name}` shows its log",
                hint=failure.hint,
            )
        if seconds >= limits.START_SECONDS:
            why = f"{name} did not serve within {limits.START_SECONDS}, and is still running"
            raise TreeError(why, hint=engine.log_command(program, name))
        if (phase := server_log.phase(log)) != shown:
            progress(seconds, phase)
            shown = phase
        time.sleep(_POLL_SECONDS)


def keep(planned: Service, program: str, note: Callable[[str], None]) -> None:
    """Have the engine start it again from now on, as what has served is; older podmans cannot."""
    if planned.restart == planned.restart_at_first:
        return
    done = engine_command.run(program, "update", "--restart", planned.restart, planned.name)
    if done.code:
        note(
            f"{program} cannot change the restart policy of {planned.name}, which stays "
            f"{planned.restart_at_first}, so there is no restart after a reboot; --restart {planned.restart} sets the policy from the start"
        )


def serves(url: str) -> bool:
    """Tell whether a server answers that it is well."""
    trusting = ssl._create_unverified_context()  # noqa: S323, SLF001  (whose name it has is not asked)
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trusting))
    try:
        with opener.open(f"{url}/health", timeout=_HEALTH_SECONDS) as answer:
            return bool(answer.status == http.client.OK)
    except HTTPError as answer:
        answer.close()
    except (OSError, http.client.HTTPException):
        pass
    return False
