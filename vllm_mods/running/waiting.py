"""Until a container serves, or does not."""

from __future__ import annotations

import http.client
import time

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.running import engine
from vllm_mods.running.service import Service

_POLL_SECONDS = 2.0


def wait(planned: Service, program: str) -> None:
    """Wait until it serves. Raises ``TreeError`` for a container that ends, or takes too long."""
    end = time.monotonic() + limits.START_SECONDS
    while not _serves(planned.port):
        state = engine.container(planned.name, program)
        if not state.running or state.restarts:
            last = engine.log(state)[-2000:].decode("utf-8", "replace").strip()
            raise TreeError(
                f"{planned.name} ended before it served. The end of its log:\n{last}",
                hint=engine.log_command(program, planned.name),
            )
        if time.monotonic() > end:
            raise TreeError(
                f"{planned.name} has not served within {limits.START_SECONDS}",
                hint=engine.log_command(program, planned.name),
            )
        time.sleep(_POLL_SECONDS)


def _serves(port: int) -> bool:
    connection = http.client.HTTPConnection("localhost", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
