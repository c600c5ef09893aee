"""A checkpoint as data, and how it is read of whatever has its files."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from vllm_mods.base import limits
from vllm_mods.base.digest import sha256
from vllm_mods.base.errors import TreeError
from vllm_mods.formats import safetensors

CONFIG = "config.json"
INDEX = "model.safetensors.index.json"
_SHARD = re.compile(r"(.*-)\d{5}(-of-(\d{5})\.safetensors)\Z", re.ASCII)


class Checkpoint(NamedTuple):
    """A model as it was named, with what its files say.

    ``commit`` is what a revision on the Hub stands for, None for a folder; ``index`` the sha256 of the
    index, None where there is one file or none. Without a safetensors file ``tensors`` is empty. ``files`` are all.
    """

    name: str
    commit: str | None
    config: Mapping[str, Any]
    tensors: Mapping[str, safetensors.Tensor]
    config_sha256: str
    index_sha256: str | None
    files: tuple[str, ...] = ()


class ModelFiles(Protocol):
    """Where a checkpoint's files lie: ``names``, the model as named, the ``commit`` on the Hub."""

    name: str
    commit: str | None
    names: tuple[str, ...]

    def read(self, name: str, most: limits.Limit) -> bytes:
        """Return a whole file. Raises ``TreeError`` if it is larger than ``most``."""

    def span(self, name: str, start: int, end: int) -> tuple[int, bytes]:
        """Return the size of a file, and its bytes from one place up to another."""


def read(files: ModelFiles) -> Checkpoint:
    """Read the config, the index and the headers. Raises ``TreeError`` for what cannot be read."""
    names = files.names
    if CONFIG not in names:
        why = f"{files.name} has no {CONFIG}, so vLLM cannot serve it"
        hint = "name the folder that contains it, or an id on the Hub: ORGANISATION/NAME"
        raise TreeError(why, hint=hint)
    config = files.read(CONFIG, limits.CHECKPOINT_CONFIG)
    index = files.read(INDEX, limits.CHECKPOINT_INDEX) if INDEX in names else None
    if index is not None:
        shards = safetensors.files_of_index(index, f"{files.name}: {INDEX}")
    else:
        own = {name for name in names if name.endswith(".safetensors") and "/" not in name}
        # Mistral's form, which often lies beside the same weights in the usual one
        own = {name for name in own if not name.startswith("consolidated")} or own
        shards = tuple(sorted(own | _numbered(own)))
    if missing := [name for name in shards if name not in names]:
        named = ", ".join(missing[:3]) + (", …" if missing[3:] else "")
        why = (
            f"{files.name}: {len(missing)} of its {len(shards)} weight files are missing ({named})"
        )
        raise TreeError(why, hint="run `hf download` again, which continues where it stopped")
    tensors: dict[str, safetensors.Tensor] = {}
    for name in shards[: limits.SHARDS]:
        where = f"{files.name}: {name}"
        size, first = files.span(name, 0, safetensors.LENGTH)
        end = safetensors.LENGTH + safetensors.header_length(first, size, where)
        _, data = files.span(name, safetensors.LENGTH, end)
        tensors |= safetensors.header(data, size - end, where)
        if len(tensors) > limits.TENSORS:
            raise TreeError(f"{files.name} has more than {limits.TENSORS}")
    return Checkpoint(
        name=files.name,
        commit=files.commit,
        config=safetensors.table(config, f"{files.name}: {CONFIG}"),
        tensors=tensors,
        config_sha256=sha256(config),
        index_sha256=None if index is None else sha256(index),
        files=names,
    )


def _numbered(shards: Iterable[str]) -> set[str]:
    """Return the files of which these are some: ``model-00002-of-00003.safetensors`` says how many there are."""
    series = {match.groups() for name in shards if (match := _SHARD.match(name))}
    counted = ((head, tail, min(int(count), limits.SHARDS)) for head, tail, count in series)
    return {f"{head}{n:05}{tail}" for head, tail, last in counted for n in range(1, last + 1)}
