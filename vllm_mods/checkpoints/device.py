"""The GPU that a model is to run on: as somebody says its memory, else as this machine does."""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from vllm_mods.base.errors import UsageError
from vllm_mods.images import engine_command

GIB = 1 << 30
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(g|gb|gib)\Z", re.ASCII | re.IGNORECASE)


class Device(NamedTuple):
    """What a GPU is called, and the bytes of its memory."""

    name: str
    memory: int


def device(named: str | None) -> Device | None:
    """Return a GPU whose memory is ``named`` (``96GiB``), else the largest of this machine; None where nobody knows.

    Raises ``UsageError`` for what is no size.
    """
    if named is not None:
        match = _SIZE.match(named)
        if match is None:
            raise UsageError(f"--device-memory {named}: not a size", hint="--device-memory 96GiB")
        return Device("--device-memory", int(float(match[1]) * GIB))
    return max(_of_machine(), key=lambda each: each.memory, default=None)


def _of_machine() -> Iterator[Device]:
    for line in engine_command.gpus("name,memory.total"):
        name, _, mebibytes = line.rpartition(", ")
        if mebibytes.isdigit():
            yield Device(name, int(mebibytes) << 20)
        elif name:  # a DGX Spark has one memory for both
            pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
            yield Device(f"{name} and the CPU together", pages)
