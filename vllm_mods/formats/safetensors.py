"""The header of a safetensors file, and the index of several: bytes to names and dtypes. Pure."""

from typing import Any, NamedTuple

from vllm_mods.base import limits
from vllm_mods.base.errors import TreeError
from vllm_mods.base.untrusted import is_deep, json_of

LENGTH = 8
"""The bytes in front of a header that say how long it is."""
_AGAIN = "download the file again, and compare its size with the size on the Hub"


class Tensor(NamedTuple):
    """What a header says of one tensor; ``dtype`` as safetensors writes it (``F8_E4M3``), ``size`` in bytes; ``file`` has it."""

    dtype: str
    shape: tuple[int, ...]
    size: int = 0
    file: str = ""


def header_length(data: bytes, size: int, where: str) -> int:
    """Return how many bytes of a file of ``size`` its header takes, behind the first ``LENGTH``."""
    length = int.from_bytes(data, "little")
    if len(data) != LENGTH or not 0 < length <= size - LENGTH:
        raise TreeError(f"{where}: cut off, or not a safetensors file", hint=_AGAIN)
    if length > limits.SAFETENSORS_HEADER:
        why = f"{where}: its header has {length:,} bytes; the limit is {limits.SAFETENSORS_HEADER}"
        raise TreeError(why, hint="the format has that limit, so this is not a safetensors file")
    return length


def header(data: bytes, room: int, where: str) -> dict[str, Tensor]:
    """Return the tensors of a header that ``room`` bytes follow. Raises ``TreeError`` for anything that is none."""
    raw = table(data, where)
    raw.pop("__metadata__", None)
    tensors = {}
    for name, entry in raw.items():
        match {"data_offsets": [0, 0], **entry} if isinstance(entry, dict) else None:
            case {
                "dtype": str(dtype),
                "shape": list(shape),
                "data_offsets": [int(start), int(end)],
            } if all(type(edge) is int and edge >= 0 for edge in shape) and 0 <= start <= end:
                if end > room:
                    why = f"{where}: the file is cut off: it has {room:,} bytes of weights, but {name} ends at {end:,}"
                    raise TreeError(why, hint=_AGAIN)
                tensors[name] = Tensor(dtype, tuple(shape), end - start, where.rpartition(": ")[2])
            case _:
                raise TreeError(f"{where}: {name!r} has no dtype and shape in its header")
    return tensors


def files_of_index(data: bytes, where: str) -> tuple[str, ...]:
    """Return the files that ``model.safetensors.index.json`` names, sorted; each lies beside it."""
    raw = table(data, where).get("weight_map")
    weight_map = raw if isinstance(raw, dict) else {}
    names = {name for name in weight_map.values() if isinstance(name, str)}
    wrong = sorted(name for name in names if "/" in name or not name.endswith(".safetensors"))
    if not names or wrong:
        lacks = f"{where}: it has no weight_map"
        why = f"{where}: its weight_map names {wrong[0]!r}" if wrong else lacks
        raise TreeError(why, hint="the index of a checkpoint names the safetensors files beside it")
    if len(names) > limits.SHARDS:
        raise TreeError(f"{where} names {len(names):,} files; the limit is {limits.SHARDS}")
    return tuple(sorted(names))


def table(data: bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in ``data``. Raises ``TreeError`` for anything else."""
    try:
        raw = json_of(data)
    except ValueError as error:
        raise TreeError(f"{where}: not JSON: {error}") from error
    if not isinstance(raw, dict) or is_deep(raw):
        raise TreeError(f"{where}: not an object of JSON, or nested too deeply")
    return raw
